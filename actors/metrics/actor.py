"""The metrics collector's process: it hears all counters, keeps the totals and answers for them and for the machine."""

from __future__ import annotations

import logging
import socket
import sqlite3
from typing import Any

import psutil

from actors.bus.events import Subscription, event_topic, new_event
from actors.bus.mailbox import Answer, refuse
from actors.bus.messages import (
    Counters,
    Done,
    Failed,
    ForgetAccounts,
    ForgetProxy,
    QueryStats,
    QuerySystem,
    QueryUsage,
    ResetUsage,
    SetGroup,
    Stats,
    SystemFigures,
    TellUsage,
    Usage,
)
from actors.metrics.alerts import JUDGE_PERIOD, Alerts
from actors.metrics.system import Machine, Rates
from actors.metrics.totals import Totals
from actors.metrics.usage import UsageBook
from actors.process import Actor, Boot
from config.groups import Alerts as AlertSettings

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
        self._usage = UsageBook(self.data_dir.metrics)
        self._alerts = Alerts(self.data_dir.metrics, AlertSettings.model_validate(boot.params.get("alerts", {})))
        self._alerts.begin(self._totals.stats())
        self._rates = Rates(self._totals)
        self._machine = Machine(self.run_dir, self.data_dir)
        self._forgotten: dict[str, None] = {}
        self._save_due = False
        self._subscription = Subscription(self.loop, self.context, self.run_dir.events_out, ("counters.",), self._take)
        self.loop.call_every(PERIOD, self._tick)
        self.loop.call_every(JUDGE_PERIOD, self._judge)
        self.ready()

    def receive(self, sender: str, message: Any, answer: Answer) -> None:
        """Answer for totals and figures; forget what was deleted."""
        if isinstance(message, QueryStats):
            answer(Stats(self._totals.stats(message.proxy_ids)))
        elif isinstance(message, QuerySystem):
            answer(self._figures())
        elif isinstance(message, TellUsage):
            self._take_usage(message, answer)
        elif isinstance(message, QueryUsage):
            answer(Usage(self._usage.usage(message.proxy_id)))
        elif isinstance(message, (ResetUsage, ForgetAccounts)):
            self._change_usage(message, answer)
        elif isinstance(message, SetGroup):
            self._set_group(message)
            answer(Done())
        elif isinstance(message, ForgetProxy):
            self._forget(message.proxy_id)
        else:
            refuse(sender, message, answer)

    def _take_usage(self, message: TellUsage, answer: Answer) -> None:
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
            log.error("what accounts have used can't be saved: %s", error)

    def _change_usage(self, message: ResetUsage | ForgetAccounts, answer: Answer) -> None:
        try:
            if isinstance(message, ResetUsage):
                self._usage.reset(message.proxy_id, message.account_id)
            else:
                self._usage.forget(message.proxy_id, message.account_ids)
        except sqlite3.Error as error:
            log.error("usage of %s can't be saved: %s", message.proxy_id, error)
            answer(Failed(str(error)))
            return
        answer(Done())

    def close(self) -> None:
        """Save, and close the file, too."""
        self._subscription.close()
        self._save()
        self._save_usage()
        super().close()
        self._totals.close()
        self._alerts.close()
        self._usage.close()

    def _take(self, _topic: str, message: Any) -> None:
        if isinstance(message, Counters) and message.proxy_id not in self._forgotten:
            self._totals.take(message)

    def _forget(self, proxy_id: str) -> None:
        """Its process may drain for a while and go on counting: that is not listened to any more."""
        self._forgotten[proxy_id] = None
        if len(self._forgotten) > FORGOTTEN_REMEMBERED:
            del self._forgotten[next(iter(self._forgotten))]
        try:
            self._totals.forget(proxy_id)
            self._usage.forget(proxy_id)
        except sqlite3.Error as error:
            log.error("the figures of %s stay on disk: %s", proxy_id, error)

    def _tick(self) -> None:
        self._rates.sample()
        self._machine.sample()
        self._save()

    def _set_group(self, message: SetGroup) -> None:
        if message.name == "alerts":
            self._alerts.settings = AlertSettings.model_validate(message.settings)

    def _judge(self) -> None:
        """Say what has become of error rates."""
        try:
            happened = self._alerts.judge(self._totals.stats())
        except sqlite3.Error as error:
            log.error("error rates are not judged: %s", error)
            return
        for kind, data in happened:
            event = new_event(kind, data)
            self.events.publish(event_topic(event), event)

    def _save(self) -> None:
        try:
            self._totals.save()
        except sqlite3.Error as error:
            log.error("the totals can't be saved: %s", error)

    def _figures(self) -> SystemFigures:
        system, ours = psutil.virtual_memory(), self._machine.memory()
        disk_percent, disk_free = self._machine.disk()
        requests, inward, outward = self._rates.per_second()
        return SystemFigures(
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
            requests_per_second=requests,
            bandwidth_in=inward,
            bandwidth_out=outward,
            total=self._totals.total(),
        )
