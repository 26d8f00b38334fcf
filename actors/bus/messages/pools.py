"""Pools of upstreams on their way to the process that checks them."""

from __future__ import annotations

from dataclasses import field

from actors.bus.codec import message
from actors.bus.messages.specs import EgressSpec


@message
class CheckPool:
    """API → supervisor: check the upstreams of the pool with this key once and now, whether a proxy uses it or not.

    → `Done` when the order is on its way; what is found is in the file of the pool.
    """

    key: str


@message
class CheckPoolOnce:
    """Supervisor → pools, for a `CheckPool`: the packed `PoolSpec`. Nothing replies."""

    packed: bytes = field(repr=False)


@message
class CheckPools:
    """Supervisor → pools, at its hello and at every change: these are the pools that a proxy may use.

    `pools` has the packed `PoolSpec` of each by its key (`FleetObject`). Nothing replies.
    """

    egress: EgressSpec
    pools: dict[str, bytes] = field(default_factory=dict, repr=False)
