"""The metrics collector's process: it receives all counters, keeps the totals and answers queries."""

from __future__ import annotations

import logging
import socket
import sqlite3
import time
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import psutil

from actors.bounded import keep
from actors.bus.events import Subscription, event_topic, new_event
from actors.bus.mailbox import Reply, refuse
from actors.bus.messages.accounts import (
    DropAccountUsage,
    QueryOpen,
    QueryReached,
    QueryUsage,
    ReportDeniedNames,
    ResetUsage,
)
from actors.bus.messages.cluster import NoteFleet
from actors.bus.messages.common import QUOTA_OFFLINE, SUPERVISOR, Done, Failed, Listening
from actors.bus.messages.events import Event
from actors.bus.messages.metrics import (
    Counters,
    DropProxyMetrics,
    QueryMetricSeries,
    QueryRealtime,
    QueryStats,
    QuerySystem,
    Realtime,
    Stats,
    SystemMetrics,
)
from actors.bus.messages.supervision import SetProxyNames
from actors.counters import ProxyNames
from actors.log_lines import ThrottledLog
from actors.metrics.alerts import EVALUATION_PERIOD, ErrorRateAlerts
from actors.metrics.catalogue import Reading, read_in_batches
from actors.metrics.denied_names import DeniedNameNotices
from actors.metrics.live_feed import PROXY, SYSTEM, LiveFeed, event_payload, metrics_payload, proxy_fields
from actors.metrics.recent import UpstreamUses
from actors.metrics.series_writer import SeriesWriter
from actors.metrics.system import MEMORY, MachineMetrics
from actors.metrics.totals import CounterTotals
from actors.metrics.usage.account_usage import FIGURES
from actors.metrics.usage.service import PUBLISHED_AFTER, UsageService
from actors.process import Actor, Boot, view
from config import OperatorError
from config.files.secret_box import secret_box_of
from config.model.subscriptions import checked
from config.net.addresses import tcp_parts

log = logging.getLogger(__name__)

PERIOD = 1.0
POOLS_PERIOD = 5.0
FLEET_PERIOD = 2.0
"""Seconds after which it is seen whether this installation is a node: well before one that has left is cut off."""
ENDED_MAX = 1_000
DELETED_MAX = 1_000
"""Deleted proxies whose reports are ignored: their processes may drain for a while and go on counting."""


class MetricsActor(Actor):
    """Owner of the totals and of what accounts have used."""

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        super().__init__(boot, sockets)
        self._totals = CounterTotals(self.data_dir.metrics)
        self._series = SeriesWriter(self._totals)
        self._usage = UsageService(
            self.loop,
            self.data_dir.metrics,
            self.run_dir.state,
            self._publish_event,
            self._find_fleet,
            self._account_used,
        )
        self._usage.set_warning(boot.settings["alerts"]["quota_warning"])
        self._usage.set_quota_offline(boot.settings[QUOTA_OFFLINE])
        self._node_file: tuple[int, int] | None = None
        self._node_errors = ThrottledLog(log, "cannot report the usage of accounts to the fleet")
        self._find_fleet()
        self._alerts = ErrorRateAlerts(self.data_dir.metrics, view(boot.settings["alerts"]))
        self._alerts.begin(self._totals.stats())
        self._machine = MachineMetrics(self.run_dir, self.data_dir)
        self._save_errors = ThrottledLog(log, "cannot save totals and series")
        self._deleted: dict[str, None] = {}
        self._ended: dict[int, None] = {}
        """Instances whose last counters have come: what they published before may come behind them."""
        self._names = ProxyNames()
        self._denied_names = DeniedNameNotices(
            self.loop, self._publish_event, lambda each: (self._names.get(each) or ("", 0))[0], PUBLISHED_AFTER
        )
        address, clients = boot.settings["metrics"]["publish"], boot.settings["metrics"]["curve_clients"]
        self._feed = LiveFeed(self.loop, self.context, address, clients, self.data_dir.curve_key, self._report_listener)
        topics = ("counters.", "events.")
        self._subscription = Subscription(self.loop, self.context, self.run_dir.events_out, topics, self._on_published)
        self.loop.call_every(PERIOD, self._tick)
        self.loop.call_every(EVALUATION_PERIOD, self._evaluate_alerts)
        self._upstreams = UpstreamUses(self.run_dir.pools, self.run_dir.state, self._series.recent)
        self.loop.call_every(POOLS_PERIOD, lambda: self._upstreams.sample(time.time()))
        self.loop.call_every(FLEET_PERIOD, self._find_fleet)
        self.ready()

    def _find_fleet(self) -> None:
        """Report usage to the fleet's database while this is a node, which it may become or cease to be.

        Not before there are accounts: what reports takes as much memory as all the rest.
        """
        try:
            status = self.data_dir.node.stat()
            found = status.st_ino, status.st_mtime_ns
        except OSError:
            found = None
        if found == self._node_file or (found is not None and not self._has_accounts()):
            return
        if found is None:
            self._usage.leave()
        else:
            try:
                self._join()
            except (OperatorError, sqlite3.Error) as error:
                self._node_errors.error(error)
                return
        self._node_file = found

    def _has_accounts(self) -> bool:
        from actors.accounts.table import AccountTable, TableError

        try:
            with closing(AccountTable(self.data_dir.fleet)) as table:
                return self._usage.is_used or table.revision[0] > 0
        except TableError as error:
            log.debug("it is not known whether there are accounts: %s", error)
            return True

    def _join(self) -> None:
        from actors.cluster.database import Database
        from actors.cluster.identity import identity_of

        identity = identity_of(self.data_dir, secret_box_of(self.data_dir))
        if identity is not None:
            self._usage.follow(Database(identity.dsn, identity.fleet), identity.id, identity.role == "edge")

    def _report_listener(self, endpoint: str) -> None:
        """The egress guard has to know the port, which port 0 leaves to the kernel."""
        found = tcp_parts(endpoint)
        if found is not None:
            self.mailbox.tell(SUPERVISOR, Listening(*found))

    def receive(self, sender: str, message: Any, reply: Reply) -> None:
        """Answer queries, and drop the metrics of deleted proxies."""
        if isinstance(message, QueryStats):
            now = self._totals.now
            reply(Stats(self._totals.stats(message.proxy_ids, message.detailed, message.since), now))
        elif isinstance(message, QuerySystem):
            reply(self._system_metrics())
        elif isinstance(message, QueryRealtime):
            found = self._realtime(message.proxy_ids, self._totals.active(), message.of_one)
            found = self._with_recent(found, message) if message.recent or message.busy else found
            reply(self._with_weights(found, message.proxy_ids) if message.to_merge else found)
        elif isinstance(message, QueryMetricSeries):
            self._read_series(message, reply)
        elif isinstance(message, (QueryUsage, QueryReached, QueryOpen, ResetUsage, DropAccountUsage)):
            self._usage.receive(message, reply)
        elif isinstance(message, NoteFleet):
            self._usage.note_fleet(message)
            reply(Done())
        elif isinstance(message, ReportDeniedNames):
            self._denied_names.receive(message)
            reply(Done())
        elif isinstance(message, Counters):
            self._take_counters(message)
            keep(self._ended, message.instance, None, ENDED_MAX)
            reply(Done())
        elif isinstance(message, DropProxyMetrics):
            self._drop_proxy(message.proxy_id)
        elif isinstance(message, SetProxyNames):
            self._names.update(message)
        else:
            refuse(sender, message, reply)

    def close(self) -> None:
        """See `Actor`; what is not saved yet is saved."""
        self._subscription.close()
        self._feed.close()
        self._denied_names.close()
        self._save()
        self._usage.close()
        super().close()
        self._totals.close()
        self._alerts.close()

    def _on_published(self, topic: str, message: Any) -> None:
        if isinstance(message, Event):
            self._feed.publish(topic, event_payload(message))
        elif isinstance(message, Counters) and message.instance not in self._ended:
            self._take_counters(message)

    def _take_counters(self, counters: Counters) -> None:
        if counters.proxy_id not in self._deleted:
            self._series.update(counters)

    def _drop_proxy(self, proxy_id: str) -> None:
        keep(self._deleted, proxy_id, None, DELETED_MAX)
        self._series.forget(proxy_id)
        try:
            self._totals.forget(proxy_id)
        except sqlite3.Error as error:
            log.error("cannot delete metrics of %s: %s", proxy_id, error)

    def _tick(self) -> None:
        self._machine.sample()
        self._series.tick(self._machine.cpu_percent, self._machine.memory_percent())
        self._save()
        self._publish()

    def _publish(self) -> None:
        """Publish the metrics of this second that are subscribed to."""
        active = self._totals.active()
        if self._feed.system_wanted:
            self._feed.publish(SYSTEM, metrics_payload(self._realtime(None, active), self._totals.total()))
        wanted = self._feed.wanted_of(self._totals.proxy_ids())
        for proxy_id, stats in (self._totals.stats(wanted) if wanted else {}).items():
            about = proxy_fields(proxy_id, self._names.get(proxy_id))
            payload = metrics_payload(self._realtime((proxy_id,), active, True), stats, about)
            self._feed.publish(PROXY + proxy_id, payload)

    def settings_changed(self, groups: Collection[str]) -> None:
        """See `Actor`: limits of error rates, who may subscribe, and quotas without the fleet's database."""
        if "alerts" in groups:
            self._alerts.settings = view(self.settings["alerts"])
            self._usage.set_warning(self.settings["alerts"]["quota_warning"])
        if "metrics" in groups:
            self._feed.set_clients(self.settings["metrics"]["curve_clients"])
        if QUOTA_OFFLINE in groups:
            self._usage.set_quota_offline(self.settings[QUOTA_OFFLINE])

    def _evaluate_alerts(self) -> None:
        for kind, data in self._alerts.evaluate(self._totals.stats()):
            self._publish_event(new_event(kind, data))
        try:
            self._alerts.save()
        except sqlite3.Error as error:
            self._save_errors.error(error)

    def _publish_event(self, event: Event) -> None:
        checked(event.type, event.data)
        self.events.publish(event_topic(event), event)

    def _save(self) -> None:
        """What the disk does not take stays in memory, and is saved when it takes it again."""
        try:
            self._totals.save()
        except sqlite3.Error as error:
            self._save_errors.error(error)
            self._series.not_stored()
        else:
            self._save_errors.recovered()

    def _realtime(self, proxy_ids: tuple[str, ...] | None, active: dict[str, int], of_one: bool = False) -> Realtime:
        open_now = sum(active.get(each, 0) for each in (active if proxy_ids is None else proxy_ids))
        metrics = {
            **self._series.live_metrics(proxy_ids),
            "active_connections": open_now,
            "memory_usage": 100 * self._totals.resident(proxy_ids or ()) / MEMORY,
        }
        if not of_one:
            metrics |= {"cpu_usage": self._machine.cpu_percent, "memory_usage": self._machine.memory_percent()}
        return Realtime(time.time(), metrics)

    def _account_used(self, account_id: str, figures: Sequence[int]) -> None:
        used = dict(zip(FIGURES, figures, strict=True))
        moved = used["bytes_in"] + used["bytes_out"]
        self._series.recent.add(account_id, time.time(), moved, used["requests"], used["refusals"])

    def _with_recent(self, found: Realtime, query: QueryRealtime) -> Realtime:
        recent, now = self._series.recent, found.timestamp
        ids = [*query.recent, *(recent.busy(query.busy, now) if query.busy else ())]
        return replace(found, recent=recent.of(ids, now), unknown=recent.unknown_before(now))

    def _with_weights(self, found: Realtime, proxy_ids: tuple[str, ...] | None) -> Realtime:
        minute = self._series.last_minute(proxy_ids)
        return replace(found, requests=minute["requests"], latency=tuple(sorted(minute.latency.items())))

    def _read_series(self, query: QueryMetricSeries, reply: Reply) -> None:
        """Store what was counted in this second first, since only what is stored is read."""
        self._series.request_store()
        self._save()
        self._read_next_batch(read_in_batches(self._series.series, query, time.time()), reply)

    def _read_next_batch(self, reading: Reading, reply: Reply) -> None:
        """One batch, and the next in the next turn of the loop."""
        try:
            next(reading)
        except StopIteration as done:
            reply(done.value)
        except sqlite3.Error as error:
            log.error("cannot read the series: %s", error)
            reply(Failed(str(error)))
        else:
            self.loop.call_soon(lambda: self._read_next_batch(reading, reply))

    def _system_metrics(self) -> SystemMetrics:
        system, ours = psutil.virtual_memory(), self._machine.memory()
        disk_percent, disk_free = self._machine.disk()
        rates = self._series.live_metrics()
        return SystemMetrics(
            cpu_percent=self._machine.cpu_percent,
            load_average=self._machine.load_average(),
            memory_percent=system.percent,
            memory_total=system.total,
            memory_used=system.used,
            disk_percent=disk_percent,
            disk_free=disk_free,
            memory=ours.used,
            memory_measure=ours.measure,
            rss=ours.rss,
            uss=ours.uss,
            vms=ours.vms,
            requests_per_second=rates["requests_per_second"],
            bandwidth_in=rates["bandwidth_in"],
            bandwidth_out=rates["bandwidth_out"],
            total=self._totals.total(),
        )
