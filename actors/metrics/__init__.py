"""The metrics collector: counters of all forwarding actors summed up, and the metrics of the system.

`actor` composes it. `totals` adds counters up, `series` and `series_writer` keep them over time, `account_usage` adds
up and stores what accounts have used, for `usage_service`, and `alerts` compares with the limits of settings.
"""
