"""`scripts/soak`: mixed traffic and API calls for a bounded time, while processes are killed and disk and descriptors
run out; then what was lost, what leaks, and what the log says that nothing explains.

`installation` is the product on a disk of its own; `traffic` and `changes` use it, `disturb` harms it. `faults` knows
how each fault may affect clients and the log, and `verdict` puts it together.
"""
