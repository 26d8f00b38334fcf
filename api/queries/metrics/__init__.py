"""Metrics of this machine or of all nodes: over time, of now, for Prometheus; and what the resolvers have cached."""
