"""The metrics collector: counters of all forwarding actors summed up, and the figures of the system."""
