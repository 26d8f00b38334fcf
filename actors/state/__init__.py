"""Live state that processes share: counts by key in mapped files that outlive sleep, restart and crash.

`table` is the one format, `processes` says who lives, `live_state` is what one process shares. `counts` has
connections, requests and bandwidth, `usage` what accounts use, `choices` what sessions have chosen, `account_clients`
addresses. Counting takes no lock and sends no message.
"""
