"""Pools of upstreams for tests."""

from __future__ import annotations

from actors.bus.messages.specs import PoolSpec, UpstreamSpec, UpstreamsSpec

COOLDOWN = (("connect", 1.0, 60.0), ("407", 60.0, 600.0), ("429", 30.0, 300.0), ("5xx", 5.0, 60.0))


def pool(*hosts: str, revision: int = 1, cooldown: tuple[tuple[str, float, float], ...] = COOLDOWN) -> PoolSpec:
    """A pool of HTTP upstreams at these hosts."""
    entries = tuple(UpstreamSpec(host, "http", host, 3128) for host in hosts)
    return PoolSpec("pool_1", "paris", revision, UpstreamsSpec(entries), cooldown=cooldown)
