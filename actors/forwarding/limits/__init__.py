"""What is limited on one proxy: bandwidth, connections, requests, and the quota of each account.

`token_bucket` is the mechanism of bandwidth, which `shared_bandwidth` divides among processes; what they count together
is in `actors.state`. `meter` applies buckets to both directions of one connection.
`accounts` are the accounts of the proxy and the credentials that narrow them, and `accounts_in_use` are those of the
table that all proxies share. `usage` counts bytes and holds quotas, for which `earlier_usage` asks the collector.
`rule_limits` are those of rules of policies, and `client_limits` how many client addresses may use an account. `limits`
asks all of them whether a connection or request is admitted.
"""
