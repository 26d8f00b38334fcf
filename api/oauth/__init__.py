"""Signing in at an identity provider: OAuth 2.0 with PKCE, and OpenID Connect where the provider speaks it.

The authorization code flow (RFC 6749 section 4.1; OpenID Connect Core 1.0 section 3.1; practice as in RFC 9700):

1. `authorize` makes a state, a nonce and a PKCE verifier (`pending`), and sends the browser to the provider.
2. The provider sends the browser to `redirect_uri`, a page of the front end, with a code and the state.
3. The front end gives both to `callback`. The state is taken out of memory, so it is good once; the code is exchanged
   for tokens with the verifier, the ID token is checked (`id_token`), and what is said of the person becomes an
   `Identity` (`provider`).
4. The identity is somebody's account, or a new one (`linking`); whoever it is gets tokens as after a login.

States live in memory: a sign-in that was begun before the API's process was started anew has to begin again. What a
browser began only that browser may finish: `authorize` sets a cookie, and a callback that a browser sends (it has an
`Origin` or a `Sec-Fetch-Site` header, which no page can leave out) needs it. So nobody can lure somebody else into an
account of theirs. A program keeps the state itself, and needs no cookie.
"""
