"""`scripts/soak`: mixed traffic and API calls for a bounded time, while processes are killed and disk and descriptors
run out; then what was lost, what leaks, and what the log says that nothing explains.

`installation` is the product on a disk of its own; `traffic` and `changes` use it, `disturb` harms it. `ledger` knows
which changes succeeded, `faults` how each fault may affect clients, `lines` which faults explain a line of the log;
`leaks` counts what may leak, and `verdict` puts it together.
"""
