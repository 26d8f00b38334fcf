"""`scripts/soak`: mixed traffic and API calls for a bounded time, while processes are killed and disk and descriptors
run out; then what was lost, what leaks, and what the log says that nothing explains.

`installation` is the product on a disk of its own; `traffic` and `changes` use it, `disturb` harms it. `ledger` knows
what was answered, `faults` what clients may feel of which fault, `lines` what explains a line of the log; `looking`
counts what may leak, and `verdict` puts it together.
"""
