"""What all connections of one forwarding actor share, and what it counts."""

from __future__ import annotations

import itertools
import os
import socket
import time
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from actors.bus.loop import Loop
from actors.bus.messages.problems import NO_DESCRIPTORS
from actors.bus.messages.specs import EgressSpec, ProxySpec
from actors.bus.messages.upstreams import UpstreamsSpec
from actors.bus.records import Row
from actors.counters import (
    AUTH_FAILURES,
    BYTES_IN,
    BYTES_OUT,
    CONNECTIONS,
    DENIED,
    ERRORS,
    INTERNAL_ERRORS,
    REQUESTS,
    RESPONSE_SECONDS,
    ZEROS,
)
from actors.forwarding.access.authenticator import Credentials
from actors.forwarding.access.policy import Judge
from actors.forwarding.access.rules import REASONS, REPORTED, Rules
from actors.forwarding.access.test_clients import Testers
from actors.forwarding.connections.table import Book, Open
from actors.forwarding.isolation import REASON, CrashLog
from actors.forwarding.limits.accounts import PASSWORD_CHANGED, REMOVED
from actors.forwarding.limits.limits import Limits
from actors.forwarding.limits.throttle import Throttle
from actors.forwarding.net.connection_pool import ConnectionPool
from actors.forwarding.net.dialer import Dialer
from actors.forwarding.net.resolver import Resolver, new_threads
from actors.forwarding.net.source_address import Source
from actors.forwarding.net.splice import AnyFlow, CopyFlow, Flow, PipePool
from actors.forwarding.net.timer_wheel import TimerWheel
from actors.forwarding.protocols.commands import Report
from actors.forwarding.protocols.failures import (
    BAD_ANNOUNCEMENT,
    LATE_ANNOUNCEMENT,
    LIMIT_REASONS,
    TLS_REASONS,
    Failure,
)
from actors.forwarding.protocols.http.date_header import DateLine
from actors.forwarding.protocols.http.pseudonym import pseudonym_of, received_by
from actors.forwarding.protocols.registry import new_session
from actors.forwarding.protocols.session import Session
from actors.forwarding.protocols.session_config import HANDSHAKE_TIMEOUT, Policy
from actors.forwarding.reporting import trace
from actors.histogram import BOUNDS, BUCKETS
from actors.net.egress_guard import Guard
from actors.net.transport import Transport
from actors.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.forwarding.upstreams.upstream_set import Upstreams

Side = tuple[Transport, int]
"""A connection with its descriptor."""

PIPE_WAIT = 0.1
HANDSHAKES_RECORDED = 30
HANDSHAKES_WITHIN = 60.0
"""So many failed TLS handshakes have records within so many seconds: a scanner makes thousands. All are counted."""
DENIALS = frozenset(
    (
        "destination_ip_prohibited",
        "http_request_denied",
        BAD_ANNOUNCEMENT,
        LATE_ANNOUNCEMENT,
        *TLS_REASONS,
        *REASONS,
        *LIMIT_REASONS,
    )
)


@dataclass(slots=True)
class Count:
    """Cumulative figures since the actor's start; `values` are in the order of `actors.counters`.

    The other fields are those of `messages.Counters`; `statuses` are by number, and `latency` has all buckets.
    """

    values: list[float] = field(default_factory=lambda: list(ZEROS))
    last_request: float = 0.0
    refusals: dict[str, int] = field(default_factory=dict)
    reported: dict[str, int] = field(default_factory=dict)
    statuses: dict[int, int] = field(default_factory=dict)
    latency: list[int] = field(default_factory=lambda: [0] * BUCKETS)


class Serving:
    """The shared part. `configure` may be called at any time; it holds for new connections."""

    def __init__(
        self,
        loop: Loop,
        add_record: Callable[[Row], None],
        pool_limit: int,
        pool_kept: float,
        handshake_timeout: float = HANDSHAKE_TIMEOUT,
    ) -> None:
        self.loop = loop
        self.deadlines = TimerWheel(loop)
        self.pipes = PipePool()
        self._without_pipe: dict[Callable[[], None], None] = {}
        self.dialer = Dialer(loop, Resolver(loop, new_threads(loop)))
        self.pool = ConnectionPool(loop, self.deadlines, pool_limit, pool_kept)
        self.policy = Policy(keep_alive_timeout=pool_kept, handshake_timeout=handshake_timeout, date=DateLine())
        self.count = Count()
        self.open: set[Open] = set()
        self.book = Book(self)
        self._crashes = CrashLog()
        self._last_number = 0
        self._epoch = time.time() - time.monotonic()
        self.problems = Problems(loop, self.clock)
        self.dialer.on_trouble = self.problems.occurred
        self.lingering = 0
        self.max_connections = 0
        self.proxy_id = ""
        """How the proxy is called in lines of the log."""
        self.debug = trace.enabled()
        self._failed_handshakes: deque[float] = deque(maxlen=HANDSHAKES_RECORDED)
        self.protocol = "http"
        self.accept_proxy_protocol = False
        self.credentials: Credentials | None = None
        self.limits = Limits(loop)
        self.judge: Judge | None = None
        self.upstreams: Upstreams | None = None
        self.on_empty: Callable[[], None] | None = None
        self._add_record = add_record
        self._auth: tuple[str, str | None] | None = None
        """The user of `auth` and the hash of the password, as they were when credentials were wanted last."""
        self._spec: ProxySpec | None = None
        self._egress: EgressSpec | None = None
        self._request_ids = itertools.count(1)
        self.testers = Testers(loop)
        self.id_prefix = os.urandom(6).hex()
        """Of the ids of requests and connections: no other process has it."""

    def configure(self, spec: ProxySpec, egress: EgressSpec) -> None:
        """What the proxy should be from now on; the next request of a connection that is open is judged by it, too."""
        access = None if self._spec is None else self._spec.access
        if egress != self._egress or spec.access != access:
            self._egress = egress
            self.judge = self.dialer.judge = Judge(Guard(egress), Rules(spec.access))
            self.pool.flush()
            if self.upstreams is not None:
                self.upstreams.guard_by(egress)
        if spec.bind_address != self.dialer.source.address:
            self.dialer.leave_from(Source(spec.bind_address))
            self.pool.flush()
        before = self._spec
        if before is None or (spec.upstreams, spec.bind_address) != (before.upstreams, before.bind_address):
            self._choose_upstreams(spec.upstreams, egress)
        if self.credentials is None:
            self.credentials = Credentials(self.loop, spec)
        else:
            self.credentials.take_over(spec)
        self.limits.configure(spec, self.open)
        self._spec = spec
        self.proxy_id = spec.id
        self.protocol = spec.protocol
        self.max_connections = spec.max_connections
        self.accept_proxy_protocol = spec.accept_proxy_protocol
        self.policy = Policy(
            keep_alive=spec.keep_alive,
            wants_credentials=spec.wants_credentials,
            hears_users=self.upstreams is not None and not spec.wants_credentials,
            timeout=spec.timeout,
            handshake_timeout=self.policy.handshake_timeout,
            keep_alive_timeout=self.policy.keep_alive_timeout,
            date=self.policy.date,
            pseudonym=pseudonym_of(spec),
            via=received_by(spec),
        )
        self._spread_policy()
        self._end_outdated(spec)

    def _end_outdated(self, spec: ProxySpec) -> None:
        """The connections of an `auth` user with another password, or who is gone, end as those of accounts do."""
        if not spec.wants_credentials:
            return  # nobody has to be known any more, and whoever is there may stay
        now = None if spec.auth_username is None else (spec.auth_username, spec.auth_hash)
        before, self._auth = self._auth, now
        if before is None or now == before:
            return
        reason = PASSWORD_CHANGED if now is not None and now[0] == before[0] else REMOVED
        for connection in tuple(self.open):
            of_account = connection.meter is not None and connection.meter.account is not None
            if not of_account and connection.live().user == before[0]:
                connection.end(reason)

    def _choose_upstreams(self, spec: UpstreamsSpec, egress: EgressSpec) -> None:
        before = self.upstreams
        if before is not None:
            before.stop()
        self.pool.flush()
        self.upstreams = None
        if spec.parents:
            from actors.forwarding.upstreams.upstream_set import Upstreams  # only proxies with parents pay for it

            self.upstreams = Upstreams(self, spec, before, egress)
        if before is not None:
            before.succeeded_by(self.upstreams)

    def set_pooling(self, limit: int, kept: float) -> None:
        """What `proxy.max_idle_connections` and `proxy.keep_alive_timeout` are from now on."""
        self.pool.set_limits(limit, kept)
        self.policy = replace(self.policy, keep_alive_timeout=kept)
        self._spread_policy()

    def new_session(self) -> Session:
        """The conversation with a client that has just come, in the proxy's protocol."""
        return new_session(self.protocol, self._session_policy(), self.loop.now)

    def _session_policy(self) -> Policy:
        policy = self.policy
        if self.testers and not policy.wants_credentials:
            policy = replace(policy, hears_users=True)  # it may be the test, which says so by its user
        return policy

    def _spread_policy(self) -> None:
        """The next request of each open connection is judged by what is in force now."""
        policy = self._session_policy()
        for connection in self.open:
            connection.adopt(policy)

    def flow(
        self, source: Side, destination: Side, length: int | None = None, throttle: Throttle | None = None
    ) -> AnyFlow:
        """Bulk from one side to the other: by the kernel where it can, else through this process."""
        if isinstance(source[0], socket.socket) and isinstance(destination[0], socket.socket):
            return Flow(self.pipes, source[1], destination[1], length, throttle)
        return CopyFlow(source[0], destination[0], length, throttle)

    def wait_for_pipes(self, go_on: Callable[[], None]) -> None:
        """There was no descriptor for a pipe: go on when somebody has given one back. Asked twice, it is done once."""
        self.problems.occurred(NO_DESCRIPTORS, "no descriptor is left for pipes: connections wait")
        if not self._without_pipe:
            self.loop.call_later(PIPE_WAIT, self._try_for_pipes)
        self._without_pipe[go_on] = None

    def _try_for_pipes(self) -> None:
        """Let them go on, until one finds that there is still none: the others would, too."""
        waiting, self._without_pipe = self._without_pipe, {}
        while waiting and not self._without_pipe:
            go_on = next(iter(waiting))
            del waiting[go_on]
            go_on()
        self._without_pipe.update(waiting)

    def knows(self, user: str) -> bool:
        """Could this be an authorised user? Where no credentials are wanted, anybody is."""
        spec, credentials = self._spec, self.credentials
        return spec is None or not spec.wants_credentials or (credentials is not None and credentials.knows(user))

    # --- what connections tell ---

    def clock(self) -> float:
        """Unix seconds at the actor's start, and on from there whatever happens to the wall clock."""
        return self.loop.now + self._epoch

    def new_number(self) -> int:
        """The number of a connection that has just come: when, in microseconds of `clock`, and no two alike."""
        self._last_number = max(self._last_number + 1, int(self.clock() * 1e6))
        return self._last_number

    def began(self, connection: Open) -> None:
        """A client has come."""
        if self.debug:
            trace.note(self, connection.number, "accepted from %s", connection.client_ip)
        self.count.values[CONNECTIONS] += 1
        self.open.add(connection)
        if self.limits.counts_clients:
            self.limits.came(connection)

    def ended(self, connection: Open) -> None:
        """A client has gone."""
        if self.debug:
            trace.note(self, connection.number, "ended after %.3f s", self.clock() - connection.number / 1e6)
        self.open.discard(connection)
        self.deadlines.cancel(connection)
        if connection.meter is not None:
            connection.meter.close()
        if self.limits.counts_clients:
            self.limits.gone(connection)
        if not self.open and self.on_empty is not None:
            self.on_empty()

    def crashed(self, connection: Open, error: Exception) -> None:
        """Something unforeseen happened within this connection: count it, log it, and end the connection alone."""
        self.count_crash(f"a connection of {connection.client_ip}", error)
        try:
            connection.end(REASON)
        except Exception as again:  # noqa: BLE001 - what it was in the middle of may be in its way
            self.count_crash(f"the end of a connection of {connection.client_ip}", again)
        if connection in self.open:
            connection.drop()
            self.ended(connection)

    def count_crash(self, what: str, error: Exception) -> None:
        """Count and log an exception that nobody foresaw; `what` ends with it."""
        self.count.values[INTERNAL_ERRORS] += 1
        self._crashes.add(what, error, self.loop.now)

    def replaced(self, connection: Open, tunnel: Open) -> None:
        """A client's connection has become a tunnel."""
        self.open.discard(connection)
        self.deadlines.cancel(connection)
        self.open.add(tunnel)
        if tunnel.meter is not None:
            tunnel.meter.holder = tunnel
        if self.limits.counts_clients:
            self.limits.gone(connection)
            self.limits.came(tunnel)

    def moved(self, count: int, from_client: bool) -> None:
        """The kernel has moved bytes that this process did not see."""
        if from_client:
            self.count.values[BYTES_IN] += count
        else:
            self.count.values[BYTES_OUT] += count

    def tunnel_ended(self, tunnel: Open, report: Report) -> None:
        """A tunnel is over."""
        if self.debug:
            trace.note_report(self, tunnel.number, report, None)
        self.reported(report, tunnel.client_ip)
        self.ended(tunnel)

    def reported(self, report: Report, client_ip: str) -> None:
        """An exchange is over: count it and write its access record."""
        count = self.count
        wall = time.time()
        status, answered = report.status, 0.0
        if report.answered:
            answered = report.answered - report.started
            count.values[RESPONSE_SECONDS] += answered
            count.latency[bisect_left(BOUNDS, answered)] += 1
        count.values[REQUESTS] += 1
        count.statuses[status] = count.statuses.get(status, 0) + 1
        count.last_request = wall
        if status >= 500:
            count.values[ERRORS] += 1
        if report.reason:
            self._count_reason(report)
        self._record(report, client_ip, wall, answered)

    def also_reported(self, report: Report, client_ip: str) -> None:
        """A request has ended that has more than one record: this is a further one."""
        if report.reason:
            self._count_reason(report)
        self._record(report, client_ip, time.time(), 0.0)

    def refused_client(self, client_ip: str, failure: Failure) -> None:
        """A client was turned away by a rule before it said anything: no request, but a refusal with its record."""
        now = self.loop.now
        report = Report(b"", "", failure.status, failure.reason, "", now, now, 0, 0).because(failure)
        self._count_reason(report)
        self._record(report, client_ip, time.time(), 0.0)

    def handshake_failed(self, connection: Open, failure: Failure) -> None:
        """TLS with a client came to nothing: counted, and recorded within bounds."""
        now = self.loop.now
        if self.debug:
            trace.note(self, connection.number, "%s: %s", failure.reason, failure.detail)
        times = self._failed_handshakes
        if len(times) < HANDSHAKES_RECORDED or now - times[0] > HANDSHAKES_WITHIN:
            times.append(now)
            self.refused_client(connection.client_ip, failure)
        else:
            self._count_reason(Report(b"", "", failure.status, failure.reason, "", now, now, 0, 0))

    def _record(self, report: Report, client_ip: str, wall: float, answered: float) -> None:
        self._add_record(
            (
                wall,
                "warning" if report.status >= 500 or (report.status == 407 and report.user) else "info",
                self.proxy_id,
                client_ip,
                report.user,
                report.method.decode("ascii"),
                report.url,
                report.status,
                round(answered * 1000),
                round((self.loop.now - report.started) * 1000),
                report.bytes_in,
                report.bytes_out,
                report.request_id or self._new_id(),
                report.reason,
                report.parent,
                report.detail,
                report.rule,
            )
        )

    def _new_id(self) -> str:
        return f"{self.id_prefix}{next(self._request_ids):08x}"

    def _count_reason(self, report: Report) -> None:
        count, reason = self.count, report.reason
        if report.status == 407:
            count.values[AUTH_FAILURES] += 1
        if reason in DENIALS:
            count.values[DENIED] += 1
            count.refusals[reason] = count.refusals.get(reason, 0) + 1
        elif reason.startswith(REPORTED):
            word = reason.removeprefix(REPORTED)
            count.reported[word] = count.reported.get(word, 0) + 1
