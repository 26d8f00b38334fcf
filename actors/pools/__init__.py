"""Pools of upstreams: what all processes of this machine know of their upstreams, and the checks, made once.

`state` is what a process has of upstreams: a `slot` for each, in a line of live state. `checked_pool` makes the checks.
"""
