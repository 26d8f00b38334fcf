"""The index of access records."""
