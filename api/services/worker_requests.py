"""Requests to the process of a proxy, or to each of its workers, and one reply of theirs.

A proxy with one worker is asked by its name. The workers of another one are asked by the addresses that the supervisor
knows; one that has gone in between has nothing to say, so those that came in its place are asked once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from actors.bus.mailbox import NOT_ON_THE_BUS, address_of
from actors.bus.messages.common import SUPERVISOR, Unreachable, forwarding_name
from actors.bus.messages.specs import QueryUpstreams, Upstreams, UpstreamState
from actors.bus.messages.supervision import QueryWorkers, RuntimeReport, Workers
from api.bus_bridge import Bridge, checked, is_asleep
from config.model.proxies import ProxyRecord

SUPERVISOR_TIMEOUT = 2.0
"""Seconds that the supervisor may take to reply; then the name leads to one of the workers."""
ASK_TIMEOUT = 2.0
ASKED_AT_ONCE = 16


def addresses_of(bridge: Bridge, proxies: Iterable[ProxyRecord]) -> dict[str, ProxyRecord]:
    """By address on the bus, the proxy of each process that serves one of these."""
    found: dict[str, ProxyRecord] = {}
    several = []
    for proxy in proxies:
        if proxy.workers == 1:
            found[forwarding_name(proxy.id)] = proxy
        else:
            several.append(proxy)
    known = _instances(bridge, several)
    for proxy in several:
        name = forwarding_name(proxy.id)
        found.update((address_of(name, each), proxy) for each in known.get(proxy.id, ()))
        if proxy.id not in known:
            found[name] = proxy
    return found


def older_addresses(report: RuntimeReport | None, proxies: Iterable[ProxyRecord]) -> dict[str, ProxyRecord]:
    """By address on the bus, the proxy of each process of an older program that drains."""
    older = {} if report is None else report.older
    return {address_of(forwarding_name(proxy.id), each): proxy for proxy in proxies for each in older.get(proxy.id, ())}


def _instances(bridge: Bridge, proxies: list[ProxyRecord]) -> Mapping[str, tuple[int, ...]]:
    if not proxies:
        return {}
    reply = bridge.ask(SUPERVISOR, QueryWorkers(tuple(each.id for each in proxies)), SUPERVISOR_TIMEOUT)
    return reply.instances if isinstance(reply, Workers) else {}


def ask_workers(bridge: Bridge, proxy: ProxyRecord, message: Any, timeout: float = 5.0) -> list[Any]:
    """The replies of all workers, at least one; `Unreachable` of those that don't reply."""
    addresses = list(addresses_of(bridge, [proxy]))
    replies = _ask(bridge, addresses, message, timeout)
    known = {address: reply for address, reply in replies.items() if not _has_gone(reply)}
    if proxy.workers == 1 or len(known) == len(replies):
        return list(replies.values())
    now = list(addresses_of(bridge, [proxy]))
    again = _ask(bridge, [each for each in now if each not in known], message, timeout)
    return [*known.values(), *again.values()] or list(replies.values())


def request_workers(bridge: Bridge, proxy: ProxyRecord, message: Any, kind: type[Any]) -> list[Any]:
    """The replies of all workers, which are of this kind; none of a proxy that sleeps.

    Raises `PeerUnavailable` when one doesn't reply so.
    """
    replies = ask_workers(bridge, proxy, message)
    return [checked(forwarding_name(proxy.id), each, kind) for each in replies if not is_asleep(each)]


def _has_gone(reply: Any) -> bool:
    return isinstance(reply, Unreachable) and reply.reason == NOT_ON_THE_BUS


def _ask(bridge: Bridge, addresses: list[str], message: Any, timeout: float) -> dict[str, Any]:
    if len(addresses) == 1:
        return {addresses[0]: bridge.ask(addresses[0], message, timeout)}
    return bridge.ask_all(dict.fromkeys(addresses, message), timeout)


def united_upstreams(replies: Iterable[Upstreams]) -> Upstreams:
    """The states of the same upstreams as several workers know them: what they count is added."""
    by_name: dict[str, list[UpstreamState]] = {}
    for state in (each for reply in replies for each in reply.states):
        by_name.setdefault(state.name, []).append(state)
    return Upstreams(tuple(map(_united_upstream, by_name.values())))


def _united_upstream(states: list[UpstreamState]) -> UpstreamState:
    """It is up if one worker finds it so, and down if none does and one finds that."""
    if len(states) == 1:
        return states[0]
    deciding = next(
        found for kind in ("up", "down", "unknown") if (found := [each for each in states if each.state == kind])
    )
    newest = max((each for each in states if each.last_error), key=lambda each: each.since, default=None)
    return UpstreamState(
        name=states[0].name,
        state=deciding[0].state,
        since=min(each.since for each in deciding),
        active=sum(each.active for each in states),
        connections=sum(each.connections for each in states),
        failures=sum(each.failures for each in states),
        bytes_in=sum(each.bytes_in for each in states),
        bytes_out=sum(each.bytes_out for each in states),
        latency=_mean_latency(states),
        last_error=None if newest is None else newest.last_error,
    )


def _mean_latency(states: list[UpstreamState]) -> float | None:
    """By uses."""
    known = [(each.latency, each.connections or 1) for each in states if each.latency is not None]
    uses = sum(number for _latency, number in known)
    return sum(latency * number for latency, number in known) / uses if known else None


def ask_upstreams(bridge: Bridge, record: ProxyRecord) -> Upstreams | None:
    """The states of an active proxy's upstreams; None when it has none, or when its process doesn't reply."""
    if record.status != "active" or not (record.upstreams or record.pool):
        return None
    replies = ask_workers(bridge, record, QueryUpstreams(), ASK_TIMEOUT)
    known = [each for each in replies if isinstance(each, Upstreams)]
    return united_upstreams(known) if len(known) > 1 else next(iter(known), None)


def ask_all_upstreams(bridge: Bridge, records: Iterable[ProxyRecord]) -> dict[str, tuple[UpstreamState, ...]]:
    """By proxy id, the states of the upstreams, as far as the proxies' processes reply; all are asked at once."""
    asked = [each for each in records if each.status == "active" and each.upstreams]
    if not asked:
        return {}
    with ThreadPoolExecutor(min(len(asked), ASKED_AT_ONCE)) as pool:
        replies = list(pool.map(lambda record: ask_upstreams(bridge, record), asked))
    return {each.id: reply.states for each, reply in zip(asked, replies, strict=True) if reply is not None}
