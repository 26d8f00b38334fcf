"""The views of proxies in the API: in lists, alone, and without the runtime state."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from actors.bus.messages.metrics import ProxyStats
from actors.bus.messages.specs import Upstreams, UpstreamState
from actors.bus.messages.supervision import Runtime, WorkerRuntime
from actors.counters import COUNTERS
from api.engine.records import view_of
from api.objects.proxies.condition import problem_view
from api.objects.proxies.proxy_cache import StoredProxy
from api.objects.proxies.runtime_view import NO_STATS, RuntimeQueries
from config.model.proxies import ProxyRecord
from config.model.webhooks import masked_url
from config.text.formatting import size_text, timestamp_text, uptime_text

BRIEF = ("id", "name", "host", "port", "protocol", "status", "tags", "created_at", "updated_at")
"""Fields of the configuration that a list has."""
_MOMENTS = ("created_at", "updated_at")
RUNNING_STATES = ("running", "degraded", "draining")


def listed(runtime: RuntimeQueries, proxies: Sequence[StoredProxy]) -> list[dict[str, Any]]:
    """The views in lists: the short fields of `detail`."""
    runtimes, stats = runtime.runtimes(), runtime.stats()
    return [
        proxy.once(_listed_at_rest)
        if _is_at_rest(proxy, runtimes, stats)
        else {**proxy.once(_brief), **_present(proxy, _runtime_of(proxy, runtimes), stats)}
        for proxy in proxies
    ]


def detail(runtime: RuntimeQueries, proxy: StoredProxy) -> dict[str, Any]:
    """The whole view: configuration, runtime state and totals."""
    runtimes, stats = runtime.runtimes(), runtime.stats()
    actual = _runtime_of(proxy, runtimes)
    present = _present(proxy, actual, stats)
    if actual is not None:
        present["runtime"]["workers"] = _workers(actual)
    return {**created(proxy), **present}


def created(proxy: StoredProxy) -> dict[str, Any]:
    """The configuration alone, without passwords; it is made once and shared."""
    return proxy.once(_configuration)


def _configuration(proxy: StoredProxy) -> dict[str, Any]:
    return configuration(proxy.record)


def configuration(record: ProxyRecord) -> dict[str, Any]:
    """Every field of a proxy that a response has; there is no password in it."""
    return {**view_of(record), "port": record.ports.written, "accounts": [view_of(each) for each in record.accounts]}


def _brief(proxy: StoredProxy) -> dict[str, Any]:
    record = proxy.record
    view = {name: getattr(record, name) for name in BRIEF}
    return {**view, "port": record.ports.written, **{name: timestamp_text(view[name]) for name in _MOMENTS}}


def with_backend_secret(view: dict[str, Any], proxy: StoredProxy) -> dict[str, Any]:
    """`view` with the secret of the back end, if the proxy shows it."""
    if proxy.backend_secret is None:
        return view
    backend = {**view["auth"]["backend"], "secret": proxy.backend_secret}
    return {**view, "auth": {**view["auth"], "backend": backend}}


def with_masked_backend(view: dict[str, Any]) -> dict[str, Any]:
    """`view` for those who may not change the proxy: path and query of the back end's URL may hold a credential."""
    backend = view["auth"].get("backend")
    if backend is None:
        return view
    return {**view, "auth": {**view["auth"], "backend": {**backend, "url": masked_url(backend["url"])}}}


def _present(proxy: StoredProxy, runtime: Runtime | None, stats: Mapping[str, ProxyStats]) -> dict[str, Any]:
    """The actual state."""
    return {
        "auth_enabled": proxy.record.auth.enabled,
        "runtime": _runtime(runtime),
        "stats": _stats(stats.get(proxy.record.id, NO_STATS), runtime),
    }


def _is_at_rest(proxy: StoredProxy, runtimes: Mapping[str, Runtime] | None, stats: Mapping[str, ProxyStats]) -> bool:
    """Whether it is inactive, without a process and without totals; then its view never changes."""
    proxy_id = proxy.record.id
    unknown = runtimes is not None and proxy_id not in runtimes and proxy_id not in stats
    return unknown and proxy.record.status == "inactive"


def _listed_at_rest(proxy: StoredProxy) -> dict[str, Any]:
    return {**proxy.once(_brief), **_present(proxy, _runtime_of(proxy, {}), {})}


def _runtime_of(proxy: StoredProxy, runtimes: Mapping[str, Runtime] | None) -> Runtime | None:
    """A proxy of which the supervisor knows nothing is stopped, or is just about to be started."""
    if runtimes is None:
        return None
    known = runtimes.get(proxy.record.id)
    if known is not None:
        return known
    state = "stopped" if proxy.record.status == "inactive" else "starting"
    return Runtime(state, None, proxy.record.updated_at, 0, None)


def _runtime(runtime: Runtime | None) -> dict[str, Any] | None:
    if runtime is None:
        return None
    return {
        "state": runtime.state,
        "pid": runtime.pid,
        "since": timestamp_text(runtime.since),
        "restarts": runtime.restarts,
        "error": runtime.error,
        "problems": [problem_view(each) for each in runtime.problems],
    }


def _workers(runtime: Runtime) -> list[dict[str, Any]]:
    """`runtime.workers`. That of a proxy with one is all of its process; without a process there is none."""
    if runtime.state in ("stopped", "sleeping"):
        return []
    state = "running" if runtime.runs else runtime.state
    alone = WorkerRuntime(
        0, runtime.pid, state, runtime.since, runtime.restarts, None if runtime.runs else runtime.error
    )
    return [{**asdict(each), "since": timestamp_text(each.since)} for each in runtime.workers or (alone,)]


def _stats(stats: ProxyStats, runtime: Runtime | None) -> dict[str, Any]:
    running = runtime is not None and runtime.state in RUNNING_STATES
    if stats is NO_STATS and not running:
        return _IDLE_STATS
    return _totals(stats, max(0.0, time.time() - runtime.since) if runtime is not None and running else 0.0)


def _totals(stats: ProxyStats, uptime: float) -> dict[str, Any]:
    return {
        **{row.view: stats[row.name] for row in COUNTERS if row.view},
        "active_connections": stats.active_connections,
        "uptime": uptime_text(uptime),
        "uptime_seconds": int(uptime),
        "bytes_transferred": size_text(stats["bytes_in"] + stats["bytes_out"]),
        "refusals": stats.refusals,
        "reported": stats.reported,
        "last_request": timestamp_text(stats.last_request) if stats.last_request else None,
    }


_IDLE_STATS = _totals(NO_STATS, 0.0)
"""Of all proxies that don't run and have no totals."""


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
