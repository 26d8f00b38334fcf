"""The configuration store: commits, damage, migration."""
