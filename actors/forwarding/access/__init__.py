"""Who may use the proxy, and where to: `rules` (of the configuration, and those of an account or credential),
`policy` (guard, rules and policies in one decision), `directory` (who is known: the proxy's own accounts, and those
that all proxies share), `authenticator` (user names, passwords and secrets, and the API's own tests), `backend` (users
that the operator's own service knows) and `guess_limit` (clients that guess passwords)."""
