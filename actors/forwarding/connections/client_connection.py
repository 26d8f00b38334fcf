"""One client connection: it executes what its session commands, and reports to the session what happens.

Origin connections that are authenticated themselves (NTLM, Negotiate: RFC 4559) belong to one client connection.
Between two requests such a connection is parked here and not in the pool. It serves the next request of the same user
to the same target; for any other it is closed. When it ends, the client's connection ends, too (RFC 4559 section 6),
since what the client sends after that would go over a connection that is not authenticated.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from actors.bus.loop import Loop
from actors.forwarding.access.username_parameters import NO_PARAMETERS
from actors.forwarding.connections.client_io import ClientIO
from actors.forwarding.context import ForwardingContext
from actors.forwarding.decision import ANONYMOUS, Subject
from actors.forwarding.isolation import isolated
from actors.forwarding.limits.meter import Meter, account_of
from actors.forwarding.net.connection_pool import ConnectionPool, OriginConnection
from actors.forwarding.net.timer_wheel import NEVER, QUANTUM
from actors.forwarding.open_connections import ConnectionInfo
from actors.forwarding.protocols.commands import Command
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority
from actors.net.proxy_protocol import Ends
from actors.net.transport import Transport, reset_on_close, unsent
from actors.pools.upstream import Upstream

if TYPE_CHECKING:
    from actors.forwarding.access.directory import PeerCertificate
    from actors.forwarding.policies.judge import Judge

Handlers = Mapping[type[Any], Callable[["ClientConnection", Any], list[Command] | None]]
"""What executes each kind of command; it returns the commands that follow from an outcome that is known at once."""


class PendingOrigin(Protocol):
    """An origin connection on its way: dialled, awaited, or routed through an upstream."""

    @property
    def overdue(self) -> Failure | None:
        """What it fails with when its time has passed; None: as whatever takes too long."""

    def cancel(self) -> None:
        """Stop it."""


class PendingAuth(Protocol):
    """A check of credentials that is under way."""

    def cancel(self) -> None:
        """Ignore its result."""


Served = tuple[str, int, str]
"""What a request is for: host, port, and the user of this proxy."""


class BoundOrigin:
    """The place of one client connection for such a connection, from its first one on; none of the pool's serves it.

    `on_lost` is called when the parked connection has ended.
    """

    __slots__ = ("_loop", "_on_lost", "_origin", "_pool", "_served")

    def __init__(self, loop: Loop, pool: ConnectionPool, on_lost: Callable[[], None]) -> None:
        self._loop = loop
        self._pool = pool
        self._on_lost = on_lost
        self._origin: OriginConnection | None = None
        self._served: Served | None = None

    def park(self, origin: OriginConnection, served: Served | None) -> None:
        """Keep a connection whose last exchange ended well, and was for `served`."""
        self._origin = origin
        self._served = served
        origin.readable = False
        self._loop.set_handler(origin.fd, self._on_idle_event)

    def acquire(self, wanted: Served | None, forward: bool) -> OriginConnection | None:
        """The parked connection for the client's next request; closed, and None, when it doesn't serve that one."""
        origin = self._origin
        if origin is not None and origin.epoch == self._pool.epoch and forward and wanted == self._served:
            self._origin = None
            return origin
        self.close()
        return None

    def _on_idle_event(self, mask: int) -> None:
        """It has ended, or sends bytes that respond to no request. An edge of being writable means nothing."""
        origin = self._origin
        if origin is not None and mask & ~select.EPOLLOUT and (origin.plain or not origin.is_reusable):
            self.close()
            self._on_lost()

    def close(self) -> None:
        """Close the parked connection."""
        origin, self._origin = self._origin, None
        if origin is not None:
            self._pool.close(origin)

    def __repr__(self) -> str:
        return f"<BoundOrigin for {self._served}: {'in use or closed' if self._origin is None else 'parked'}>"


Suspects = tuple[tuple[Upstream, int, str], ...]


class Tries(NamedTuple):
    """The upstreams of a pool that a request was sent to in vain.

    `suspects` have failed in a way that may be the target's fault: each with the status, 0 without one, and the cause.
    """

    tried: tuple[Upstream, ...] = ()
    suspects: Suspects = ()


NO_TRIES: Final = Tries()


class RequestContext:
    """What belongs to one request, and to none before or after it: made new as soon as the one before is reported."""

    __slots__ = ("admitted", "asked_at", "failures", "identity", "judge", "pool", "target", "tries", "upstream")

    def __init__(self) -> None:
        self.identity = ANONYMOUS
        """Who sends it."""
        self.target: Authority | None = None
        self.admitted = False
        """Whether credentials, account and limits have admitted it already: it may be sent twice."""
        self.judge: Judge | None = None
        """What judges it, where the proxy has policies."""
        self.pool = ""
        """The pool whose upstreams a policy has chosen for it; empty: those of the proxy."""
        self.upstream: Upstream | None = None
        """The upstream that it goes through, if any."""
        self.asked_at = 0.0
        """When that began to be connected to for it, or a kept connection got it."""
        self.failures: Sequence[tuple[Upstream, str]] = ()
        """The upstreams that it was sent to in vain, whatever is tried again, and what each did."""
        self.tries = NO_TRIES
        """What upstreams of a pool have made of it."""

    @property
    def target_text(self) -> str:
        """`host:port`, with an IPv6 address in brackets; empty without a target."""
        target = self.target
        if target is None:
            return ""
        return f"[{target.host}]:{target.port}" if ":" in target.host else f"{target.host}:{target.port}"

    @property
    def served(self) -> Served | None:
        """What an origin connection of its own would be kept for."""
        target = self.target
        return None if target is None else (target.host, target.port, self.identity.user)

    def __repr__(self) -> str:
        return f"<RequestContext of {self.identity} for {self.target and self.target.text!r}>"


class ClientConnection(ClientIO):
    """A client connection, whatever protocol its session speaks.

    The handlers of its commands read and change its public attributes, those of `ClientIO` and these:

    - `pending_origin` is an origin connection on its way, `pending_auth` a check of credentials;
    - `bound` has the origin connection that belongs to this client alone, where there ever was one;
    - `datagrams` is the socket of the UDP association that it may become;
    - `request` is what belongs to one request alone, `last` that of the request before.
    """

    __slots__ = (
        "_handlers",
        "_unsent",
        "access",
        "bound",
        "datagrams",
        "last",
        "peer_certificate",
        "pending_auth",
        "pending_origin",
        "proxy_addresses",
        "rejudged",
        "reported",
        "request",
        "scheduled_for",
    )

    def __init__(
        self, context: ForwardingContext, sock: Transport, client_ip: str, listen_port: int, handlers: Handlers
    ) -> None:
        super().__init__(context, sock, client_ip, listen_port)
        self._handlers = handlers
        self._unsent = 0
        self.pending_auth: PendingAuth | None = None
        self.pending_origin: PendingOrigin | None = None
        self.bound: BoundOrigin | None = None
        self.datagrams: socket.socket | None = None
        self.request = self.last = RequestContext()
        self.peer_certificate: PeerCertificate | None = None
        """The client's certificate, once it was read and if there is one."""
        self.proxy_addresses: Ends | None = None
        """The client's address and the one that it connected to, from a PROXY protocol header."""
        self.access = context.policy.access
        """The policy that has allowed this client last."""
        self.reported: Failure | None = None
        """What rules in report mode would have refused this client with."""
        self.rejudged = False
        """Whether policies have changed so that tunnels are to end: one that begins now is judged once more."""
        self.scheduled_for = NEVER
        context.timers.schedule(self)

    @property
    def id(self) -> str:
        """Its id in the log and in lists of connections."""
        return self.context.connection_id(self.number)

    @property
    def subject(self) -> Subject:
        """What policies may want to know of the one that sends its request."""
        identity = self.request.identity
        account, asked = account_of(self.meter), identity.parameters.asked
        return Subject(self.client_ip, self.listen_port, identity.user, account, asked)

    @property
    def fileno(self) -> int:
        """The descriptor of the client's connection."""
        return self.sock.fileno()

    @property
    def waits(self) -> bool:
        """See `Requester`."""
        return not (self.closed or self.client_ended)

    # --- commands ---

    def execute(self, commands: list[Command]) -> None:
        """Execute what the session commands, in order."""
        handlers = self._handlers
        for command in commands:
            more = handlers[type(command)](self, command)
            if more:
                commands.extend(more)  # of an outcome that is known at once; such a command is the last of its list
        if self.session.deadline + QUANTUM < self.scheduled_for and not self.closed:
            self.context.timers.schedule(self)

    def failed(self, failure: Failure) -> list[Command]:
        """Have the session refuse the request. Returns the commands that follow."""
        account = account_of(self.meter)
        if account is not None and not account.disclose:
            failure = failure.undisclosed()
        return self.session.failed(failure, self.loop.now)

    def attach_origin(self, origin: OriginConnection) -> None:
        """Make `origin` the other side, and take over its events."""
        self.origin = origin
        self.origin_ended = self.origin_broke = False
        self.loop.set_handler(origin.fd, self.on_origin)

    def release_origin(self, reusable: bool, authenticated: bool = False) -> None:
        """Release the origin's connection to the pool, or close it; keep it if it is `authenticated` itself."""
        origin, self.origin = self.origin, None
        if self.request_relay is not None or self.response_relay is not None:
            self._abort_relays()
        if origin is None:
            return
        if origin.upstream is not None:
            origin.upstream.release()
        reusable = reusable and not self.origin_ended and origin.is_reusable
        if authenticated or origin.authenticated:
            self._park_bound(origin, reusable)
        elif reusable:
            self.context.pool.release(origin)
        else:
            self.context.pool.close(origin)

    def _park_bound(self, origin: OriginConnection, reusable: bool) -> None:
        """Keep an origin connection for this client alone; where that can't be, end the client's connection as well."""
        origin.authenticated = True
        if self.bound is None:
            self.bound = BoundOrigin(self.loop, self.context.pool, self._stop_when_idle)
        if reusable and not self.closed:
            self.bound.park(origin, self.last.served)
        else:
            self.context.pool.close(origin)
            self.loop.call_soon(self._stop_when_idle)

    def _stop_when_idle(self) -> None:
        self.stop_keep_alive(allow_first_request=False)

    def metered(self) -> Meter:
        """Its meter, a new one where nothing was limited or counted until now."""
        if self.meter is None:
            self.meter = self.context.limits.meter()
            self.meter.inward.unattributed, self.meter.outward.unattributed = self.bytes_in, self.bytes_out
        return self.meter

    # --- for `OpenConnection` ---

    def measure(self, meter: Meter) -> None:
        """See `MeteredConnection`. A request that was admitted already is not admitted a second time."""
        self.meter = meter
        meter.admitted = self.origin is not None or self.pending_origin is not None
        if self.request_relay is not None:
            self.request_relay.limit(meter.inward)
        if self.response_relay is not None:
            self.response_relay.limit(meter.outward)

    def destinations_changed(self) -> None:
        """See `MeteredConnection`: requests are judged as they come, and tunnels once more when they begin."""

    def policies_changed(self) -> None:
        """See `OpenConnection`: requests are judged as they come, and tunnels once more when they begin."""
        self.rejudged = True

    def info(self) -> ConnectionInfo:
        """What it is doing now; its target is that of the last request."""
        request = self.last if self.request.target is None else self.request
        upstream = "" if request.upstream is None else request.upstream.name
        identity, target, state, origin = request.identity, request.target_text, self._state(), self.origin
        info = ConnectionInfo(
            self.client_ip,
            identity.user,
            target,
            state,
            self.bytes_in,
            self.bytes_out,
            upstream,
            identity.credential_id,
            listen_port=self.listen_port,
        )
        if identity.parameters is not NO_PARAMETERS:
            info = info._replace(parameters=identity.parameters.recorded)
        if request.upstream is not None and request.upstream.pool:
            info = info._replace(pool=request.upstream.pool)
        if origin is None or not origin.left_from:
            return info
        return info._replace(source_address=origin.left_from, source_rule=origin.source_rule)

    def _state(self) -> str:
        session = self.session
        if session.closed:
            return "closing"
        if session.authorizing:
            return "authorizing"
        if session.opening:
            return "connecting"
        return "idle" if session.idle else "active"

    # --- ends ---

    @property
    def deadline(self) -> float:
        """When it expires."""
        return NEVER if self.closed else self.session.deadline

    @isolated
    def expire(self) -> None:
        """The session's deadline has passed. What the kernel still delivers counts as movement."""
        waiting = unsent(self.sock.fileno())
        if waiting and waiting != self._unsent:
            self._unsent = waiting
            self.session.note_progress(self.loop.now)
            return
        if self.meter is not None and self.meter.waiting and not self.session.idle:
            self.session.note_progress(self.loop.now)  # a limit of ours holds it up
            if self.session.deadline > self.loop.now:
                return
        if self.closing:
            self.close(abort=True)
            return
        pending, now = self.pending_origin, self.loop.now
        self._cancel_pending_origin()
        failure = None if pending is None else pending.overdue
        if failure is not None and self.session.opening:
            self.execute(self.failed(failure))
        else:
            self.execute(self.session.timed_out(now))

    def _cancel_pending_origin(self) -> None:
        pending, self.pending_origin = self.pending_origin, None
        if pending is not None:
            pending.cancel()

    def end(self, reason: str) -> None:
        """End it from outside; what is under way is reported with `reason`."""
        if not self.closed:
            self.execute(self.session.abort(reason, self.loop.now))

    @isolated
    def stop_keep_alive(self, allow_first_request: bool) -> None:
        """Serve no further request; finish what is under way. With `allow_first_request` an unused one may send one."""
        self.session.disable_keep_alive()
        self.client_readable = True
        self.pump()  # a request that has come already is the last one
        if allow_first_request and not self.session.has_request:
            return
        if self.session.idle and not self.closing and not self.closed:
            self.close_when_sent()

    def close_when_sent(self) -> None:
        """Close it once the client has been sent all that is buffered."""
        self.closing = True
        if not self.send_buffer:
            self._finish_closing()

    def _finish_closing(self) -> None:
        """Close it, all being sent, so that the client can read the last of it (see `lingering_close`)."""
        if self.closed:
            return
        if self.client_ended:
            self.close(abort=False)
        else:
            self._release()
            self.context.lingering.close(self.sock, self.client_ip)

    def close(self, abort: bool) -> None:
        """Close it now; with `abort` the client sees a reset."""
        if self.closed:
            return
        self._release()
        if abort:
            reset_on_close(self.sock)
        self.loop.unwatch_closed(self.sock.fileno())
        self.sock.close()

    def _release(self) -> None:
        """Release everything but the client's socket."""
        self.closed = True
        self._cancel_pending_origin()
        if self.pending_auth is not None:
            self.pending_auth.cancel()
        if self.datagrams is not None:
            self.datagrams.close()
        self.release_origin(reusable=False)
        if self.bound is not None:
            self.bound.close()
        self.context.remove(self)

    def handshake_failed(self, error: OSError) -> None:
        """See `ClientIO`."""
        from actors.forwarding.net.tls_server import handshake_failure  # only https proxies pay for it

        failure = handshake_failure(error, getattr(self.sock, "has_received", False))
        if failure is not None:
            self.context.handshake_failed(self, failure)

    def crashed(self, error: Exception) -> None:
        """See `isolation`."""
        self.context.crashed(self, error)

    def drop(self) -> None:
        """See `OpenConnection`."""
        self.closed = True
        origin = self.origin
        for sock in (self.sock, self.datagrams, None if origin is None else origin.sock):
            if sock is not None:
                self.loop.unwatch_closed(sock.fileno())
                sock.close()

    def __repr__(self) -> str:
        return f"<ClientConnection {self.client_ip} {self.session!r}, {len(self.send_buffer)} bytes to send>"
