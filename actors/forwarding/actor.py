"""The forwarding actor of one proxy: the composition root of its process. It configures, reports and drains."""

from __future__ import annotations

import logging
import resource
import socket
import time
from collections.abc import Callable, Collection
from typing import Any

from setproctitle import getthreadtitle, setproctitle, setthreadtitle

from actors.bus.codec import unpack
from actors.bus.events import counters_topic
from actors.bus.loop import Timer
from actors.bus.mailbox import ASLEEP, Reply, refuse
from actors.bus.messages.accounts import AccountStates, QueryAccounts
from actors.bus.messages.common import (
    SUPERVISOR,
    WORKERS,
    Done,
    Failed,
    Problem,
    ReportProblems,
    Unreachable,
    actor_proxy,
    proxy_label,
)
from actors.bus.messages.forwarding import (
    AllowTestClient,
    CloseConnections,
    Configure,
    DrainEnded,
    Explain,
    GroupConnections,
    Idle,
    QueryConnections,
    QueryTester,
    Resume,
    Sleep,
)
from actors.bus.messages.metrics import Counters
from actors.bus.messages.specs import DnsSpec, ProxySpec, QueryUpstreams, Upstreams
from actors.bus.records import RecordSender, Row, is_error
from actors.counters import CPU_SECONDS, NAMES, RECORDS_DROPPED, WAKES
from actors.forwarding.acceptor import Acceptor
from actors.forwarding.connections.client_connection import ClientConnection
from actors.forwarding.connections.first_bytes import ProxyHeaderReader
from actors.forwarding.connections.table import ConnectionTable
from actors.forwarding.context import ForwardingContext
from actors.forwarding.explain import reply_explanation
from actors.forwarding.fleet_objects import ObjectReader
from actors.forwarding.limits.earlier_usage import EarlierUsage
from actors.forwarding.net.resolver_link import merged
from actors.forwarding.protocols.session import HANDSHAKE_TIMEOUT
from actors.forwarding.reconfiguration import Configuration, Reconfiguration, join_workers
from actors.forwarding.reporting import trace
from actors.forwarding.reporting.counter_publisher import CounterPublisher, LastReports, LoopLoad
from actors.forwarding.reporting.denied_names_reporter import DeniedNamesReporter
from actors.forwarding.reporting.password_renewals import PasswordRenewals
from actors.forwarding.sleeper import Sleeper
from actors.histogram import sparse
from actors.log_lines import set_subject
from actors.process import Actor, Boot
from actors.state.live_state import LiveState
from actors.state.processes import UNOWNED

log = logging.getLogger(__name__)

PAGE = resource.getpagesize()
FIRST_REQUEST = 1.0
"""Seconds that a client which has only connected may take for its request, once the actor is to end."""
DRAIN_ENDED = "drain_ended"
"""The reason of records of what was cut at the end of a drain."""
USAGE_AWAITED = 2.0
"""Seconds that what accounts have used before may take to be known at the start."""
RETRY = 0.05
"""Seconds until it is asked for again."""


class ForwardingActor(Actor):
    """Says hello at once, and accepts from the first `Configure` on.

    `boot.settings`: `logging`, `proxy`, and `server.tls`, whose certificate `https` proxies without their own have.
    `boot.params` may have deadlines.
    """

    holds_much = True

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        super().__init__(boot, sockets)
        params, proxy = boot.params, boot.settings["proxy"]
        self._recorded: str = boot.settings["logging"]["access"]
        self.records = RecordSender(self.loop, self.context, self.run_dir.records, boot.name, boot.instance)
        self.forwarding = ForwardingContext(
            self.loop,
            self._record,
            proxy["max_idle_connections"],
            float(proxy["keep_alive_timeout"]),
            float(params.get("handshake_timeout", HANDSHAKE_TIMEOUT)),
            self.data_dir.fleet,
            self.data_dir.lists,
            self.run_dir,
            proxy.get("contact") or "",
            self._live_state(params.get("number", UNOWNED), params.get("worker", 0)),
        )
        self._objects = ObjectReader()
        self._reconfiguration = Reconfiguration(self.forwarding, self._configured)
        self._apply_dns(DnsSpec())
        self.forwarding.problems.report = self._report
        self._table = ConnectionTable(
            self.loop, self.forwarding.connections.keys(), self.forwarding.clock, self.forwarding.connection_id
        )
        self._acceptor = Acceptor(self.forwarding, _files(boot.settings.get("server.tls")))
        self._first_request = float(params.get("first_request_timeout", FIRST_REQUEST))
        self._earlier_usage = EarlierUsage(self.loop, self.mailbox, self.forwarding.limits.usage)
        self._denied_names = DeniedNamesReporter(self.loop, self.mailbox, self.forwarding.limits.accounts)
        self.forwarding.stats.on_name_denied = self._denied_names.note
        self.forwarding.authenticator.on_renewed = PasswordRenewals(self.mailbox).send
        self._sleeper: Sleeper | None = None
        self._listen_by = 0.0
        self._end = 0.0
        self._end_timer: Timer | None = None
        """Of a drain: the end of its time."""
        self._label = ""
        self._place = 0, 1
        """Its index among the workers, and how many these are."""
        self._load = LoopLoad(self.loop)
        self._publisher = CounterPublisher(self.loop, self._counters, self._publish)
        if params.get("asleep"):
            self.forwarding.stats.values[WAKES] += 1
        self._join_workers(params.get("workers", 1))
        if params.get("configure"):
            self._configure(unpack(Configure, params["configure"]), lambda: None)
        self.ready()

    # --- messages ---

    def receive(self, sender: str, message: Any, reply: Reply) -> None:
        """Handle a query or an order."""
        if isinstance(message, Configure):
            self._configure(message, lambda: reply(Done()))
        elif isinstance(message, Sleep):
            slept = self._sleeper is not None and not self._stopping and self._sleeper.sleep()
            reply(Done() if slept else Failed("there is a client"))
        elif isinstance(message, Resume):
            if self._sleeper is not None:
                self._sleeper.resume()
            reply(Done())
        elif isinstance(message, AllowTestClient) and self._sleeper is not None and self._sleeper.asleep:
            reply(Unreachable(self.boot.name, ASLEEP))  # it ends in a moment, and with it what it allows
        elif isinstance(message, AllowTestClient | Explain) and not self.forwarding.configured:
            reply(Failed("not configured yet"))
        elif isinstance(message, AllowTestClient):
            self.forwarding.testers.expect(message.user, message.token, message.request_id, message.ttl)
            reply(Done())
        elif isinstance(message, Explain):
            reply_explanation(self.forwarding, message, reply)
        elif isinstance(message, QueryAccounts):
            counters = self.forwarding.limits.usage.by_id
            reply(AccountStates({each: counter.state() for each, counter in counters.items()}))
        elif isinstance(message, QueryConnections):
            self._table.query(message, reply)
        elif isinstance(message, GroupConnections):
            self._table.group(message, reply)
        elif isinstance(message, QueryUpstreams):
            upstreams = self.forwarding.upstreams
            reply(Upstreams(()) if upstreams is None else upstreams.states())
        elif isinstance(message, QueryTester):
            reply(self.forwarding.testers.report_of(message.user))
        elif isinstance(message, CloseConnections):
            self._table.end(message, reply)
        else:
            refuse(sender, message, reply)

    def _configure(self, message: Configure, done: Callable[[], None]) -> None:
        self._join_workers(message.workers)
        self._place = message.worker, message.workers
        objects = self._objects.read(message.objects, message.changes)
        self._reconfiguration.configure(Configuration(message.spec, message.egress, objects), done)

    def _configured(self, spec: ProxySpec) -> None:
        """The configuration has been applied."""
        self._apply_dns(spec.dns)
        self._acceptor.configure(spec)
        self._acceptor.share(self._place[1] > 1)
        self.records.proxy_name = spec.name
        self._name_process(proxy_label(spec.name, spec.ports, *self._place))
        self.forwarding.problems.report_soon()
        if not self._stopping:
            self._set_sleep(spec.sleep_after)
            if not self._acceptor.listening:
                self._listen_by = self._listen_by or self.loop.now + USAGE_AWAITED
                self._listen_when_known()

    def settings_changed(self, _groups: Collection[str]) -> None:
        """See `Actor`: the limits of the pool and of names, whom refused clients ask, which records are kept, whether
        decisions are logged."""
        proxy = self.settings["proxy"]
        self.forwarding.set_pooling(proxy["max_idle_connections"], float(proxy["keep_alive_timeout"]))
        self.forwarding.set_contact(proxy.get("contact") or "")
        self._apply_dns(self._dns)
        self._recorded = self.settings["logging"]["access"]
        self.forwarding.debug = trace.enabled()

    def _apply_dns(self, own: DnsSpec) -> None:
        proxy, resolver = self.settings["proxy"], self.forwarding.dialer.resolver
        self._dns = own
        resolver.longest_ttl = float(proxy["dns_cache_seconds"])
        resolver.configure(merged(proxy["dns"], own, actor_proxy(self.boot.name)))

    def _record(self, row: Row) -> None:
        """What is not to be kept is not even sent: by the time it was indexed the setting might be another one."""
        if self._recorded == "all" or (self._recorded == "errors" and is_error(row)):
            self.records.add(row)

    def _name_process(self, label: str) -> None:
        """Set the name in lists of processes and log lines: the proxy as people call it, whenever that changes."""
        if label != self._label:
            self._label = label
            short = getthreadtitle()  # proc(5), comm: stays the one by id, which `setproctitle` overwrites
            setproctitle(f"proxyfleet: {label}")
            setthreadtitle(short)
            set_subject(label)

    # --- the beginning ---

    def _live_state(self, number: int, worker: int) -> LiveState:
        """What it counts together with other processes."""
        folder, proxy_id, loop = self.run_dir.state, actor_proxy(self.boot.name), self.loop
        return LiveState(lambda: loop.now, folder, proxy_id, number, self._alone, loop.call_later, worker)

    def _alone(self, detail: str) -> None:
        def report() -> None:
            tell = (
                self.forwarding.problems.occurred if self.forwarding.state.shares else self.forwarding.problems.begins
            )
            tell(WORKERS, f"limits hold for a process alone: {detail}")

        self.loop.call_soon(report)  # it may be in the middle of being made

    def _join_workers(self, count: int) -> None:
        """Count together with the other workers of the proxy from when there are any."""
        if count > 1 and self.forwarding.limits.workers is None:
            join_workers(self.forwarding)

    def _listen_when_known(self) -> None:
        """With quotas, not before it is known what was used already; but not without end: the collector may be away."""
        if self._acceptor.listening or self._stopping:
            return
        if self._earlier_usage.is_known or self.loop.now >= self._listen_by:
            self._acceptor.listen(self.sockets)
            return

        def replied() -> None:
            self.loop.call_later(0.0 if self._earlier_usage.is_known else RETRY, self._listen_when_known)

        self._earlier_usage.ask(replied)

    # --- sleep ---

    def _set_sleep(self, after: int) -> None:
        if self._sleeper is None:
            if not after:
                return
            self._sleeper = Sleeper(self.forwarding, self._acceptor, self._report_idle)
        self._sleeper.configure(float(after))

    def _report_idle(self) -> None:
        self.mailbox.tell(SUPERVISOR, Idle(self.boot.instance))

    # --- reports ---

    def _report(self, problems: tuple[Problem, ...], over: tuple[Problem, ...]) -> None:
        ends = self._acceptor.certificate_ends
        self.mailbox.tell(SUPERVISOR, ReportProblems(self.boot.instance, problems, over, ends))

    def _publish(self, counters: Counters) -> None:
        self.events.publish(counters_topic(counters), counters)
        self.forwarding.stats.changed_decisions = {}

    def _counters(self, full: bool) -> Counters | None:
        forwarding, count = self.forwarding, self.forwarding.stats
        if not count.proxy_id:
            return None
        count.values[RECORDS_DROPPED] = self.records.dropped
        count.values[CPU_SECONDS] = time.process_time()
        load = self._load.read()
        return Counters(
            proxy_id=count.proxy_id,
            instance=self.boot.instance,
            values=dict(zip(NAMES, count.values, strict=True)),
            active_connections=len(forwarding.connections),
            last_request=count.last_request,
            refusals=dict(count.refusals),
            reported=dict(count.reported),
            statuses={str(status): number for status, number in count.statuses.items()},
            latency=sparse(count.latency),
            resident=_resident(),
            tls_names=dict(count.tls_names),
            decisions=dict(count.decisions if full else count.changed_decisions),
            partial=not full,
            loop_busy=load.busy,
            loop_turn_max_ms=load.turn_max_ms,
        )

    # --- the end ---

    def drain(self, seconds: float) -> None:
        """Accept no more, let exchanges and tunnels end by themselves for `seconds`, then cut what is left."""
        self._acceptor.stop()
        if self._sleeper is not None:
            self._sleeper.stop()
        for sock in self.sockets:
            sock.close()
        forwarding = self.forwarding
        forwarding.on_empty = lambda: self.loop.call_soon(self._emptied)
        for connection in tuple(forwarding.connections):
            if isinstance(connection, ClientConnection):
                connection.stop_keep_alive(allow_first_request=True)
        self.loop.call_later(min(self._first_request, seconds), self._stop_unused)
        self._end = self.loop.now + seconds
        self._end_timer = self.loop.call_later(seconds, self._cut)
        if forwarding.connections:
            log.info("drains for up to %g s, connections that are open: %d", seconds, len(forwarding.connections))
        else:
            self._emptied()

    def drain_sooner(self, seconds: float) -> None:
        """See `Actor`."""
        if self._end_timer is not None and self.loop.now + seconds < self._end:
            self._end = self.loop.now + seconds
            self._end_timer.cancel()
            self._end_timer = self.loop.call_later(seconds, self._cut)

    def _stop_unused(self) -> None:
        for connection in tuple(self.forwarding.connections):
            if isinstance(connection, ClientConnection):
                connection.stop_keep_alive(allow_first_request=False)
            elif isinstance(connection, ProxyHeaderReader):
                connection.end("connection_terminated")

    def _cut(self) -> None:
        left = tuple(self.forwarding.connections)
        if left:
            log.warning("the time to drain is over: %d connections are cut", len(left))
            self.mailbox.tell(SUPERVISOR, DrainEnded(self.boot.instance, len(left)))
        for connection in left:
            connection.end(DRAIN_ENDED)

    def _emptied(self) -> None:
        """No client is left: send the last counters and records, and end when they have arrived."""
        self.forwarding.on_empty = None
        self._publisher.publish()
        self._denied_names.flush()
        self.forwarding.limits.usage.flush()
        LastReports(self.loop, self.mailbox, self.records, self.finish).send(self._counters(True))

    def close(self) -> None:
        """Release everything."""
        self.records.close()
        super().close()
        set_subject("")


def _resident() -> int:
    """Bytes of memory that this process has (proc(5), `statm`); 0 when no descriptor is left to read it."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read().split()[1]) * PAGE
    except OSError:
        return 0  # out of descriptors: the other counters are published all the same


def _files(params: Any) -> tuple[str, str] | None:
    """`cert_file` and `key_file` of `server.tls`, when both are set."""
    pair = (params or {}).get("cert_file"), (params or {}).get("key_file")
    return (str(pair[0]), str(pair[1])) if all(pair) else None
