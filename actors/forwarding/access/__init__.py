"""Who may use the proxy, and where to: `rules` (of the configuration), `policy` (rules and egress guard in one
decision), `authenticator` (user names and passwords), `guess_limit` (clients that try passwords), `test_clients` (tests
that the API makes), and `explain`, which asks all of them without a connection."""
