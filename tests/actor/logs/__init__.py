"""The indexer as a process."""
