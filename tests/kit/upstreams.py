"""Upstreams for tests: specs of our own proxies and of hostile scripts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actors.bus.messages.specs import UpstreamSpec, UpstreamsSpec
from actors.pools.slot import UpstreamSlot, spans_of
from actors.pools.state import private_slots
from actors.pools.upstream import OWN_SPANS, Upstream
from tests.kit.forwarding_rig import Rig
from tests.kit.ports import free_port

COOLDOWNS = {"connect": (1.0, 60.0), "407": (60.0, 600.0), "429": (30.0, 300.0), "5xx": (5.0, 60.0)}


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
        own_upstream(upstream_entry(index + 1, weight=weight), index)
        for index, weight in enumerate(weights or (1, 1, 1))
    ]


def own_upstream(spec: UpstreamSpec, index: int = 0, now: float = 0.0) -> Upstream:
    """One of a proxy itself, which this process alone knows."""
    slot = private_slots(OWN_SPANS, 1)[0]
    slot.take_over(now)
    return Upstream(spec, index, slot, now)


def a_slot(spans: Mapping[str, tuple[float, float]] = COOLDOWNS) -> UpstreamSlot:
    """What is known of one upstream of a pool, by this process alone."""
    return private_slots(spans_of(spans), 1)[0]


def three_of_a_pool() -> list[Upstream]:
    """Upstreams that cool down as pools have it by default."""
    return [Upstream(each.spec, each.index, a_slot(), 0.0, "paris") for each in three()]


def up(upstream: Upstream) -> bool:
    """Whether it is not down."""
    return upstream.state != "down"
