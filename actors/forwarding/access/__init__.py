"""Who may use the proxy, and where to: `rules` (of the configuration, and those of an account or credential),
`policy` (rules and egress guard in one decision), `directory` (who is known: the proxy's own accounts, and through
`fleet` those that all proxies share), `authenticator` (user names, passwords and secrets), `backend` (users
known elsewhere), `guess_limit` (clients that guess passwords) and `test_clients` (the API's own tests)."""
