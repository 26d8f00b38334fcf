"""The metrics collector: counters of all forwarding actors summed up, and the metrics of the system."""
