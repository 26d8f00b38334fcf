"""The metrics collector: counters of all forwarding actors summed up, and the metrics of the system.

`actor` composes it. `totals` adds counters up, `series` and `series_writer` keep them over time, `usage_service`
books what accounts have used in `account_usage`, and `alerts` compares with the limits of settings. In a fleet
`usage_reporter` reports to its database what `usage_changes` says that it lacks.
"""
