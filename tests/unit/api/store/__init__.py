"""The configuration store: commits, damage."""
