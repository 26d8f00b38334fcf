"""What is limited on one proxy: bandwidth, connections, requests, and what each account may use.

`token_bucket` and `sliding_window` are the mechanisms, `meter` applies them to one connection, `accounts` are the
accounts of the proxy with their quotas, and `limits` puts all of them together.
"""
