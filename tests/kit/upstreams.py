"""Upstreams for tests: specs of our own proxies and of hostile scripts."""

from __future__ import annotations

from typing import Any

from actors.bus.messages.upstreams import UpstreamSpec, UpstreamsSpec
from actors.forwarding.upstream import Upstream
from tests.kit.forwarding_rig import Rig
from tests.kit.ports import free_port


def upstream_entry(port: int, protocol: str = "http", **changes: Any) -> UpstreamSpec:
    """An upstream on loopback."""
    return UpstreamSpec(f"{protocol}-{port}", protocol, "127.0.0.1", port, **changes)


def upstream_list(*given: UpstreamSpec, policy: str = "failover", **changes: Any) -> UpstreamsSpec:
    """These upstreams, without checks unless asked for."""
    return UpstreamsSpec(given, policy, **{"check_enabled": False, **changes})


def of_rig(rig: Rig, **changes: Any) -> UpstreamSpec:
    """One of our own proxies as an upstream."""
    return upstream_entry(rig.port, rig.spec.protocol, **changes)


def closed_port() -> int:
    """A port of loopback without a listener, where no other process begins to listen and no connection has its end."""
    return free_port()


def three(*weights: int) -> list[Upstream]:
    """Upstreams of these weights; three of weight 1 by default."""
    return [
        Upstream(upstream_entry(index + 1, weight=weight), index, 0.0)
        for index, weight in enumerate(weights or (1, 1, 1))
    ]


def up(upstream: Upstream) -> bool:
    """Whether it is not down."""
    return upstream.state != "down"
