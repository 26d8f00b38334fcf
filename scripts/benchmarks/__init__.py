"""The benchmark: the product and its peers measured side by side, on loopback, in one run.

`table` has the rows with their goals, and `rounds` has ours and the peers take turns; `traffic`, `fleet`, `objects`
and `management` have the measures. CPU is that of the proxy's processes alone; memory is USS, what a process
would give back if it ended, or PSS for processes that share pages.
"""
