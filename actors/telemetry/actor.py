"""The process that pushes to an OpenTelemetry collector (OTLP over HTTP): metrics now and then, records as they come.

It only asks others for what they know and owns nothing but two small files: who it is to the collector, so that series
go on after a restart, and how far it has pushed the access records. A collector that is away, slow or refuses harms
nobody else: totals are cumulative, so the next push makes up for one that was lost, and records wait in the index.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors.bus.mailbox import Answer
from actors.bus.messages.common import METRICS, SUPERVISOR
from actors.bus.messages.fleet import Fleet, QueryRuntime, SetProxyNames
from actors.bus.messages.metrics import QueryStats, QuerySystem, Stats, SystemMetrics
from actors.process import Actor, Boot
from actors.proxy_names import ProxyNames
from actors.telemetry.identity import read_identity
from actors.telemetry.metrics import Figures, export_of
from actors.telemetry.otlp_client import Collector, Outcome
from actors.telemetry.records import RecordPush, export_of_records
from actors.thread_pool import ThreadPool
from actors.throttled_log import ThrottledLog
from config.settings.telemetry import Otlp

log = logging.getLogger(__name__)

ASKED_MAX = 5.0
ERROR_PERIOD = 300.0
"""Seconds between two log lines about the same error of a push."""


@dataclass(slots=True)
class _Asked:
    """What was heard so far of what a push is made of."""

    stats: Stats | None = None
    system: SystemMetrics | None = None
    fleet: Fleet | None = None


class TelemetryActor(Actor):
    """Asks, packs and pushes; one push at a time."""

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        super().__init__(boot, sockets)
        self._settings = Otlp.model_validate(boot.settings["telemetry"]["otlp"])
        self._identity = read_identity(self.data_dir.telemetry)
        self._collector = Collector(self._settings)
        self._workers = ThreadPool(self.loop, 2)
        self._pushing = False
        self._errors = {signal: self._push_errors(signal) for signal in ("metrics", "records")}
        if self._settings.metrics:
            self.loop.call_every(float(self._settings.interval), self._begin)
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

    def receive(self, sender: str, message: Any, answer: Answer) -> None:
        """Take over names of proxies."""
        if isinstance(message, SetProxyNames):
            self._names.update(message)
        else:
            super().receive(sender, message, answer)

    def _push(self, signal: str, message: Any, done: Callable[[Outcome | None], None]) -> None:
        self._workers.submit(lambda: self._collector.push(signal, message), done)

    def _begin(self) -> None:
        if self._pushing:
            log.debug("the collector has not answered yet: one push is left out")
            return
        self._pushing = True
        asked = _Asked()
        self.mailbox.ask(METRICS, QueryStats((), detailed=True), lambda reply: self._stats(asked, reply), ASKED_MAX)

    def _stats(self, asked: _Asked, reply: Any) -> None:
        asked.stats = reply if isinstance(reply, Stats) else None
        self.mailbox.ask(METRICS, QuerySystem(), lambda reply: self._system(asked, reply), ASKED_MAX)

    def _system(self, asked: _Asked, reply: Any) -> None:
        asked.system = reply if isinstance(reply, SystemMetrics) else None
        self.mailbox.ask(SUPERVISOR, QueryRuntime(()), lambda reply: self._fleet(asked, reply), ASKED_MAX)

    def _fleet(self, asked: _Asked, reply: Any) -> None:
        asked.fleet = reply if isinstance(reply, Fleet) else None
        if asked.stats is None or asked.fleet is None:
            self._pushing = False  # the next time
            return
        figures = Figures(asked.fleet.proxies, asked.stats.proxies, asked.system, time.time())
        self._push("metrics", export_of(self._identity, figures), self._pushed)

    def _pushed(self, outcome: Outcome | None) -> None:
        self._pushing = False
        self._log_result("metrics", outcome.error if outcome is not None else "the push failed")
        if outcome is not None and outcome.error is None and self._records is not None:
            self._records.hurry()

    def _push_errors(self, signal: str) -> ThrottledLog:
        collector = f"telemetry.otlp: {self._settings.endpoint}"
        return ThrottledLog(log, f"{collector} for {signal}", ERROR_PERIOD, recovery=f"{collector} accepts {signal} again")

    def _log_result(self, signal: str, error: str | None) -> None:
        if error is None:
            self._errors[signal].recovered()
        else:
            self._errors[signal].error(f"{error}; traffic goes on", logging.WARNING)
