"""Both resolvers as one: that of all proxies, and that for the name servers which proxies name, while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import TypeVar

from actors.bus.mailbox import NOT_ON_THE_BUS
from actors.bus.messages.common import PROXY_RESOLVER, RESOLVER, Unreachable
from actors.bus.messages.dns import DnsServerState, DnsState
from api.bus_bridge import Bridge, checked

R = TypeVar("R")


def ask_resolvers(bridge: Bridge, message: object, kind: type[R], timeout: float = 5.0) -> list[R]:
    """Their replies. Raises `PeerUnavailable` when one that runs gives none."""
    replies = bridge.ask_all({RESOLVER: message, PROXY_RESOLVER: message}, timeout)
    second = replies[PROXY_RESOLVER]
    if isinstance(second, Unreachable) and second.reason == NOT_ON_THE_BUS:
        del replies[PROXY_RESOLVER]
    return [checked(name, reply, kind) for name, reply in replies.items()]


def added(states: Iterable[DnsState]) -> DnsState:
    """Their counters together, those of a name server that both have asked as well."""
    every = list(states)
    servers = sorted((each for state in every for each in state.servers), key=lambda each: each.name)
    return DnsState(
        sum(each.requests for each in every),
        sum(each.hits for each in every),
        sum(each.failures for each in every),
        sum(each.entries for each in every),
        sum(each.waiting for each in every),
        dict(sum((Counter(each.dropped) for each in every), Counter())),
        tuple(_added(name, list(group)) for name, group in groupby(servers, key=lambda each: each.name)),
    )


def _added(name: str, servers: list[DnsServerState]) -> DnsServerState:
    latency: Counter[int] = Counter()
    for each in servers:
        latency.update(dict(each.latency))
    return DnsServerState(
        name,
        sum(each.queries for each in servers),
        sum(each.failures for each in servers),
        sum(each.seconds for each in servers),
        tuple(sorted(latency.items())),
        any(each.silent for each in servers),
    )
