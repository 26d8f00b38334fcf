"""One attempt to get a connection through one upstream: dial, a preface, TLS, a handshake, each where it is wanted.

On a plain connection the upstream's bytes are peeked at (MSG_PEEK) and only what the handshake uses is taken, so
what is behind it stays in the kernel, for the tunnel or for `splice`. Until the upstream has been sent the target the
attempt has a timeout of its own; from then on the deadline is the caller's, who calls `cancel`.

The certificate of an `https` upstream is verified against the system's authorities or those of `ca_file`, for
`server_name` or else the host as it is configured; `verify: false` accepts any. TLS 1.2 and newer, ALPN `http/1.1`.

What it needs for that is the way to upstreams themselves: their addresses, TLS, and which addresses they may have.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from actors.bus.messages.specs import AccessSpec, EgressSpec, UpstreamSpec
from actors.forwarding.access.policy import AccessPolicy
from actors.forwarding.access.rules import AccessRules
from actors.forwarding.isolation import REASON
from actors.forwarding.net.dialer import Dialer
from actors.forwarding.net.source_address import SourceAddress
from actors.forwarding.net.timer_wheel import NEVER
from actors.forwarding.protocols.failures import NO_SOURCE_ADDRESS, PROHIBITED, SOURCE_LOST, Failure
from actors.forwarding.protocols.http.targets import Authority, authority_of_name
from actors.forwarding.upstreams.handshake import Blame, Handshake, UpstreamFailed, unusable
from actors.net.egress_guard import UpstreamGuard
from actors.net.send_buffer import push
from actors.net.tls_stream import TlsStream
from actors.net.transport import Transport

PEEK_SIZE = 64 * 1024

_NOT_TO_BE_USED = Failure(503, "destination_unavailable", "the upstream proxy can't be used")
"""For an upstream whose address the guard refuses: it says nothing about where the upstream is."""

OnDone = Callable[["Transport | UpstreamFailed"], None]


def context_for(spec: UpstreamSpec) -> ssl.SSLContext:
    """A context for connections to this upstream. Raises `UpstreamFailed` when `ca_file` can't be used."""
    try:
        context = ssl.create_default_context(cafile=spec.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise unusable(f"ca_file {spec.ca_file} can't be used: {error}", "proxy_configuration_error") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if not spec.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class AttemptPlan(NamedTuple):
    """The steps on a connection to `address`; those that are None are left out."""

    address: Authority
    timeout: float
    preface: bytes = b""
    context: ssl.SSLContext | None = None
    server_name: str = ""
    handshake: Handshake | None = None


class Attempt:
    """`done` is called once, later, unless the attempt is cancelled before; the connection it gets is watched."""

    def __init__(self, dialer: Dialer, plan: AttemptPlan, done: OnDone, source: SourceAddress | None = None) -> None:
        """`source`: where it leaves from; None: from where all of the proxy do."""
        self._dialer = dialer
        self._loop = dialer.loop
        self._plan = plan
        self._done: OnDone | None = done
        self._sock: socket.socket | None = None
        self._transport: Transport | None = None
        self._out = bytearray()
        self._secured = plan.context is None
        self.began = False
        """Whether the handshake has begun."""
        self._started = self._loop.now
        self.latency: float | None = None
        """Seconds that all of it took; None before its success."""
        self.deadline = self._started + plan.timeout
        self.scheduled_for = NEVER
        dialer.timers.schedule(self)
        self._source = source
        self._dial = dialer.dial(plan.address, self._on_dialled, source=source)

    @property
    def target_sent(self) -> bool:
        """True while the upstream is connecting to the target."""
        handshake = self._plan.handshake
        return self.began and handshake is not None and handshake.target_sent

    def cancel(self) -> None:
        """Stop it, without calling `done`."""
        self._done = None
        self._dial.cancel()
        self._stop_timer()
        self._close()

    def expire(self) -> None:
        """It has taken too long."""
        what = "connect" if self._sock is None else "complete its handshake"
        failure = Failure(504, "connection_timeout", "the upstream proxy did not respond in time")
        self._end(UpstreamFailed(Blame.UPSTREAM, failure, f"it did not {what} within {self._plan.timeout:g} s"))

    # --- the stages ---

    def _on_dialled(self, result: socket.socket | Failure) -> None:
        if isinstance(result, Failure):
            failure = Failure(result.status, result.kind, "the upstream proxy can't be reached")
            cause = result.recorded or result.detail
            if result.kind == PROHIBITED:
                failure, cause = _NOT_TO_BE_USED, f"its address is refused (see proxy.upstreams_allow): {result.detail}"
            blame = Blame.UPSTREAM
            if self._source is not None and (result.rule == NO_SOURCE_ADDRESS or result is SOURCE_LOST):
                blame = Blame.UNFIT  # nothing was sent to it: this is about the request
                failure = replace(failure, rule=result.rule, entry=result.entry)
            self._end(UpstreamFailed(blame, failure, cause))
            return
        self._sock = self._transport = result
        self._loop.set_handler(result.fileno(), self._on_ready)
        self._out += self._plan.preface
        self._on_ready(0)

    def _on_ready(self, _mask: int) -> None:
        """Take all steps that need no waiting."""
        try:
            self._advance()
        except BlockingIOError:
            return
        except UpstreamFailed as failed:
            self._end(failed)
        except ssl.SSLCertVerificationError as error:
            self._end(unusable(f"its certificate is not accepted: {error.verify_message}", "tls_certificate_error"))
        except ssl.SSLError as error:
            cause = f"TLS with it fails: {error.reason or error}"
            self._end(self._lost(cause) if self.target_sent else unusable(cause, "tls_protocol_error"))
        except OSError as error:
            self._end(self._lost(f"its connection broke: {error.strerror or error}"))
        except Exception as error:  # noqa: BLE001 - what an upstream sends ends its own connection at most
            self._dialer.on_crash(error)
            failure = Failure(500, REASON, "an error of this proxy itself")
            self._end(UpstreamFailed(Blame.UNCLEAR, failure, "an error of this proxy itself in the handshake"))

    def _advance(self) -> None:
        if self._done is None:
            return
        self._send(b"")
        if not self._secured:
            self._secure()
        handshake = self._plan.handshake
        if handshake is None:
            self._succeed()
            return
        if not self.began:
            self.began = True
            self._out += handshake.begin()
            if handshake.target_sent:
                self._stop_timer()
            self._send(b"")
        while self._feed(handshake):
            continue
        self._succeed()

    def _secure(self) -> None:
        context = self._plan.context
        assert context is not None
        if not isinstance(self._transport, TlsStream):
            assert self._sock is not None
            self._transport = TlsStream(self._sock, context, self._plan.server_name)
        self._transport.handshake()
        self._secured = True

    def _send(self, data: bytes) -> None:
        """Send `data` behind what waits. Raises `BlockingIOError` when some of it still waits."""
        assert self._transport is not None
        if data or self._out:
            push(self._transport, self._out, data)
        if self._out:
            raise BlockingIOError

    def _feed(self, handshake: Handshake) -> bool:
        """Feed the handshake with what has come. Returns True when it wants more. Raises as `recv`."""
        data = self._peek()
        if not data:
            raise self._lost("it closed the connection within the handshake")
        used, done = 0, False
        while used < len(data) and not done:
            step = handshake.feed(data[used:])
            used, done = used + step.used, step.done
            self._out += step.send
        self._consume(data, used)
        self._send(b"")
        if handshake.target_sent:
            self._stop_timer()
        return not done

    def _lost(self, cause: str) -> UpstreamFailed:
        """Once it has the target, that may be the cause."""
        if not self.target_sent:
            return unusable(cause, "connection_terminated")
        failure = Failure(502, "connection_terminated", "the upstream proxy ended the connection without a response")
        return UpstreamFailed(Blame.UNCLEAR, failure, cause)

    def _peek(self) -> bytes:
        transport = self._transport
        if isinstance(transport, socket.socket):
            return transport.recv(PEEK_SIZE, socket.MSG_PEEK)
        assert transport is not None
        return transport.recv(PEEK_SIZE)

    def _consume(self, data: bytes, used: int) -> None:
        """Take the used bytes from the connection; the rest stays to be read."""
        transport = self._transport
        if isinstance(transport, socket.socket):
            transport.recv(used)
        elif used < len(data):
            assert isinstance(transport, TlsStream)
            transport.unread(data[used:])

    # --- the end ---

    def _succeed(self) -> None:
        assert self._transport is not None
        self.latency = self._loop.now - self._started
        self._end(self._transport)

    def _end(self, result: Transport | UpstreamFailed) -> None:
        done, self._done = self._done, None
        self._stop_timer()
        self._dial.cancel()
        if isinstance(result, UpstreamFailed):
            self._close()
        if done is not None:
            done(result)

    def _close(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            self._loop.unwatch(sock.fileno())
            sock.close()

    def _stop_timer(self) -> None:
        self.deadline = NEVER
        self._dialer.timers.cancel(self)

    def __repr__(self) -> str:
        return f"<Attempt at {self._plan.address.text!r}: {self._plan.handshake!r}>"


class AttemptPlanner:
    """Makes plans, and keeps what several have in common."""

    def __init__(self) -> None:
        self._contexts: dict[tuple[bool, str | None], ssl.SSLContext] = {}
        self._authorities: dict[str, Authority] = {}

    def plan(self, spec: UpstreamSpec, timeout: float) -> AttemptPlan:
        """The way to the upstream itself. Raises `UpstreamFailed` when its `ca_file` can't be used."""
        address = self._authorities.get(spec.host)
        if address is None or address.port != spec.port:
            address = self._authorities[spec.host] = authority_of_name(spec.host.encode("ascii"), spec.port)
        context = self._context(spec) if spec.protocol == "https" else None
        return AttemptPlan(address, timeout, context=context, server_name=spec.server_name or spec.host)

    def _context(self, spec: UpstreamSpec) -> ssl.SSLContext:
        kind = (spec.verify, spec.ca_file)
        if kind not in self._contexts:
            self._contexts[kind] = context_for(spec)
        return self._contexts[kind]


def access_to_upstreams(egress: EgressSpec, fetched: bool = False) -> AccessPolicy:
    """Which addresses upstreams may have; `fetched`: those from a source."""
    return AccessPolicy(UpstreamGuard(egress, fetched=fetched), AccessRules(AccessSpec()))
