"""What is asked of processes and stores: records, metrics, connections, usage, health, the first screen, the audit
trail.

The `…_operations` are handlers; what they ask with is in the other modules.
"""
