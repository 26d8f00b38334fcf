"""The check of the name in a client's TLS handshake, before its first octet is sent to the origin of a tunnel.

The client's first flight is read to the end of its ClientHello and then written on in one piece. Where a mismatch is
only recorded, the origin's octets pass meanwhile, as protocols want whose server speaks first. Where it is refused,
they wait until the ClientHello is accepted, and the origin's first record is looked at: it may be a
HelloRetryRequest (RFC 8446 section 4.1.4), which a client responds to with a second ClientHello, whose name is checked
as well.

=============  ======================================================  ==============================================
state          the client's octets                                     the origin's octets
=============  ======================================================  ==============================================
``HELLO``      read until the ClientHello is complete                  pass; where refusals are enforced: wait
``SERVER``     pass, up to the beginning of a handshake record         wait until the kind of the first message is known
``RETRY``      as in ``SERVER``, then read until the second            pass
               ClientHello is complete
(no gate)      pass                                                    pass
=============  ======================================================  ==============================================

``SERVER`` and ``RETRY`` are for handshakes of TLS 1.3 whose refusal is enforced; for all others the gate is gone after
``HELLO``. The tunnel moves what passes, and ends by itself what is idle.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from actors.forwarding.access.tls_names import (
    MISMATCH,
    NO_NAME,
    OFF,
    RECORD,
    TIMEOUT,
    TlsCheck,
    check_in_force,
    refusal,
)
from actors.forwarding.context import ForwardingContext
from actors.forwarding.decision import decide_other_name
from actors.forwarding.isolation import isolated
from actors.forwarding.net.timer_wheel import NEVER
from actors.forwarding.protocols.commands import Tunnel as TunnelCommand
from actors.forwarding.protocols.failures import tls_name_denied
from actors.forwarding.protocols.http.targets import Authority
from actors.forwarding.reporting import trace
from actors.net.client_hello import (
    MALFORMED,
    NOT_TLS,
    UNRECOGNIZED_NAME_ALERT,
    BadHello,
    ClientHello,
    HandshakeWatch,
    HelloReader,
    is_retry_request,
)
from config.text.reasons import REPORTED

if TYPE_CHECKING:
    from actors.forwarding.access.policy import Decision
    from actors.forwarding.access.rules import OwnRules
    from actors.forwarding.connections.client_connection import ClientConnection
    from actors.forwarding.connections.tunnel import TunnelConnection
    from actors.forwarding.policies.judge import Judge, PolicyVerdict
    from actors.forwarding.protocols.failures import Failure

_READ_SIZE: Final = 16 * 1024
_CONNECT: Final = b"CONNECT"
_TLS_1_3: Final = "1.3"


class _State(Enum):
    HELLO = "the client's first flight is read"
    SERVER = "the origin's first message decides"
    RETRY = "the client's second flight is read"


_HELLO: Final[_State] = _State.HELLO
_SERVER: Final[_State] = _State.SERVER
_RETRY: Final[_State] = _State.RETRY


class TlsNameGate:
    """Stands before the client's direction of one tunnel; see the table above. It has a deadline of its own."""

    __slots__ = (
        "_context",
        "_early",
        "_hello",
        "_judge",
        "_kind",
        "_reader",
        "_seen",
        "_state",
        "_target",
        "_tunnel",
        "_waiting",
        "_watch",
        "check",
        "deadline",
        "enforced",
        "scheduled_for",
    )

    def __init__(
        self,
        context: ForwardingContext,
        target: Authority,
        check: TlsCheck,
        early: bytes,
        judge: Judge | None = None,
        others_hold: bool = False,
    ) -> None:
        """`early` is what the client has sent already; `judge` has judged the request, None without policies.
        `others_hold`: rules of an account or a policy hold as well, which refuse in the proxy's report mode, too."""
        self.check = check
        self.enforced = check.check != RECORD and (others_hold or not check.reported)
        """Whether the tunnel may be refused."""
        self.deadline = context.loop.now + context.policy.session.handshake_timeout
        self.scheduled_for = NEVER
        self._context = context
        self._target = target
        self._early = early
        self._judge = judge
        self._kind = ""
        """What was found, to be counted once: a second ClientHello may change it."""
        self._state = _HELLO
        self._reader = HelloReader()
        self._hello: ClientHello | None = None
        self._watch: HandshakeWatch | None = None
        self._waiting = b""
        """The client's octets from a handshake record on, until it is known whether a second ClientHello may be one."""
        self._seen = b""
        """What has come of the origin, until the kind of its first message is known."""
        self._tunnel: TunnelConnection | None = None

    def guard(self, tunnel: TunnelConnection) -> bool:
        """Begin: `tunnel` is there, and moves nothing of what waits. Returns whether there is something to read."""
        self._tunnel = tunnel
        self._context.timers.schedule(self)
        return bool(self._early)

    def close(self) -> None:
        """The tunnel has ended, or all passes from now on."""
        self.deadline = NEVER
        self._context.timers.cancel(self)
        self._tunnel = None
        if self._kind:
            self._context.stats.tls_name_checked(self._kind)
            self._kind = ""

    # --- what comes ---

    def read(self, from_client: bool) -> None:
        """Read of a side that the gate holds what there is. Raises `OSError` where a side is broken."""
        early, self._early = self._early, b""
        if early:
            self._receive(early)
        tunnel = self._tunnel
        while tunnel is not None and self._reads(from_client) and not tunnel.blocked:
            data = tunnel.read(from_client, _READ_SIZE, self._read_again)
            if data is None:
                return
            if not from_client:
                self._receive_from_origin(tunnel, data)
            elif data:
                self._receive(data)
            else:
                self._client_ended(tunnel)
            tunnel = self._tunnel

    def _reads(self, from_client: bool) -> bool:
        return not self._waiting if from_client else self._state is _SERVER

    @isolated
    def _read_again(self) -> None:
        """A limit lets something pass again."""
        if self._tunnel is not None:
            self._tunnel.pump_both()

    def _receive(self, data: bytes) -> None:
        tunnel = self._tunnel
        assert tunnel is not None
        if self._state is _HELLO:
            self._read_hello(tunnel, data)
        else:
            self._read_on(tunnel, data)

    def _read_hello(self, tunnel: TunnelConnection, data: bytes) -> None:
        try:
            hello = self._reader.feed(data)
        except BadHello as bad:
            self._decide(tunnel, None, bad.kind)
            return
        if hello is not None:
            report = tunnel.report
            report.tls_name, report.alpn, report.tls_version = hello.name, hello.alpn, hello.version
            self._hello = hello
            self._decide(tunnel, hello.name or None, NO_NAME)

    def _decide(self, tunnel: TunnelConnection, name: str | None, kind: str) -> None:
        """Let pass what was read, or refuse it: the ClientHello has this name; None: it has none, or there is none, as
        `kind` says."""
        judgement = refusal(self.check, self._target, name, kind, self._decide_name)
        self._found(tunnel, name, judgement.kind)
        failure = judgement.failure
        if failure is not None and not judgement.reported:
            tunnel.refuse(failure, UNRECOGNIZED_NAME_ALERT)
            return
        if failure is not None and not tunnel.report.reason:
            tunnel.report.because(failure).reason = REPORTED + failure.reason
        hello, data = self._hello, bytes(self._reader.data)
        if not self.enforced or hello is None or hello.version != _TLS_1_3:
            self._open(tunnel, data)
            return
        self.deadline = NEVER
        self._context.timers.cancel(self)
        self._state, self._watch = _SERVER, HandshakeWatch()
        self._reader = HelloReader()  # of a second one: the first is not kept while an origin is silent
        tunnel.send_origin(data[: hello.size])
        self._read_on(tunnel, data[hello.size :])
        if self._tunnel is not None:
            self.read(from_client=False)

    def _decide_name(self, named: Authority) -> Decision:
        """What all that judged the request says about another name."""
        tunnel = self._tunnel
        assert tunnel is not None
        own = self._context.own_rules(tunnel.meter)
        decision = decide_other_name(self._context, tunnel.subject, named, tunnel.peer, own, self._judge)
        if decision.failure is None and self.enforced:
            tunnel.accepted = named
        return decision

    def _found(self, tunnel: TunnelConnection, name: str | None, kind: str) -> None:
        self._kind = kind
        if self._context.debug:
            number = self._context.connection_id(tunnel.number)
            trace.note(number, "name in the TLS handshake: %s, %s (%s)", name or "none", kind, self.check.check)

    def _read_on(self, tunnel: TunnelConnection, data: bytes) -> None:
        """What follows the ClientHello: all may pass up to the next handshake record."""
        watch = self._watch
        assert watch is not None
        begins = 0 if self._waiting else watch.feed(data)
        passing = data if begins < 0 else data[:begins]
        if passing:
            tunnel.send_origin(passing)
        self._waiting += data[len(passing) :]
        if self._waiting and self._state is _RETRY:
            waiting, self._waiting = self._waiting, b""
            self._read_second(tunnel, waiting)

    def _read_second(self, tunnel: TunnelConnection, data: bytes) -> None:
        """The ClientHello behind a HelloRetryRequest: it names what the first one did (RFC 8446 section 4.1.2)."""
        first = self._hello
        assert first is not None
        try:
            second = self._reader.feed(data)
        except BadHello as bad:
            self._refuse_second(tunnel, None, MALFORMED, f"the second ClientHello: {bad}")
            return
        if second is None:
            return
        if second.name != first.name:
            other = f"the first ClientHello names {first.name or 'nothing'}, the second one {second.name or 'nothing'}"
            self._refuse_second(tunnel, second.name or None, MISMATCH, other)
        else:
            self._open(tunnel, bytes(self._reader.data))

    def _refuse_second(self, tunnel: TunnelConnection, name: str | None, kind: str, sentence: str) -> None:
        """In report mode for what refuses this name all the same; else the record says it."""
        self._found(tunnel, name, kind)
        failure = tls_name_denied(kind, sentence, self.check.entry)
        judgement = refusal(self.check, self._target, name, kind, self._decide_name)
        if not self.check.reported or not (judgement.failure is None or judgement.reported):
            tunnel.refuse(failure, UNRECOGNIZED_NAME_ALERT)
            return
        if not tunnel.report.reason:
            tunnel.report.because(failure).reason = REPORTED + failure.reason
        self._open(tunnel, bytes(self._reader.data))

    def _receive_from_origin(self, tunnel: TunnelConnection, data: bytes) -> None:
        """Its first message: empty at its end."""
        self._seen += data
        retry = is_retry_request(self._seen) if data else False
        if retry is None:
            return
        seen, self._seen = self._seen, b""
        tunnel.send_client(seen)
        tunnel.release_origin()
        waiting, self._waiting = self._waiting, b""
        if not retry:
            self._open(tunnel, waiting)
            return
        self._state = _RETRY
        self.deadline = self._context.loop.now + self._context.policy.session.handshake_timeout
        self._context.timers.schedule(self)
        if waiting:
            self._read_second(tunnel, waiting)

    def _open(self, tunnel: TunnelConnection, data: bytes) -> None:
        """All passes from now on, and first what was read."""
        self.close()
        tunnel.open(data)

    # --- ends ---

    def _client_ended(self, tunnel: TunnelConnection) -> None:
        """What it has sent is all. Nothing at all is no handshake that could be refused."""
        if self._state is _SERVER:
            self._open(tunnel, b"")
        elif self._reader.data and self._state is _HELLO:
            self._decide(tunnel, None, MALFORMED)
        elif self._reader.data:
            self._refuse_second(tunnel, None, MALFORMED, "the second ClientHello is cut off")
        elif self.enforced:
            tunnel.end("")
        else:
            self._open(tunnel, b"")

    @isolated
    def expire(self) -> None:
        """There was no whole ClientHello in time."""
        tunnel = self._tunnel
        self.deadline = NEVER
        if tunnel is None:
            return
        try:
            if self._state is _HELLO:
                self._decide(tunnel, None, TIMEOUT)
            else:
                self._refuse_second(tunnel, None, TIMEOUT, "there was no second ClientHello in time")
        except OSError:
            tunnel.end("connection_terminated")

    def crashed(self, error: Exception) -> None:
        """See `isolation`."""
        if self._tunnel is not None:
            self._tunnel.crashed(error)


def gate_of(client: ClientConnection, command: TunnelCommand) -> TlsNameGate | None:
    """The gate of a tunnel that is about to begin; None: nothing of it is checked."""
    context, request = client.context, client.request
    policy, target = context.policy, request.target
    if target is None or target.port not in policy.tls_ports or command.report.method != _CONNECT:
        return None
    own = () if client.meter is None else context.own_rules(client.meter)
    judge = request.judge
    verdict = None if judge is None else judge.verdict
    check = check_in_force(policy.tls_name, policy.access.rules, own, verdict, target)
    others_hold = bool(own) or (verdict is not None and bool(verdict.applied))
    return None if check.check == OFF else TlsNameGate(context, target, check, command.early, judge, others_hold)


def unchecked_datagram(
    context: ForwardingContext, target: Authority, own: OwnRules, verdict: PolicyVerdict | None
) -> Failure | None:
    """Why a datagram may not be sent: its port is one of TLS, so it may be QUIC, whose handshake is not read here."""
    policy = context.policy
    if target.port not in policy.tls_ports:
        return None
    check = check_in_force(policy.tls_name, policy.access.rules, own, verdict, target)
    if check.check in (OFF, RECORD) or check.reported:
        return None
    return tls_name_denied(NOT_TLS, f"a datagram for {target.host}, whose handshake would not be checked", check.entry)
