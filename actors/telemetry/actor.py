"""The process that pushes to an OpenTelemetry collector (OTLP over HTTP): metrics now and then, records as they come.

It queries other actors and owns only two small files: its identity for the collector, so that series go on after a
restart, and the position up to which access records are pushed. A collector that is away, slow or rejects pushes delays
no other actor: totals are cumulative, so the next push makes up for a lost one, and records wait in the index.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from typing import Any

from actors.bus.mailbox import Reply
from actors.bus.messages.common import METRICS, SUPERVISOR
from actors.bus.messages.metrics import QueryStats, QuerySystem, Stats, SystemMetrics
from actors.bus.messages.supervision import QueryRuntime, RuntimeReport, SetProxyNames
from actors.counters import ProxyNames
from actors.log_lines import ThrottledLog
from actors.process import Actor, Boot
from actors.telemetry.metrics import PushedMetrics, export_of
from actors.telemetry.otlp_client import Collector, PushOutcome, read_identity
from actors.telemetry.records import RecordPush, export_of_records
from actors.thread_pool import ThreadPool
from config.settings.groups import Otlp

log = logging.getLogger(__name__)

REPLY_MAX = 5.0
"""Seconds until a query without a reply is given up."""
ERROR_PERIOD = 300.0
"""Seconds between two log lines about the same error of a push."""


_QUERIES = ((METRICS, QueryStats((), detailed=True)), (METRICS, QuerySystem()), (SUPERVISOR, QueryRuntime(())))
"""The content of a push of metrics, one query after the other."""


class TelemetryActor(Actor):
    """Queries, packs and pushes; one push of metrics at a time."""

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        super().__init__(boot, sockets)
        self._settings = Otlp.model_validate(boot.settings["telemetry"]["otlp"])
        self._identity = read_identity(self.data_dir.telemetry)
        self._collector = Collector(self._settings)
        self._threads = ThreadPool(self.loop, 2)
        self._pushing = False
        self._errors = {signal: self._push_errors(signal) for signal in ("metrics", "records")}
        if self._settings.metrics:
            self.loop.call_every(float(self._settings.interval), self._begin_push)
        self._names = ProxyNames()
        self._records: RecordPush | None = None
        if self._settings.logs:
            file = self.data_dir.telemetry / "records.json"
            self._records = RecordPush(
                self.loop,
                self.mailbox,
                file,
                lambda rows: export_of_records(self._identity, rows, self._names),
                lambda message, done: self._push("logs", message, done),
                lambda error: self._log_result("records", error),
            )
        self.ready()

    def receive(self, sender: str, message: Any, reply: Reply) -> None:
        """Learn the names of proxies."""
        if isinstance(message, SetProxyNames):
            self._names.update(message)
        else:
            super().receive(sender, message, reply)

    def _push(self, signal: str, message: Any, done: Callable[[PushOutcome | None], None]) -> None:
        self._threads.submit(lambda: self._collector.push(signal, message), done)

    def _begin_push(self) -> None:
        if self._pushing:
            log.debug("skipping a push of metrics: the last one is still under way")
            return
        self._pushing = True
        self._query()

    def _query(self, *replies: Any) -> None:
        if len(replies) == len(_QUERIES):
            self._push_metrics(*replies)
            return
        actor, query = _QUERIES[len(replies)]
        self.mailbox.ask(actor, query, lambda reply: self._query(*replies, reply), REPLY_MAX)

    def _push_metrics(self, stats: Any, system: Any, fleet: Any) -> None:
        if not isinstance(stats, Stats) or not isinstance(fleet, RuntimeReport):
            self._pushing = False  # with the next push
            return
        system = system if isinstance(system, SystemMetrics) else None
        export = export_of(self._identity, PushedMetrics(fleet.proxies, stats.proxies, system, time.time()))
        self._push("metrics", export, self._on_pushed)

    def _on_pushed(self, outcome: PushOutcome | None) -> None:
        self._pushing = False
        self._log_result("metrics", outcome.error if outcome is not None else "the push failed")
        if outcome is not None and outcome.error is None and self._records is not None:
            self._records.retry_now()

    def _push_errors(self, signal: str) -> ThrottledLog:
        collector = f"telemetry.otlp: {self._settings.endpoint}"
        return ThrottledLog(
            log, f"{collector} for {signal}", ERROR_PERIOD, recovery=f"{collector} accepts {signal} again"
        )

    def _log_result(self, signal: str, error: str | None) -> None:
        if error is None:
            self._errors[signal].recovered()
        else:
            self._errors[signal].error(f"{error}; traffic goes on", logging.WARNING)
