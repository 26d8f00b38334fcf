"""What is limited on one proxy: bandwidth, connections, requests, and the quota of each account.

`token_bucket` and `sliding_window` are the mechanisms. `meter` applies buckets to both directions of one connection.
`accounts` are the accounts of the proxy and the credentials that narrow them, and `held_accounts` are those of the
table that all proxies share. `limits` decides with all of them whether a connection or request is admitted.
"""
