"""The log indexer: access records on disk, stored once, and found again."""
