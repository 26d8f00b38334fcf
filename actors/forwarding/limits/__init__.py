"""What is limited on one proxy: bandwidth, connections, requests, and the quota of each account.

`token_bucket` and `sliding_window` are the mechanisms. `throttle` applies buckets to one direction of a connection,
`meter` both directions to one connection. `accounts` are the accounts of the proxy, and `limits` decides with all of
them whether a connection or request is admitted.
"""
