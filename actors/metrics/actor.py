"""The metrics collector's process: it hears all counters, keeps the totals and answers for them and for the machine."""

from __future__ import annotations

import logging
import socket
import sqlite3
import time
from collections.abc import Collection
from typing import Any

import psutil

from actors.bus.events import Subscription, event_topic, new_event
from actors.bus.mailbox import Answer, refuse
from actors.bus.messages.accounts import DropAccountUsage, QueryUsage, ReportUsage, ResetUsage, Usage
from actors.bus.messages.common import SUPERVISOR, Done, Failed, Listening
from actors.bus.messages.events import Event
from actors.bus.messages.fleet import SetProxyNames
from actors.bus.messages.metrics import (
    Counters,
    DropProxyMetrics,
    QueryMetrics,
    QueryRealtime,
    QueryStats,
    QuerySystem,
    Realtime,
    Stats,
    SystemMetrics,
)
from actors.metrics.account_usage import UsageLedger
from actors.metrics.alerts import JUDGE_PERIOD, Alerts
from actors.metrics.incremental_read import Reading, read_in_slices
from actors.metrics.live_feed import PROXY, SYSTEM, LiveFeed, event_payload, figures_payload, proxy_fields
from actors.metrics.series_writer import SeriesWriter
from actors.metrics.system import MEMORY, Machine
from actors.metrics.totals import Totals
from actors.process import Actor, Boot
from actors.proxy_names import ProxyNames
from actors.throttled_log import ThrottledLog
from config.model.events import checked
from config.settings.groups import Alerts as AlertSettings
from config.settings.types import tcp_parts

log = logging.getLogger(__name__)

PERIOD = 1.0
SAVED_AFTER = 0.1
"""Seconds until what accounts have used is on disk, so that what several proxies tell goes there together."""
FORGOTTEN_REMEMBERED = 1_000


class MetricsActor(Actor):
    """Owner of the totals and of what accounts have used."""

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        super().__init__(boot, sockets)
        self._totals = Totals(self.data_dir.metrics)
        self._usage = UsageLedger(self.data_dir.metrics)
        self._history = SeriesWriter(self._totals)
        self._alerts = Alerts(self.data_dir.metrics, AlertSettings.model_validate(boot.settings["alerts"]))
        self._alerts.begin(self._totals.stats())
        self._machine = Machine(self.run_dir, self.data_dir)
        self._disk = ThrottledLog(log, "cannot save totals and series")
        self._forgotten: dict[str, None] = {}
        self._names = ProxyNames()
        self._save_due = False
        address, clients = boot.settings["metrics"]["publish"], boot.settings["metrics"]["curve_clients"]
        self._public = LiveFeed(self.loop, self.context, address, clients, self.data_dir.curve_key, self._tell_where)
        heard = ("counters.", "events.")
        self._subscription = Subscription(self.loop, self.context, self.run_dir.events_out, heard, self._take)
        self.loop.call_every(PERIOD, self._tick)
        self.loop.call_every(JUDGE_PERIOD, self._judge)
        self.ready()

    def _tell_where(self, endpoint: str) -> None:
        """Subscribers come to a port that nobody has named, if that is 0: the guard has to know it."""
        found = tcp_parts(endpoint)
        if found is not None:
            self.mailbox.tell(SUPERVISOR, Listening(*found))

    def receive(self, sender: str, message: Any, answer: Answer) -> None:
        """Answer for totals and figures; forget what was deleted."""
        if isinstance(message, QueryStats):
            now = self._totals.now
            answer(Stats(self._totals.stats(message.proxy_ids, message.detailed, message.since), now))
        elif isinstance(message, QuerySystem):
            answer(self._figures())
        elif isinstance(message, QueryRealtime):
            answer(self._realtime(message.proxy_ids, self._totals.active(), message.of_one))
        elif isinstance(message, QueryMetrics):
            self._tell_series(message, answer)
        elif isinstance(message, ReportUsage):
            self._take_usage(message, answer)
        elif isinstance(message, QueryUsage):
            answer(Usage(self._usage.usage(message.proxy_id)))
        elif isinstance(message, (ResetUsage, DropAccountUsage)):
            self._change_usage(message, answer)
        elif isinstance(message, DropProxyMetrics):
            self._forget(message.proxy_id)
        elif isinstance(message, SetProxyNames):
            self._names.update(message)
        else:
            refuse(sender, message, answer)

    def _take_usage(self, message: ReportUsage, answer: Answer) -> None:
        known = message.proxy_id not in self._forgotten
        totals = self._usage.take(message) if known else {}
        if message.final:
            self._save_usage()
        elif not self._save_due:
            self._save_due = True
            self.loop.call_later(SAVED_AFTER, self._save_usage)
        answer(Usage(totals))

    def _save_usage(self) -> None:
        self._save_due = False
        try:
            self._usage.save()
        except sqlite3.Error as error:
            log.error("cannot save account usage: %s", error)

    def _change_usage(self, message: ResetUsage | DropAccountUsage, answer: Answer) -> None:
        try:
            if isinstance(message, ResetUsage):
                self._usage.reset(message.proxy_id, message.account_id)
            else:
                self._usage.forget(message.proxy_id, message.account_ids)
        except sqlite3.Error as error:
            log.error("cannot save account usage of %s: %s", message.proxy_id, error)
            answer(Failed(str(error)))
            return
        answer(Done())

    def close(self) -> None:
        """Save, and close the file, too."""
        self._subscription.close()
        self._public.close()
        self._save()
        self._save_usage()
        super().close()
        self._totals.close()
        self._alerts.close()
        self._usage.close()

    def _take(self, topic: str, message: Any) -> None:
        if isinstance(message, Event):
            self._public.say(topic, event_payload(message))
        elif isinstance(message, Counters) and message.proxy_id not in self._forgotten:
            self._history.take(message)

    def _forget(self, proxy_id: str) -> None:
        """Its process may drain for a while and go on counting: that is not listened to any more."""
        self._forgotten[proxy_id] = None
        self._history.forget(proxy_id)
        if len(self._forgotten) > FORGOTTEN_REMEMBERED:
            del self._forgotten[next(iter(self._forgotten))]
        try:
            self._totals.forget(proxy_id)
            self._usage.forget(proxy_id)
        except sqlite3.Error as error:
            log.error("cannot delete metrics of %s: %s", proxy_id, error)

    def _tick(self) -> None:
        self._machine.sample()
        self._history.tick(self._machine.cpu_percent, self._machine.memory_percent())
        self._save()
        self._publish()

    def _publish(self) -> None:
        """What is known of this second goes to whoever has subscribed."""
        active = self._totals.active()
        if self._public.hears_system():
            self._public.say(SYSTEM, figures_payload(self._realtime(None, active), self._totals.total()))
        heard = self._public.heard_of(self._totals.proxy_ids())
        for proxy_id, stats in (self._totals.stats(heard) if heard else {}).items():
            about = proxy_fields(proxy_id, self._names.get(proxy_id))
            self._public.say(PROXY + proxy_id, figures_payload(self._realtime((proxy_id,), active, True), stats, about))

    def settings_changed(self, groups: Collection[str]) -> None:
        """See `Actor`: limits of error rates, and who may subscribe."""
        if "alerts" in groups:
            self._alerts.settings = AlertSettings.model_validate(self.settings["alerts"])
        if "metrics" in groups:
            self._public.set_clients(self.settings["metrics"]["curve_clients"])

    def _judge(self) -> None:
        """Say what has become of error rates."""
        for kind, data in self._alerts.judge(self._totals.stats()):
            event = new_event(kind, checked(kind, data))
            self.events.publish(event_topic(event), event)
        try:
            self._alerts.save()
        except sqlite3.Error as error:
            self._disk.error(error)

    def _save(self) -> None:
        """Without a disk everything goes on in memory, and is saved when there is one again."""
        try:
            self._totals.save()
        except sqlite3.Error as error:
            self._disk.error(error)
            self._history.not_stored()
        else:
            self._disk.recovered()

    def _realtime(self, proxy_ids: tuple[str, ...] | None, active: dict[str, int], of_one: bool = False) -> Realtime:
        open_now = sum(active.get(each, 0) for each in (active if proxy_ids is None else proxy_ids))
        metrics = {
            **self._history.figures(proxy_ids),
            "active_connections": open_now,
            "memory_usage": 100 * self._totals.resident(proxy_ids or ()) / MEMORY,
        }
        if not of_one:
            metrics |= {"cpu_usage": self._machine.cpu_percent, "memory_usage": self._machine.memory_percent()}
        return Realtime(time.time(), metrics)

    def _tell_series(self, question: QueryMetrics, answer: Answer) -> None:
        """What was counted in this second isn't stored yet, so store it first."""
        self._history.ask()
        self._save()
        self._go_on(read_in_slices(self._history.series, question, time.time()), answer)

    def _go_on(self, reading: Reading, answer: Answer) -> None:
        """One slice, and the next in the next turn."""
        try:
            next(reading)
        except StopIteration as done:
            answer(done.value)
        except sqlite3.Error as error:
            log.error("cannot read the series: %s", error)
            answer(Failed(str(error)))
        else:
            self.loop.call_soon(lambda: self._go_on(reading, answer))

    def _figures(self) -> SystemMetrics:
        system, ours = psutil.virtual_memory(), self._machine.memory()
        disk_percent, disk_free = self._machine.disk()
        rates = self._history.figures()
        return SystemMetrics(
            cpu_percent=self._machine.cpu_percent,
            load_average=self._machine.load_average(),
            memory_percent=system.percent,
            memory_total=system.total,
            memory_used=system.used,
            disk_percent=disk_percent,
            disk_free=disk_free,
            rss=ours.rss,
            uss=ours.uss,
            vms=ours.vms,
            requests_per_second=rates["requests_per_second"],
            bandwidth_in=rates["bandwidth_in"],
            bandwidth_out=rates["bandwidth_out"],
            total=self._totals.total(),
        )
