"""Access records: their operations, and what the log indexers are asked for, of one node or of several."""
