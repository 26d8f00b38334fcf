"""The process that pushes to an OpenTelemetry collector (OTLP over HTTP), once every `telemetry.otlp.interval`.

It only asks others for what they know and owns nothing but its place: who it is to the collector, so that series go on
after a restart. A collector that is away, slow or refuses harms nobody else: totals are cumulative, so the next push
makes up for one that was lost.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.bus.messages import METRICS, SUPERVISOR, DescribeFleet, Fleet, QueryStats, QuerySystem, Stats, SystemFigures
from actors.process import Actor, Boot
from actors.telemetry.metrics import Figures, Identity, export_of
from actors.telemetry.sending import Collector, Outcome
from actors.workers import Workers
from config.paths import private_directory
from config.telemetry import Otlp

log = logging.getLogger(__name__)

ASKED_MAX = 5.0
COMPLAINT_PERIOD = 300.0


@dataclass(slots=True)
class _Asked:
    """What was heard so far of what a push is made of."""

    stats: Stats | None = None
    system: SystemFigures | None = None
    fleet: Fleet | None = None


class TelemetryActor(Actor):
    """Asks, packs and pushes; one push at a time."""

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        super().__init__(boot, sockets)
        self._settings = Otlp.model_validate(boot.params["otlp"])
        self._identity = read_identity(self.data_dir.telemetry)
        self._collector = Collector(self._settings)
        self._workers = Workers(self.loop, 1)
        self._pushing = False
        self._complaint: tuple[float, str] | None = None
        if self._settings.metrics:
            self.loop.call_every(float(self._settings.interval), self._begin)
        self.ready()

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
        asked.system = reply if isinstance(reply, SystemFigures) else None
        self.mailbox.ask(SUPERVISOR, DescribeFleet(()), lambda reply: self._fleet(asked, reply), ASKED_MAX)

    def _fleet(self, asked: _Asked, reply: Any) -> None:
        asked.fleet = reply if isinstance(reply, Fleet) else None
        if asked.stats is None or asked.fleet is None:
            self._pushing = False  # the next time
            return
        figures = Figures(asked.fleet.proxies, asked.stats.proxies, asked.system, time.time())
        self._workers.submit(lambda: self._collector.push("metrics", export_of(self._identity, figures)), self._pushed)

    def _pushed(self, outcome: Outcome | None) -> None:
        self._pushing = False
        self._say(outcome.error if outcome is not None else "the push failed")

    def _say(self, error: str | None) -> None:
        """What goes wrong, when it begins, when it is another thing, and now and then while it lasts; and its end."""
        before = self._complaint
        if error is None:
            self._complaint = None
            if before is not None:
                log.info("telemetry.otlp: %s takes what is pushed again", self._settings.endpoint)
        elif before is None or before[1] != error or self.loop.now - before[0] > COMPLAINT_PERIOD:
            self._complaint = (self.loop.now, error)
            log.warning("telemetry.otlp: %s: %s; traffic goes on", self._settings.endpoint, error)


def read_identity(folder: Path) -> Identity:
    """Who we are to the collector, made at the first start. Raises `OSError`, `config.paths.PathError`."""
    file = private_directory(folder) / "identity.json"
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
        return Identity(str(known["instance_id"]), float(known["since"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):  # none yet, or not whole: begin anew
        made = Identity(str(uuid.uuid4()), time.time())
    fresh = file.with_suffix(".new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as opened:
        json.dump({"instance_id": made.instance_id, "since": made.since}, opened)
    fresh.rename(file)
    return made
