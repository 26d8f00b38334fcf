"""Live state that processes share: counts by key in mapped files that outlive sleep, restart and crash.

`table` is the one format, `processes` says who lives, `usage` is what accounts use. Counting takes no lock and sends no
message.
"""
