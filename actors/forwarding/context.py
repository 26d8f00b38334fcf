"""What all connections of one forwarding actor share, and how a configuration takes effect on it.

The `Date` line of the responses that a proxy makes itself (RFC 9110 6.6.1) is written anew once a second at most.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from actors.bus.loop import Loop
from actors.bus.messages.common import NO_DESCRIPTORS, WORKERS
from actors.bus.messages.specs import AccessSpec, AccountSpec, ClientTlsSpec, EgressSpec, ProxySpec, UpstreamsSpec
from actors.bus.records import Row
from actors.forwarding.access.authenticator import ClientAuthenticator, Testers
from actors.forwarding.access.directory import Directory
from actors.forwarding.access.named_lists import NamedListFiles
from actors.forwarding.access.policy import AccessPolicy
from actors.forwarding.access.rules import AccessRules, OwnRules, own_rules
from actors.forwarding.access.username_parameters import ParameterNames, SessionSuffix, UsernameReader
from actors.forwarding.fleet_objects import FleetObjects
from actors.forwarding.limits.accounts import PASSWORD_CHANGED, REMOVED
from actors.forwarding.limits.accounts_in_use import UnreadableError
from actors.forwarding.limits.meter import Meter
from actors.forwarding.limits.token_bucket import Throttle
from actors.forwarding.net.connection_pool import ConnectionPool
from actors.forwarding.net.dialer import Dialer
from actors.forwarding.net.egress import SESSION, Sources
from actors.forwarding.net.lingering_close import LingeringClose
from actors.forwarding.net.resolver import Resolver, new_threads
from actors.forwarding.net.resolver_link import ResolverLink
from actors.forwarding.net.splice import AnyFlow, CopyFlow, Flow, PipePool
from actors.forwarding.open_connections import OpenConnection, OpenConnections
from actors.forwarding.protocols.http.header_changes import pseudonym_of
from actors.forwarding.protocols.mixed import new_session
from actors.forwarding.protocols.session import HANDSHAKE_TIMEOUT, Session, SessionConfig
from actors.forwarding.proxy_policy import ProxyPolicy, policy_of, via_entry
from actors.forwarding.upstreams.upstream_sets import UpstreamSets
from actors.net.egress_guard import EgressGuard
from actors.net.transport import Transport
from actors.problems import ActiveProblems
from actors.state.live_state import LiveState
from config.files.paths import RunDir

if TYPE_CHECKING:
    from actors.forwarding.policies.judge import PolicySet
    from actors.forwarding.policies.masks import Batches
    from actors.forwarding.upstreams.upstream_set import UpstreamContext, UpstreamSet
    from actors.pools.state import OwnStates

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def http_date(wall: float) -> str:
    """Unix seconds as an IMF-fixdate (RFC 9110 5.6.7), in English whatever the locale."""
    at = time.gmtime(wall)
    day = f"{_DAYS[at.tm_wday]}, {at.tm_mday:02} {_MONTHS[at.tm_mon - 1]} {at.tm_year:04}"
    return f"{day} {at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02} GMT"


class DateLine:
    """Called with the time of a monotonic clock, returns the field's line with its CRLF. `wall` is Unix time."""

    __slots__ = ("_line", "_until", "_wall")

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._line = b""
        self._until = float("-inf")

    def __call__(self, now: float) -> bytes:
        if now >= self._until:
            wall = self._wall()
            self._until = now + 1.0 - wall % 1.0
            self._line = f"Date: {http_date(wall)}\r\n".encode("ascii")
        return self._line


_SUFFIX = SessionSuffix()


def reader_of(spec: ProxySpec, objects: FleetObjects, has_upstreams: bool) -> UsernameReader | None:
    """None: user names are taken as they are. Known are the labels of all upstreams, and what policies ask for.

    Without `username_params` there may be a session where it has an effect: on upstreams, or on source addresses.
    """
    wanted = spec.username_params
    if wanted is None:
        return _SUFFIX if has_upstreams or spec.bind_policy == SESSION else None
    upstreams: list[UpstreamsSpec] = [spec.upstreams, *(pool.upstreams for pool in objects.pools)]
    labels = {name for each in upstreams for entry in each.entries for name, _value in entry.labels}
    marks = {name for each in objects.policies for rule in each.rules for name, _value in rule.params}
    return ParameterNames(wanted.separator, frozenset(labels), frozenset(marks), wanted.reject_unknown)


Visit = Callable[[OpenConnection], None]
"""Something to be done with an open connection."""

Side = tuple[Transport, int]
"""A connection with its descriptor."""

PIPE_WAIT = 0.1
_NO_OBJECTS = FleetObjects()
_NO_FOLDER = Path("/dev/null/pools")
_EGRESS = EgressSpec("public_only", (), ())


class ForwardingContext(OpenConnections):
    """The shared part. `configure` may be called at any time; no connection is accepted before its first call."""

    def __init__(
        self,
        loop: Loop,
        add_record: Callable[[Row], None],
        pool_limit: int,
        keep_alive_timeout: float,
        handshake_timeout: float = HANDSHAKE_TIMEOUT,
        fleet: Path | None = None,
        lists: Path | None = None,
        run_dir: RunDir | None = None,
        contact: str = "",
        state: LiveState | None = None,
    ) -> None:
        """`fleet` is the file with the accounts of the fleet. In `run_dir` are the sockets of the resolvers, and the
        folder with what processes know of the upstreams of pools. Without it names are looked up by the system, and
        each process knows its own of pools. `contact` is as in `SessionConfig`; without `state` the process counts for
        itself alone."""
        state = state or LiveState(lambda: loop.now)
        self.state = state
        """What it counts together with other processes."""
        super().__init__(loop, add_record, state)
        self.problems = ActiveProblems(loop, self.clock)
        self.lists = NamedListFiles(loop, self.problems, lists)
        """The lists that rules name."""
        self.lists.on_changed = self._lists_changed
        self.lingering = LingeringClose(loop, self.timers, self.count_crash)
        self.pipes = PipePool()
        self._without_pipe: dict[Callable[[], None], None] = {}
        session = SessionConfig(keep_alive_timeout=keep_alive_timeout, handshake_timeout=handshake_timeout)
        self._unconfigured(replace(session, date=DateLine(), new_id=self.stats.new_id, contact=contact))
        self._make_ways(pool_limit, run_dir, state)
        self._make_users(fleet, state)
        if run_dir is not None:
            self.limits.client_addresses.path = run_dir.clients
            self.limits.client_addresses.on_failure = partial(self.problems.occurred, WORKERS)

    def _unconfigured(self, session: SessionConfig) -> None:
        """What a configuration replaces, as it is before the first one."""
        self.policy = ProxyPolicy(AccessPolicy(EgressGuard(_EGRESS), AccessRules(AccessSpec())), session)
        self._with_testers = replace(session, accepts_optional_user=True)
        """For sessions of clients that may be a test, known by its user name."""
        self.upstreams: UpstreamSet | None = None
        self.names: UsernameReader | None = None
        """Reads user names with parameters; None: they have none."""
        self.policies: PolicySet | None = None
        """What judges requests; None without policies."""
        self.client_tls: ClientTlsSpec | None = None
        """How clients are asked for a certificate; None: they are not."""
        self._spec: ProxySpec | None = None
        self._egress = _EGRESS
        self._auth: tuple[str, str | None] | None = None
        """The user of `auth` with the hash of the password, as of the last configuration that wants credentials."""

    def _make_ways(self, pool_limit: int, run_dir: RunDir | None, state: LiveState) -> None:
        """What connects to origins and upstreams."""
        link = None if run_dir is None else ResolverLink(self.loop, run_dir)
        names = Resolver(self.loop, new_threads(self.loop), link=link)
        self.dialer = Dialer(self.loop, names, self.policy.access, timers=self.timers)
        self.dialer.on_problem = self.problems.occurred
        self.pool = ConnectionPool(self.loop, self.timers, pool_limit, self.policy.session.keep_alive_timeout)
        self.upstream_sets = UpstreamSets(self._of_upstreams, state, _NO_FOLDER if run_dir is None else run_dir.pools)
        self.sources = Sources(self.loop, state)
        """Where connections leave from."""

    def _make_users(self, fleet: Path | None, state: LiveState) -> None:
        """Who may use the proxy."""
        self.directory = Directory(self.loop, self.problems, fleet)
        self.limits.in_use.source = self.directory
        self.directory.on_changed = self.limits.in_use.changed
        self.authenticator = ClientAuthenticator(self.loop, self.directory, state)
        self.authenticator.backend.on_limits = self.limits.guests.admit
        self.testers = Testers(self.loop)

    @property
    def configured(self) -> bool:
        """False before the first `configure`."""
        return self._spec is not None

    # --- configuration ---

    def configure(
        self,
        spec: ProxySpec,
        egress: EgressSpec,
        objects: FleetObjects = _NO_OBJECTS,
        policies: PolicySet | None = None,
    ) -> Visit | None:
        """Apply a configuration, to the next request of an open connection as well. `policies` are those of `objects`.

        Returns what is still to be done with each connection that is open now. The order matters:

        1. the lists that rules name, the access policy and the source address, by which the dialer and upstreams
           connect from then on; what was connected by others is not kept for reuse;
        2. the upstreams, which take over the dialer's resolver and source address;
        3. the policies, which judge further requests, those on open connections as well;
        4. users, accounts and limits, which end the connections of accounts that have become invalid;
        5. the `ProxyPolicy`, which depends on whether there are upstreams, and what all sessions have of it;
        6. what is returned: when all else is of the new configuration, connections get their meter, those of the `auth`
           user with an outdated password end, and tunnels that policies no longer allow, if that was asked for.
        """
        self.lists.configure(objects.lists)
        access, moved = self._new_access(spec.access, egress), self.sources.configure(spec)
        if moved:
            self.dialer.set_source(self.sources.own)
        if access is not self.policy.access or moved:
            self.dialer.access = access
            self.pool.flush()
        if self.upstream_sets.configure(spec, objects.pools, egress, moved):
            self.pool.flush()
        self.upstreams = self.upstream_sets.own
        self.names = reader_of(spec, objects, self.upstreams is not None)
        self.client_tls = spec.client_tls if spec.speaks_tls else None
        self.authenticator.update(spec)
        self.authenticator.backend.guard_by(egress)
        measure = self.limits.configure(spec)
        judge = self._replace_policies(objects, policies)
        self._spec, self._egress = spec, egress
        self.stats.proxy_id = spec.id
        self._configure_sessions(self._new_session_config(spec))
        self.policy = policy_of(spec, access, self.policy.session)
        return _all_of(measure, self._end_outdated(spec), judge)

    def _new_access(self, spec: AccessSpec, egress: EgressSpec) -> AccessPolicy:
        """The access policy of a configuration: the present one, if it says the same."""
        if self._spec is not None and (spec, egress) == (self._spec.access, self._egress):
            return self.policy.access
        return AccessPolicy(EgressGuard(egress), AccessRules(spec, lists=self.lists))

    def _lists_changed(self) -> None:
        """Connections that were made by the previous version of a list are not kept for reuse."""
        if self._spec is not None:
            access = AccessPolicy(EgressGuard(self._egress), AccessRules(self._spec.access, lists=self.lists))
            self.dialer.access = access
            self.policy = replace(self.policy, access=access)
            self.pool.flush()

    def _new_session_config(self, spec: ProxySpec) -> SessionConfig:
        return replace(
            self.policy.session,
            keep_alive=spec.keep_alive,
            wants_credentials=spec.wants_credentials,
            accepts_optional_user=self.names is not None and not spec.wants_credentials,
            timeout=spec.timeout,
            pseudonym=pseudonym_of(spec.id),
            via=via_entry(spec),
        )

    def _of_upstreams(self, own: OwnStates) -> UpstreamContext:
        from actors.forwarding.upstreams.upstream_set import UpstreamContext  # only with upstreams

        return UpstreamContext(
            self.loop,
            self.pool,
            self.dialer,
            self.problems,
            self.clock,
            lambda: self.policy,
            self.count_crash,
            own,
            self.state,
        )

    def compiling(self, spec: ProxySpec, objects: FleetObjects) -> Batches[PolicySet | None]:
        """Compile the policies of a configuration; None: it has none."""
        if not (spec.policy or objects.policies or objects.first_policy):
            return None
        from actors.forwarding.policies.judge import PolicySet  # only proxies with policies pay for it

        first = objects.first_policy
        return (yield from PolicySet.compiling(objects.policies, first, spec, self.lists, self.policies))

    def _replace_policies(self, objects: FleetObjects, policies: PolicySet | None) -> Visit | None:
        """Returns what ends tunnels that the policies no longer allow, where they are to end."""
        before, self.policies = self.policies, policies
        self.limits.rules.configure(objects.policies)
        if policies is None:
            if before is not None:
                self.pool.flush()
            return None
        return _policies_changed if policies.ends_existing(before) else None

    def judges(self, account: AccountSpec | None) -> bool:
        """Whether policies judge requests of this account. Its own refuse everything until they are here."""
        return self.policies is not None or (account is not None and bool(account.policies))

    def upstreams_of(self, pool: str) -> UpstreamSet | None:
        """The upstreams of the pool of this name, or, without a name, those of the proxy; None: there are none."""
        return self.upstream_sets.of_pool(pool) if pool else self.upstreams

    def _end_outdated(self, spec: ProxySpec) -> Visit | None:
        """What ends connections of an `auth` user whose password has changed or who is gone, as those of accounts."""
        if not spec.wants_credentials:
            return None  # no user is needed any more, so connections of previous users may stay
        now = None if spec.auth_username is None else (spec.auth_username, spec.auth_hash)
        before, self._auth = self._auth, now
        if before is None or now == before:
            return None
        reason = PASSWORD_CHANGED if now is not None and now[0] == before[0] else REMOVED
        return partial(_end_of_user, before[0], reason, self.new_number())

    def set_pooling(self, limit: int, keep_alive_timeout: float) -> None:
        """Apply `proxy.max_idle_connections` and `proxy.keep_alive_timeout`."""
        self.pool.set_limits(limit, keep_alive_timeout)
        self._configure_sessions(replace(self.policy.session, keep_alive_timeout=keep_alive_timeout))

    def set_contact(self, contact: str) -> None:
        """Apply `proxy.contact`."""
        self._configure_sessions(replace(self.policy.session, contact=contact))

    def new_session(self, protocol: str | None = None, started: float | None = None) -> Session:
        """The session of a client, which has just come and speaks the proxy's protocol unless it is said otherwise."""
        now = self.loop.now if started is None else started
        config = self._with_testers if self.testers else self.policy.session
        return new_session(protocol or self.policy.protocol, config, now)

    def _configure_sessions(self, config: SessionConfig) -> None:
        self.policy.session.become(config)
        self._with_testers.become(replace(config, accepts_optional_user=not config.wants_credentials))

    def is_shared_account(self, user: str) -> bool:
        """Whether this authenticated user can only be an account of the shared table."""
        return bool(user) and self.policy.session.wants_credentials and not self.directory.is_own(user)

    def own_rules(self, meter: Meter | None) -> OwnRules:
        """The rules about destinations of the account and credential that a connection belongs to."""
        account = None if meter is None else meter.account
        if meter is None or account is None:
            return ()
        if self.limits.in_use.outdated:
            self._bring_up_to_date(meter)
        return own_rules(account.spec, None if meter.credential is None else meter.credential.spec, self.lists)

    def _bring_up_to_date(self, meter: Meter) -> None:
        for each in (meter.account, meter.credential):
            try:
                if each is not None:
                    self.limits.in_use.bring_up_to_date(each.spec.id)
            except UnreadableError:
                return  # they go on until the table can be read

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

    def __repr__(self) -> str:
        return f"<ForwardingContext of {self.stats.proxy_id or 'no proxy yet'}: {len(self.connections)} connections>"


def _end_of_user(user: str, reason: str, since: int, connection: OpenConnection) -> None:
    """End it if it is from before the number `since`, and this user's."""
    of_account = connection.meter is not None and connection.meter.account is not None
    if not of_account and connection.number < since and connection.info().user == user:
        connection.end(reason)


def _policies_changed(connection: OpenConnection) -> None:
    connection.policies_changed()


def _all_of(*visits: Visit | None) -> Visit | None:
    """Those that are not None, in their order; None: there is none."""
    wanted = [each for each in visits if each is not None]

    def visit(connection: OpenConnection) -> None:
        for each in wanted:
            each(connection)

    return visit if wanted else None
