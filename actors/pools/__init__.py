"""Pools of upstreams: what all processes of this machine know of their upstreams, and the checks, made once.

`state` is what a process has of one pool: a `slot` for each upstream, in a memory-mapped file (`state_file`).
"""
