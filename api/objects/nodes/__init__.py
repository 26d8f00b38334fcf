"""Nodes of a fleet: `node_kind` declares them, `node_operations` has what the API does with them."""
