"""What all connections of one forwarding actor share, and how a configuration takes effect on it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from actors.bus.loop import Loop
from actors.bus.messages.fleet_objects import FleetObjects
from actors.bus.messages.problems import NO_DESCRIPTORS
from actors.bus.messages.specs import AccessSpec, ClientTlsSpec, EgressSpec, ProxySpec
from actors.bus.messages.upstreams import UpstreamsSpec
from actors.bus.records import Row
from actors.counters import CONNECTIONS, INTERNAL_ERRORS
from actors.forwarding.access.authenticator import Authenticator
from actors.forwarding.access.directory import Directory
from actors.forwarding.access.named_lists import NamedListFiles
from actors.forwarding.access.narrowing import OwnRules, own_rules
from actors.forwarding.access.policy import AccessPolicy
from actors.forwarding.access.rules import Rules
from actors.forwarding.access.test_clients import Testers
from actors.forwarding.connection import Connection
from actors.forwarding.date_line import DateLine
from actors.forwarding.isolation import REASON, CrashLog
from actors.forwarding.limits.accounts import PASSWORD_CHANGED, REMOVED
from actors.forwarding.limits.limits import Limits
from actors.forwarding.limits.meter import Meter
from actors.forwarding.limits.throttle import Throttle
from actors.forwarding.net.connection_pool import ConnectionPool
from actors.forwarding.net.dialer import Dialer
from actors.forwarding.net.lingering_close import LingeringClose
from actors.forwarding.net.resolver import Resolver, new_threads
from actors.forwarding.net.resolver_link import ResolverLink
from actors.forwarding.net.source_address import Source
from actors.forwarding.net.splice import AnyFlow, CopyFlow, Flow, PipePool
from actors.forwarding.net.timer_wheel import TimerWheel
from actors.forwarding.protocols.commands import Report
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.via import pseudonym_of
from actors.forwarding.protocols.registry import new_session
from actors.forwarding.protocols.session import Session
from actors.forwarding.protocols.session_config import HANDSHAKE_TIMEOUT, SessionConfig
from actors.forwarding.proxy_policy import ProxyPolicy, via_entry
from actors.forwarding.reporting import trace
from actors.forwarding.stats import ConnectionStats
from actors.net.egress_guard import EgressGuard
from actors.net.transport import Transport
from actors.problems import Problems

if TYPE_CHECKING:
    from actors.forwarding.policies.policy_set import PolicySet
    from actors.forwarding.upstreams.upstream_set import UpstreamSet

Side = tuple[Transport, int]
"""A connection with its descriptor."""

PIPE_WAIT = 0.1

NO_OBJECTS = FleetObjects()
_EGRESS = EgressSpec("public_only", (), ())


class ForwardingContext:
    """The shared part. `configure` may be called at any time; no connection is accepted before its first call."""

    def __init__(
        self,
        loop: Loop,
        add_record: Callable[[Row], None],
        pool_limit: int,
        keep_alive_timeout: float,
        handshake_timeout: float = HANDSHAKE_TIMEOUT,
        accounts_table: Path | None = None,
        lists: Path | None = None,
        resolver: Path | None = None,
    ) -> None:
        """`resolver` is the socket of the resolver; without it names are looked up by the system."""
        self.loop = loop
        self.debug = trace.enabled()
        """Whether each decision about a connection is logged."""
        self.id_prefix = os.urandom(6).hex()
        """Begins the ids of requests and ends those of connections; no other process has it."""
        self.stats = ConnectionStats(loop, add_record, self.id_prefix)
        self.connections: set[Connection] = set()
        """Those that are open."""
        self.on_empty: Callable[[], None] | None = None
        """Called when the last of them has ended."""
        self._crashes = CrashLog()
        self._last_number = 0
        self._epoch = time.time() - time.monotonic()
        self.problems = Problems(loop, self.clock)
        self.lists = NamedListFiles(loop, self.problems, lists)
        """The lists that rules name."""
        self.lists.on_changed = self._lists_changed
        self.timers = TimerWheel(loop)
        self.lingering = LingeringClose(loop, self.timers, self.count_crash)
        self.pipes = PipePool()
        self._without_pipe: dict[Callable[[], None], None] = {}
        access = AccessPolicy(EgressGuard(_EGRESS), Rules(AccessSpec()))
        link = None if resolver is None else ResolverLink(loop, resolver)
        self.dialer = Dialer(loop, Resolver(loop, new_threads(loop), link=link), access)
        self.dialer.on_problem = self.problems.occurred
        self.pool = ConnectionPool(loop, self.timers, pool_limit, keep_alive_timeout)
        self.directory = Directory(loop, self.problems, accounts_table)
        self.limits = Limits(loop)
        self.stats.on_refusal = self.limits.count_refusal
        self.limits.held.source = self.directory
        self.directory.on_changed = self.limits.held.changed
        self.authenticator = Authenticator(loop, self.directory)
        self.authenticator.backend.on_limits = self.limits.guests.admit
        self.testers = Testers(loop)
        self.upstreams: UpstreamSet | None = None
        self.policies: PolicySet | None = None
        """What judges requests; None without policies."""
        self.pools: Mapping[str, UpstreamSet] = {}
        """The upstreams of pools that policies name."""
        self.client_tls: ClientTlsSpec | None = None
        """How clients are asked for a certificate; None: they are not."""
        self._spec: ProxySpec | None = None
        self._egress = _EGRESS
        self._auth: tuple[str, str | None] | None = None
        """The user of `auth` with the hash of the password, as of the last configuration that wants credentials."""
        session = SessionConfig(
            keep_alive_timeout=keep_alive_timeout, handshake_timeout=handshake_timeout, date=DateLine()
        )
        self.policy = ProxyPolicy(access, session)

    @property
    def configured(self) -> bool:
        """False before the first `configure`."""
        return self._spec is not None

    # --- configuration ---

    def configure(self, spec: ProxySpec, egress: EgressSpec, objects: FleetObjects = NO_OBJECTS) -> None:
        """Apply a configuration, to the next request of an open connection as well. The order matters:

        1. the access policy and the source address, by which the dialer and upstreams connect from then on; what was
           connected by others is not kept for reuse;
        2. the upstreams, which take over the dialer's resolver and source address;
        3. the policies, which judge further requests, those on open connections as well;
        4. users, accounts and limits, which end the connections of accounts that have become invalid;
        5. the `ProxyPolicy`, which depends on whether there are upstreams, replaced whole and given to all sessions;
        6. connections of the `auth` user with an outdated password end, when all else is of the new configuration, and
           tunnels that policies no longer allow, if that was asked for.
        """
        access, source = self._new_access(spec.access, egress), Source(spec.bind_address)
        moved = source != self.dialer.source
        if moved:
            self.dialer.set_source(source)
        if access is not self.policy.access or moved:
            self.dialer.access = access
            self.pool.flush()
        if self._spec is None or moved or spec.upstreams != self._spec.upstreams:
            self._replace_upstreams(spec.upstreams, egress)
        elif self.upstreams is not None and egress != self._egress:
            self.upstreams.guard_by(egress)
        self.client_tls = spec.client_tls if spec.speaks_tls else None
        self.authenticator.update(spec)
        self.authenticator.backend.guard_by(egress)
        self.limits.configure(spec, self.connections)
        ends_existing = self._replace_policies(spec, objects)
        self._spec, self._egress = spec, egress
        self.stats.proxy_id = spec.id
        self.policy = ProxyPolicy(
            access, self._new_session_config(spec), spec.protocol, spec.max_connections, spec.accept_proxy_protocol
        )
        self._reconfigure_sessions()
        self._end_outdated(spec)
        for connection in tuple(self.connections) if ends_existing else ():
            connection.policies_changed()

    def _new_access(self, spec: AccessSpec, egress: EgressSpec) -> AccessPolicy:
        """The access policy of a configuration: the present one, if it says the same."""
        if self._spec is not None and (spec, egress) == (self._spec.access, self._egress):
            return self.policy.access
        return AccessPolicy(EgressGuard(egress), Rules(spec, lists=self.lists))

    def _lists_changed(self) -> None:
        """Connections that were made by the former version of a list are not kept for reuse."""
        if self._spec is not None:
            access = AccessPolicy(EgressGuard(self._egress), Rules(self._spec.access, lists=self.lists))
            self.dialer.access = access
            self.policy = replace(self.policy, access=access)
            self.pool.flush()

    def _new_session_config(self, spec: ProxySpec) -> SessionConfig:
        return replace(
            self.policy.session,
            keep_alive=spec.keep_alive,
            wants_credentials=spec.wants_credentials,
            accepts_optional_user=self.upstreams is not None and not spec.wants_credentials,
            timeout=spec.timeout,
            pseudonym=pseudonym_of(spec.id),
            via=via_entry(spec),
        )

    def _replace_upstreams(self, spec: UpstreamsSpec, egress: EgressSpec) -> None:
        before, self.upstreams = self.upstreams, None
        if before is not None:
            before.stop()
        self.pool.flush()
        if spec.entries:
            from actors.forwarding.upstreams.upstream_set import UpstreamContext, UpstreamSet  # only with upstreams

            shared = UpstreamContext(
                self.loop, self.pool, self.dialer, self.problems, self.clock, lambda: self.policy, self.count_crash
            )
            self.upstreams = UpstreamSet(shared, spec, before, egress)
        if before is not None:
            before.succeeded_by(self.upstreams)

    def _replace_policies(self, spec: ProxySpec, objects: FleetObjects) -> bool:
        """Returns whether tunnels are to end that the policies no longer allow."""
        before, self.policies = self.policies, None
        if not (spec.policy or objects.policies):
            if before is not None:
                self.pool.flush()
            return False
        from actors.forwarding.policies.policy_set import PolicySet  # only proxies with policies pay for it

        self.policies = PolicySet(objects.policies, spec.policy, self.lists, before)
        return self.policies.ends_existing(before)

    def upstreams_of(self, pool: str) -> UpstreamSet | None:
        """The upstreams of the pool of this name, or, without a name, those of the proxy; None: there are none."""
        return self.pools.get(pool) if pool else self.upstreams

    def _end_outdated(self, spec: ProxySpec) -> None:
        """End the connections of an `auth` user whose password has changed or who is gone, as those of accounts."""
        if not spec.wants_credentials:
            return  # no user is needed any more, so connections of former users may stay
        now = None if spec.auth_username is None else (spec.auth_username, spec.auth_hash)
        before, self._auth = self._auth, now
        if before is None or now == before:
            return
        reason = PASSWORD_CHANGED if now is not None and now[0] == before[0] else REMOVED
        for connection in tuple(self.connections):
            of_account = connection.meter is not None and connection.meter.account is not None
            if not of_account and connection.info().user == before[0]:
                connection.end(reason)

    def set_pooling(self, limit: int, keep_alive_timeout: float) -> None:
        """Apply `proxy.max_idle_connections` and `proxy.keep_alive_timeout`."""
        self.pool.set_limits(limit, keep_alive_timeout)
        self.policy = replace(self.policy, session=replace(self.policy.session, keep_alive_timeout=keep_alive_timeout))
        self._reconfigure_sessions()

    def new_session(self, protocol: str | None = None, started: float | None = None) -> Session:
        """The session of a client, which has just come and speaks the proxy's protocol unless it is said otherwise."""
        now = self.loop.now if started is None else started
        return new_session(protocol or self.policy.protocol, self._session_config(), now)

    def _session_config(self) -> SessionConfig:
        config = self.policy.session
        if self.testers and not config.wants_credentials:
            config = replace(
                config, accepts_optional_user=True
            )  # the next client may be a test, known by its user name
        return config

    def _reconfigure_sessions(self) -> None:
        config = self._session_config()
        for connection in self.connections:
            connection.reconfigure(config)

    def is_known_user(self, user: str) -> bool:
        """Whether a client may authenticate as `user`; any may where no credentials are wanted."""
        return not self.policy.session.wants_credentials or self.authenticator.knows(user)

    def is_shared_account(self, user: str) -> bool:
        """Whether this authenticated user can only be an account of the shared table."""
        return bool(user) and self.policy.session.wants_credentials and not self.directory.is_own(user)

    def own_rules(self, meter: Meter | None) -> OwnRules:
        """The rules about destinations of the account and credential that a connection belongs to."""
        account = None if meter is None else meter.account
        if meter is None or account is None:
            return ()
        return own_rules(account.spec, None if meter.credential is None else meter.credential.spec, self.lists)

    # --- flows ---

    def flow(
        self, source: Side, destination: Side, length: int | None = None, throttle: Throttle | None = None
    ) -> AnyFlow:
        """A flow from one side to the other: through the kernel where it can, else through this process."""
        if isinstance(source[0], socket.socket) and isinstance(destination[0], socket.socket):
            return Flow(self.pipes, source[1], destination[1], length, throttle)
        return CopyFlow(source[0], destination[0], length, throttle)

    def wait_for_pipes(self, pump: Callable[[], None]) -> None:
        """Call `pump` once, when a descriptor for a pipe may be free again, however often this is called before."""
        self.problems.occurred(NO_DESCRIPTORS, "no descriptor is left for pipes: connections wait")
        if not self._without_pipe:
            self.loop.call_later(PIPE_WAIT, self._try_for_pipes)
        self._without_pipe[pump] = None

    def _try_for_pipes(self) -> None:
        """Call them in turn until one finds that there is still no descriptor: the others would, too."""
        waiting, self._without_pipe = self._without_pipe, {}
        while waiting and not self._without_pipe:
            pump = next(iter(waiting))
            del waiting[pump]
            pump()
        self._without_pipe.update(waiting)

    # --- connections ---

    def clock(self) -> float:
        """Unix seconds at the actor's start, and on from there whatever happens to the wall clock."""
        return self.loop.now + self._epoch

    def new_number(self) -> int:
        """A new connection's number: when it came, in microseconds of `clock`, and no two alike."""
        self._last_number = max(self._last_number + 1, int(self.clock() * 1e6))
        return self._last_number

    def connection_id(self, number: int) -> str:
        """The id of a connection: its number, and what distinguishes this process from all others."""
        return f"{number:x}{self.id_prefix[:8]}"

    def add(self, connection: Connection) -> None:
        """Register a client connection that was accepted."""
        if self.debug:
            trace.note(self.connection_id(connection.number), "accepted from %s", connection.client_ip)
        self.stats.values[CONNECTIONS] += 1
        self.connections.add(connection)
        if self.limits.counts_clients:
            self.limits.connection_opened(connection)

    def remove(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        if self.debug:
            age = self.clock() - connection.number / 1e6
            trace.note(self.connection_id(connection.number), "ended after %.3f s", age)
        self.connections.discard(connection)
        self.timers.cancel(connection)
        if connection.meter is not None:
            connection.meter.close()
        if self.limits.counts_clients:
            self.limits.connection_closed(connection)
        if not self.connections and self.on_empty is not None:
            self.on_empty()

    def replace(self, connection: Connection, successor: Connection) -> None:
        """Put a tunnel or association in the place of the client connection that has become it."""
        self.connections.discard(connection)
        self.timers.cancel(connection)
        self.connections.add(successor)
        if successor.meter is not None:
            successor.meter.holder = successor
        if self.limits.counts_clients:
            self.limits.connection_closed(connection)
            self.limits.connection_opened(successor)

    def tunnel_ended(self, tunnel: Connection, report: Report) -> None:
        """Count, record and remove a tunnel or association that has ended."""
        if self.debug:
            trace.note_report(self.connection_id(tunnel.number), report, None)
        self.stats.exchange_ended(report, tunnel.client_ip)
        self.remove(tunnel)

    def handshake_failed(self, connection: Connection, failure: Failure) -> None:
        """Count a failed TLS handshake with a client, and record it within bounds."""
        if self.debug:
            trace.note(self.connection_id(connection.number), "%s: %s", failure.reason, failure.detail)
        self.stats.handshake_failed(connection.client_ip, failure)

    def crashed(self, connection: Connection, error: Exception) -> None:
        """Count and log an unforeseen exception within a connection, and end that connection alone."""
        self.count_crash(f"a connection of {connection.client_ip}", error)
        try:
            connection.end(REASON)
        except Exception as again:  # noqa: BLE001 - what it was in the middle of may be in its way
            self.count_crash(f"the end of a connection of {connection.client_ip}", again)
        if connection in self.connections:
            connection.drop()
            self.remove(connection)

    def count_crash(self, what: str, error: Exception) -> None:
        """Count and log an unforeseen exception, with which `what` ends."""
        self.stats.values[INTERNAL_ERRORS] += 1
        self._crashes.add(what, error, self.loop.now)

    def __repr__(self) -> str:
        return f"<ForwardingContext of {self.stats.proxy_id or 'no proxy yet'}: {len(self.connections)} connections>"
