"""One attempt to get a connection through one parent: dial, a preface, TLS, a handshake, each where it is wanted.

On a plain connection the parent's bytes are looked at first (MSG_PEEK) and only what the handshake uses is taken, so
what is behind it stays in the kernel, for the tunnel or for `splice`. Until the parent has been told the target the
attempt has a timeout of its own; from then on the deadline is the caller's: it calls `cancel`.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import NamedTuple

from actors.bus.loop import Timer
from actors.forwarding.isolation import REASON
from actors.forwarding.net.dialer import Dialer
from actors.forwarding.protocols.failures import PROHIBITED, Failure
from actors.forwarding.protocols.http.targets import Authority
from actors.forwarding.upstreams.handshake import Blame, Handshake, ParentFailed, unusable
from actors.forwarding.upstreams.tls_client import ParentStream
from actors.net.send_buffer import push
from actors.net.transport import Transport

LOOK_SIZE = 64 * 1024

_NOT_TO_BE_USED = Failure(503, "destination_unavailable", "the upstream proxy can't be used")
"""What a client hears of an upstream that the guard refuses: nothing about where it is."""

OnDone = Callable[["Transport | ParentFailed"], None]


class Plan(NamedTuple):
    """What is to be done once the connection to `address` is there; what is None is left out."""

    address: Authority
    timeout: float
    preface: bytes = b""
    context: ssl.SSLContext | None = None
    server_name: str = ""
    handshake: Handshake | None = None


class Attempt:
    """`done` is called once, later, unless the attempt is cancelled before; a connection is given over watched."""

    def __init__(self, dialer: Dialer, plan: Plan, done: OnDone) -> None:
        self._dialer = dialer
        self._loop = dialer.loop
        self._plan = plan
        self._done: OnDone | None = done
        self._sock: socket.socket | None = None
        self._transport: Transport | None = None
        self._out = bytearray()
        self._secured = plan.context is None
        self.began = False
        """Has the handshake begun?"""
        self._started = self._loop.now
        self.latency: float | None = None
        """Seconds that connecting took; None before."""
        self._timer: Timer | None = self._loop.call_later(plan.timeout, self._late)
        self._dial = dialer.dial(plan.address, self._dialled)

    @property
    def asked(self) -> bool:
        """Is the answer of the target's side awaited now?"""
        handshake = self._plan.handshake
        return self.began and handshake is not None and handshake.asked

    def cancel(self) -> None:
        """Give up; `done` is not called any more."""
        self._done = None
        self._dial.cancel()
        self._stop_timer()
        self._close()

    def _late(self) -> None:
        what = "connect" if self.latency is None else "complete its handshake"
        failure = Failure(504, "connection_timeout", "the parent proxy does not answer in time")
        self._end(ParentFailed(Blame.PARENT, failure, f"it did not {what} within {self._plan.timeout:g} s"))

    # --- the stages ---

    def _dialled(self, result: socket.socket | Failure) -> None:
        if isinstance(result, Failure):
            told = Failure(result.status, result.kind, "the parent proxy can't be reached")
            said = result.recorded or result.detail
            if result.kind == PROHIBITED:
                told, said = _NOT_TO_BE_USED, f"its address is refused (see proxy.upstreams_allow): {result.detail}"
            self._end(ParentFailed(Blame.PARENT, told, said))
            return
        self._sock = self._transport = result
        self.latency = self._loop.now - self._started
        self._loop.hand_over(result.fileno(), self._on_ready)
        self._out += self._plan.preface
        self._on_ready(0)

    def _on_ready(self, _mask: int) -> None:
        """Go as far as it goes without waiting."""
        try:
            self._go_on()
        except BlockingIOError:
            return
        except ParentFailed as failed:
            self._end(failed)
        except ssl.SSLCertVerificationError as error:
            self._end(unusable(f"its certificate is not accepted: {error.verify_message}", "tls_certificate_error"))
        except ssl.SSLError as error:
            self._end(unusable(f"TLS with it fails: {error.reason or error}", "tls_protocol_error"))
        except OSError as error:
            self._end(unusable(f"its connection broke: {error.strerror or error}", "connection_terminated"))
        except Exception as error:  # noqa: BLE001 - what an upstream sends ends its own connection at most
            self._dialer.on_crash(error)
            failure = Failure(500, REASON, "an error of this proxy itself")
            self._end(ParentFailed(Blame.UNCLEAR, failure, "an error of this proxy itself in the handshake"))

    def _go_on(self) -> None:
        if self._done is None:
            return
        self._send(b"")
        if not self._secured:
            self._secure()
        handshake = self._plan.handshake
        if handshake is None:
            self._arrived()
            return
        if not self.began:
            self.began = True
            self._out += handshake.begin()
            if handshake.asked:
                self._stop_timer()
            self._send(b"")
        while self._take(handshake):
            continue
        self._arrived()

    def _secure(self) -> None:
        context = self._plan.context
        assert context is not None
        if not isinstance(self._transport, ParentStream):
            assert self._sock is not None
            self._transport = ParentStream(self._sock, context, self._plan.server_name)
        self._transport.handshake()
        self._secured = True

    def _send(self, data: bytes) -> None:
        """Send `data` behind what waits. Raises `BlockingIOError` when some of it still waits."""
        assert self._transport is not None
        if data or self._out:
            push(self._transport, self._out, data)
        if self._out:
            raise BlockingIOError

    def _take(self, handshake: Handshake) -> bool:
        """Give the handshake what has come; True when it wants more. Raises what `recv` does."""
        data = self._look()
        if not data:
            raise unusable("it closed the connection within the handshake", "connection_terminated")
        used, done = 0, False
        while used < len(data) and not done:
            step = handshake.feed(data[used:])
            used, done = used + step.used, step.done
            self._out += step.send
        self._use(data, used)
        self._send(b"")
        if handshake.asked:
            self._stop_timer()
        return not done

    def _look(self) -> bytes:
        transport = self._transport
        if isinstance(transport, socket.socket):
            return transport.recv(LOOK_SIZE, socket.MSG_PEEK)
        assert transport is not None
        return transport.recv(LOOK_SIZE)

    def _use(self, data: bytes, used: int) -> None:
        """Take what was used; the rest stays to be read."""
        transport = self._transport
        if isinstance(transport, socket.socket):
            transport.recv(used)
        elif used < len(data):
            assert isinstance(transport, ParentStream)
            transport.unread(data[used:])

    # --- the end ---

    def _arrived(self) -> None:
        assert self._transport is not None
        self._end(self._transport)

    def _end(self, result: Transport | ParentFailed) -> None:
        done, self._done = self._done, None
        self._stop_timer()
        self._dial.cancel()
        if isinstance(result, ParentFailed):
            self._close()
        if done is not None:
            done(result)

    def _close(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            self._loop.unwatch(sock.fileno())
            sock.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __repr__(self) -> str:
        return f"<Attempt at {self._plan.address.text!r}: {self._plan.handshake!r}>"
