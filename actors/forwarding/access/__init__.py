"""Who may use the proxy, and where to: `rules` (of the configuration), `policy` (rules and egress guard in one
decision), `authenticator` (user names and passwords), `guess_limit` (clients that guess passwords) and `test_clients`
(the API's own tests)."""
