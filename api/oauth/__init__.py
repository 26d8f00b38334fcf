"""Signing in at an identity provider: OAuth 2.0 with PKCE, and OpenID Connect where the provider speaks it.

The authorization code flow (RFC 6749 section 4.1; OpenID Connect Core 1.0 section 3.1; practice as in RFC 9700):

1. `authorize` makes a state, a nonce and a PKCE verifier (`pending`), and sends the browser to the provider.
2. The provider sends the browser to `redirect_uri`, a page of the front end, with a code and the state.
3. The front end sends both to `callback`. The state is removed from memory, so it is good once; the code is exchanged
   for tokens with the verifier, the ID token is checked (`id_token`), and the claims about the person become an
   `Identity` (`provider`).
4. The identity gets its account, or a new one (`linking`), and tokens are issued as after a login.

States live in memory: after a restart of the API's process a pending sign-in has to begin again. A sign-in that a
browser began only that browser may finish: `authorize` sets a cookie, and a callback that a browser sends (it has an
`Origin` or a `Sec-Fetch-Site` header, which no page can leave out) needs it. That prevents login CSRF, which signs a
victim in to an attacker's account. A program keeps the state itself, and needs no cookie.
"""
