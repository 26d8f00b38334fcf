"""Pools of upstreams: `kind` declares them, `actions` has what can be done with one."""
