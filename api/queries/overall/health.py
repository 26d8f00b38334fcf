"""Health of the service: one word for load balancers, a report and the system status for people.

It is unhealthy only when it can't do its work: no store or no supervisor. Other problems
(`api.objects.proxies.condition`) and scarce memory or disk make it degraded.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import psutil

from actors.bus.messages.common import LAB
from actors.bus.messages.events import WebhookSenderState
from actors.bus.messages.metrics import SystemMetrics
from actors.bus.messages.supervision import RuntimeReport
from actors.compiled import runs_compiled
from actors.metrics.system import RSS
from api.objects.proxies import condition
from api.objects.proxies.proxy_cache import StoredProxy
from api.objects.proxies.proxy_service import ProxyService
from api.objects.proxies.runtime_view import NO_STATS, RuntimeQueries
from api.objects.webhooks.webhook_sender import WebhookSender
from api.store import Store, StoreError
from config import VERSION
from config.files.paths import DataDir
from config.text.formatting import size_text, timestamp_text, uptime_text

HEALTHY, DEGRADED, UNHEALTHY = "healthy", "degraded", "unhealthy"
SCARCE_PERCENT = 95.0
"""Of memory or disk in use: at this much the check is `degraded`."""

View = dict[str, Any]


class HealthService:
    """Checks of one API process. Thread-safe."""

    def __init__(
        self,
        store: Store,
        runtime: RuntimeQueries,
        proxies: ProxyService,
        webhooks: WebhookSender,
        data: DataDir,
        supervisor_pid: int | None,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._proxies = proxies
        self._webhooks = webhooks
        self._data = data
        self._supervisor_pid = supervisor_pid
        self._started_at = time.time()

    def started_at(self) -> float:
        """Since when it runs (Unix seconds)."""
        fleet = self._runtime.whole()
        return self._started_at if fleet is None else fleet.started_at

    def status(self) -> str:
        """The worst of all checks."""
        return _worst(self._checks().values())

    def report(self, scope: frozenset[str] | None) -> View:
        """Every check with its own status; a `scope` of proxies limits it to these."""
        checks = self._checks(scope)
        uptime = self._uptime(self._runtime.whole())
        resources = {
            "memory": _measured(_memory_check, ("usage", "total", "used")),
            "disk": _measured(self._disk_check, ("usage", "free")),
        }
        return {
            "status": _worst(checks.values()),
            "timestamp": timestamp_text(time.time()),
            "uptime": uptime_text(uptime),
            "uptime_seconds": int(uptime),
            "version": VERSION,
            "checks": checks | resources,
        }

    def summary(self, scope: frozenset[str] | None) -> tuple[str, list[condition.Flaw], float]:
        """The worst of all checks, everything that is wrong, and since when it runs (Unix seconds)."""
        fleet = self._runtime.whole()
        flaws = [each for each in self._flaws(fleet) if scope is None or each.id in scope]
        return _worst(self._checks(scope).values()), flaws, self._started_at if fleet is None else fleet.started_at

    def system(self) -> View:
        """What the service uses and carries, and everything that is wrong with it."""
        fleet, checks = self._runtime.whole(), self._checks()
        metrics = self._runtime.system() or _own_metrics()
        return {
            "server": {
                "status": _worst(checks.values()),
                "uptime": int(self._uptime(fleet)),
                "pid": self._supervisor_pid or os.getpid(),
                "compiled": runs_compiled(),
                "older_processes": _older_view(fleet),
                "lab": fleet is not None and LAB in fleet.actors,
                **_resource_view(metrics),
            },
            "proxy": _proxies_view(metrics, checks["proxy_service"], _wanted(self._proxies.here())),
            "network": _network_view(metrics),
            "webhooks": _sender_view(self._webhooks.sender_state()),
            "problems": [each.view() for each in self._flaws(fleet)],
        }

    def _checks(self, scope: frozenset[str] | None = None) -> dict[str, View]:
        checks = {"database": self._database_check(), "proxy_service": self._proxy_check(scope)}
        return checks if scope is not None else {**checks, "webhooks": self._webhook_check()}

    def _database_check(self) -> View:
        began = time.perf_counter()
        check = {"status": HEALTHY}
        try:
            self._store.check()
        except StoreError:
            check = {"status": UNHEALTHY, "error": "the configuration store can't be used"}
        return {**check, "response_time": f"{(time.perf_counter() - began) * 1000:.1f}ms"}

    def _proxy_check(self, scope: frozenset[str] | None) -> View:
        fleet = self._runtime.whole()
        if fleet is None:
            return {"status": UNHEALTHY, "active_proxies": 0, "error": "the supervisor does not respond"}
        proxies = [each for each in self._proxies.here() if scope is None or each.record.id in scope]
        flaws, others = condition.of_proxies(fleet, proxies), condition.of_actors(fleet)
        failed = [each.id for each in flaws if fleet.proxies[each.id].state == "failed"]
        return {
            "status": DEGRADED if flaws or others else HEALTHY,
            "active_proxies": sum(each.works for name, each in fleet.proxies.items() if scope is None or name in scope),
            "wanted_proxies": _wanted(proxies),
            "failed_proxies": failed,
            "degraded_proxies": list(dict.fromkeys(each.id for each in flaws if each.id not in failed)),
            "reasons": sorted({each.problem.reason for each in (*flaws, *others)}),
            "missing_actors": [each.id for each in others if not each.problem.serves],
        }

    def _webhook_check(self) -> View:
        failing = [each.id for each in self._webhooks.failing()]
        return {"status": DEGRADED if failing else HEALTHY, "failing": failing}

    def _disk_check(self) -> View:
        disk = psutil.disk_usage(str(self._data.path))
        return {"status": _scarcity(disk.percent), "usage": f"{disk.percent:.1f}%", "free": size_text(disk.free)}

    def _flaws(self, fleet: RuntimeReport | None) -> list[condition.Flaw]:
        failing = self._webhooks.failing()
        if fleet is None:
            return failing
        return [*condition.of_proxies(fleet, self._proxies.here()), *condition.of_actors(fleet), *failing]

    def _uptime(self, fleet: RuntimeReport | None) -> float:
        return time.time() - (self._started_at if fleet is None else fleet.started_at)


def _worst(checks: Iterable[View]) -> str:
    statuses = {check["status"] for check in checks}
    return next(status for status in (UNHEALTHY, DEGRADED, HEALTHY) if status in statuses)


def _wanted(proxies: Iterable[StoredProxy]) -> int:
    return sum(each.record.status == "active" for each in proxies)


def _measured(measure: Callable[[], View], names: tuple[str, ...]) -> View:
    """What can't be measured, as without a descriptor for /proc, is `unknown`."""
    try:
        return measure()
    except OSError as error:
        return {"status": DEGRADED, **dict.fromkeys(names, "unknown"), "error": error.strerror or str(error)}


def _memory_check() -> View:
    memory = psutil.virtual_memory()
    return {
        "status": _scarcity(memory.percent),
        "usage": f"{memory.percent:.1f}%",
        "total": size_text(memory.total),
        "used": size_text(memory.used),
    }


def _scarcity(percent: float) -> str:
    return DEGRADED if percent >= SCARCE_PERCENT else HEALTHY


def _own_metrics() -> SystemMetrics:
    """Those of this process only, while the collector does not reply."""
    memory = psutil.Process().memory_info()
    return SystemMetrics(
        cpu_percent=psutil.cpu_percent(),
        load_average=os.getloadavg(),
        memory_percent=0.0,
        memory_total=0,
        memory_used=0,
        disk_percent=0.0,
        disk_free=0,
        memory=memory.rss,
        memory_measure=RSS,
        rss=memory.rss,
        uss=memory.rss,
        vms=memory.vms,
        requests_per_second=0.0,
        bandwidth_in=0.0,
        bandwidth_out=0.0,
        total=NO_STATS,
    )


def _older_view(fleet: RuntimeReport | None) -> View | None:
    if fleet is None or not fleet.older:
        return None
    return {
        "processes": sum(map(len, fleet.older.values())),
        "connections": fleet.older_connections,
        "until": timestamp_text(fleet.older_until),
    }


def _resource_view(metrics: SystemMetrics) -> View:
    return {
        "memory": {
            "used": size_text(metrics.memory),
            "used_bytes": metrics.memory,
            "measure": metrics.memory_measure,
            "rss": size_text(metrics.rss),
            "rss_bytes": metrics.rss,
            "heap_used": size_text(metrics.uss),
            "heap_total": size_text(metrics.vms),
        },
        "cpu": {"usage": f"{metrics.cpu_percent:.1f}%", "load_average": [round(each, 2) for each in os.getloadavg()]},
    }


def _proxies_view(metrics: SystemMetrics, check: View, wanted: int) -> View:
    total = metrics.total
    requests, errors = total["requests"], total["errors"]
    return {
        "active_proxies": check["active_proxies"],
        "wanted_proxies": wanted,
        "degraded_proxies": len(check.get("degraded_proxies", ())),
        "failed_proxies": len(check.get("failed_proxies", ())),
        "total_connections": total["connections"],
        "active_connections": total.active_connections,
        "requests_per_second": round(metrics.requests_per_second, 3),
        "total_requests": requests,
        "total_errors": errors,
        "error_rate": f"{100 * errors / requests if requests else 0.0:.2f}%",
        "records_dropped": total["records_dropped"],
    }


def _network_view(metrics: SystemMetrics) -> View:
    total = metrics.total
    return {
        "bandwidth_in": f"{size_text(metrics.bandwidth_in)}/s",
        "bandwidth_out": f"{size_text(metrics.bandwidth_out)}/s",
        "bandwidth_in_bytes": metrics.bandwidth_in,
        "bandwidth_out_bytes": metrics.bandwidth_out,
        "total_bytes_in": size_text(total["bytes_in"]),
        "total_bytes_out": size_text(total["bytes_out"]),
        "bytes_in": total["bytes_in"],
        "bytes_out": total["bytes_out"],
    }


def _sender_view(state: WebhookSenderState | None) -> View | None:
    return None if state is None else {"waiting": state.waiting, "events_lost": state.lost}
