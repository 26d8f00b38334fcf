"""Upstream proxies between the store, where their passwords are sealed, and the processes that use them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from actors.bus.messages.specs import QueryUpstreams, Upstreams, UpstreamState
from api.bus_bridge import Bridge
from api.services.worker_requests import ask_workers, united_upstreams
from config.files.secret_box import SecretBox
from config.model.fields import InvalidProxy
from config.model.proxies import ProxyRecord, ProxyUpdate
from config.model.upstreams import ProxyUpstream, refuse_itself, replace_upstreams
from config.text.formatting import timestamp_text

ASK_TIMEOUT = 2.0
ASKED_AT_ONCE = 16


def with_upstreams(record: ProxyRecord, body: ProxyUpdate, seal: SecretBox) -> ProxyRecord:
    """`record` with the upstreams of `body`, if it names any. Raises `InvalidProxy`, `SecretBoxError`."""
    if body.upstreams is not None:
        upstreams = replace_upstreams(record.upstreams, body.upstreams, seal, ProxyUpstream)
        record = record.model_copy(update={"upstreams": upstreams})
    if record.pool is not None and record.upstreams:
        raise InvalidProxy("pool", "takes the place of upstreams, and a proxy has one of both: give upstreams as []")
    refuse_itself(record.upstreams, record.host, record.ports)
    return record


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


def upstream_states(reply: Upstreams | None) -> list[dict[str, Any]] | None:
    """`runtime.upstreams`: the state of each upstream, None when it is unknown."""
    return None if reply is None else [_state_view(state) for state in reply.states]


def exit_view(record: ProxyRecord, states: Sequence[UpstreamState] | None, pool: Mapping[str, Any] | None) -> Any:
    """`runtime.exit`: where requests leave; `pool` is the status of its pool, None where it may not be shown."""
    kind = "pool" if record.pool is not None else "upstreams" if record.upstreams else "direct"
    counts: tuple[int | None, ...] = (None, None, None)
    if pool is not None:
        counts = pool["usable"], pool["unknown"], pool["up"] + pool["down"] + pool["unknown"]
    elif states is not None and kind == "upstreams":
        found = Counter(each.state for each in states)
        counts = found["up"], found["unknown"], len(states)
    elif kind == "upstreams":
        counts = None, None, len(record.upstreams)
    return {"kind": kind, "pool": record.pool, **dict(zip(("usable", "unknown", "total"), counts, strict=True))}


def _state_view(state: UpstreamState) -> dict[str, Any]:
    return {
        "name": state.name,
        "state": state.state,
        "since": timestamp_text(state.since),
        "active_connections": state.active,
        "total_connections": state.connections,
        "failures": state.failures,
        "bytes_in": state.bytes_in,
        "bytes_out": state.bytes_out,
        "latency_ms": state.latency,
        "last_error": state.last_error,
    }
