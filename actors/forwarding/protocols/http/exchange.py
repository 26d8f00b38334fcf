"""One request and its response: what is passed on in each direction, and when each is complete.

The two sides move independently (RFC 9112 9.3.2 allows a response before the request has ended). `states` has the table
of the response's stages. The request's side is its body: `request_body` is None before it and once it has passed, and
passing on content then raises `IllegalEventError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from actors.forwarding.protocols import failures
from actors.forwarding.protocols.commands import (
    Again,
    Command,
    RelayToClient,
    RelayToOrigin,
    Report,
    ToClient,
    ToOrigin,
)
from actors.forwarding.protocols.failures import Failure, Refused
from actors.forwarding.protocols.http.error_body import (
    FINAL_RECIPIENT,
    NOT_TRACED,
    Asker,
    dated,
    error_response,
    wants_page,
)
from actors.forwarding.protocols.http.framing import (
    LAST_CHUNK,
    Body,
    Chunked,
    CloseDelimitedBody,
    ContentLengthBody,
    chunk,
    request_body,
    response_body,
)
from actors.forwarding.protocols.http.head_cache import (
    PROXY_SUPPORT,
    drop_lines,
    passed_to_client,
    passed_to_origin,
    request_to_upstream,
    response_head,
    response_to_client,
    route_of,
    url_of,
)
from actors.forwarding.protocols.http.head_parser import RequestHead, ResponseHead, find_end
from actors.forwarding.protocols.http.states import AWAITED, BODY, COMPLETE, STAGES, HttpEvent, HttpPhase, ResponsePart
from actors.forwarding.protocols.http.targets import parse_authority
from actors.forwarding.protocols.http.upstream_exchange import IDEMPOTENT, UpstreamExchange
from actors.forwarding.protocols.session import SessionConfig
from actors.forwarding.protocols.state_machine import IllegalEventError

CONNECT: Final = b"CONNECT"

RELAY_MIN: Final = 128 * 1024
"""Bytes of a counted body still to come from which on the kernel moves them; below, two system calls less win."""

INTERIM_MAX: Final = 16
"""1xx responses to one request; more is a flood."""

_HEAD: Final[ResponsePart] = ResponsePart.HEAD
_END: Final[ResponsePart] = ResponsePart.END


class Exchange:
    """One exchange. `bytes_in`, `bytes_out` are what the client sent and received for it.

    `is_connect`: it asks for a tunnel. `authenticates_connection`: either side has authenticated the connection with
    it, or begun to (NTLM, Negotiate: RFC 4559). `change_head` makes the head that is sent of what it would be.
    """

    __slots__ = (
        "_interim",
        "_origin_head",
        "_rechunk",
        "_relaying",
        "_response_body",
        "_response_in",
        "_searched",
        "_upstream",
        "authenticates_connection",
        "bytes_in",
        "bytes_out",
        "change_head",
        "excess",
        "head",
        "is_connect",
        "path",
        "persists",
        "request_body",
        "responded",
        "response",
        "reused",
        "stage",
        "started",
        "target",
        "user",
        "via",
    )

    def __init__(self, head: RequestHead, via: bytes, started: float, size: int) -> None:
        """`via` is what this proxy adds to `Via`, empty for nothing; `size` that of the head.

        Raises `Refused` (400) when the target or the framing can't be right.
        """
        fields = head.fields
        self.head = head
        self.via = via
        self.request_body: Body | None = None
        self.path = b""
        self.authenticates_connection = fields.per_connection
        self.is_connect = head.method == CONNECT
        if self.is_connect:
            self.target = parse_authority(head.target, None)
            if fields.chunked or fields.length:
                raise failures.malformed("CONNECT has no body")
        else:
            self.target, self.path = route_of(head)
            if fields.chunked or fields.length:
                self.request_body = request_body(head)
        self.user = ""
        self.started = started
        self.responded = 0.0
        self.bytes_in = size
        self.bytes_out = 0
        self.response: ResponseHead | None = None
        self.stage = AWAITED
        self.persists = False
        self.reused = False
        self.excess = b""
        self.change_head: Callable[[bytes], bytes] | None = None
        self._origin_head = b""
        self._response_body: Body | None = None
        self._response_in: bytes | bytearray = b""
        self._searched = 0
        self._interim = 0
        self._rechunk = False
        self._relaying = False
        self._upstream: UpstreamExchange | None = None

    # --- the request ---

    @property
    def retriable(self) -> bool:
        """True when it may be sent a second time after a reused connection turned out to be dead."""
        return self.request_body is None and self.head.method in IDEMPOTENT and not self.head.fields.expects

    @property
    def wants_body(self) -> bool:
        """Whether its body has not passed as a whole; unlike `request_body`, it may be asked again after a call."""
        return self.request_body is not None

    def may_retry_upstream(self) -> bool:
        """An upstream did nothing with it: may another one have it?"""
        return self._upstream is not None and self._upstream.may_retry(bool(self._interim))

    def asks_another_after_loss(self, out: list[Command]) -> bool:
        """An upstream has closed the connection without a response: whether another one is asked."""
        if self._upstream is None or self.stage is not AWAITED or self._response_in:
            return False
        return self._upstream.lost(bool(self._interim), out)

    @property
    def takes_content(self) -> bool:
        """True while `request_content` wants bytes of the request's body."""
        return self.request_body is not None and not self._relaying

    def send_head(self, reused: bool, out: list[Command], hop: bytes | None = None, again: Again | None = None) -> None:
        """There is a connection: send the head; with `hop` in absolute-form, with these lines for the upstream."""
        self.reused = reused
        upgrade = self.head.may_upgrade
        if hop is not None and self._upstream is None:
            self._upstream = UpstreamExchange(self.head)
        if self._upstream is not None:
            self._upstream.sent(hop is not None, again)
        if hop is not None:
            sent = request_to_upstream(self.head, self.target, self.path, self.via, upgrade=upgrade, hop=hop)
        else:
            if not self._origin_head:
                self._origin_head = passed_to_origin(self.head, self.via, upgrade=upgrade)
            sent = self._origin_head
        out.append(ToOrigin(sent if self.change_head is None else self.change_head(sent)))

    def request_content(self, data: bytes, out: list[Command]) -> bytes:
        """Pass on bytes of the body, and return what is behind its end. Raises `Refused`."""
        body = self.request_body
        if body is None:
            raise IllegalEventError(HttpPhase.EXCHANGE, HttpEvent.CLIENT_DATA)
        content, rest = body.feed(data)
        self.bytes_in += len(data) - len(rest)
        coded = content if isinstance(body, ContentLengthBody) else chunk(content)
        if body.complete:
            self.request_body = None
            if isinstance(body, Chunked):
                coded += LAST_CHUNK
        if coded:
            out.append(ToOrigin(coded))
        return rest

    def relay_request(self, out: list[Command]) -> None:
        """Let the kernel move the rest of a long counted body."""
        body = self.request_body
        if isinstance(body, ContentLengthBody) and body.remaining >= RELAY_MIN and not self._relaying:
            self._relaying = True
            out.append(RelayToOrigin(body.remaining))

    def request_relayed(self, count: int) -> None:
        """The kernel has moved `count` bytes of the body."""
        body = self.request_body
        if not isinstance(body, ContentLengthBody):
            raise IllegalEventError(HttpPhase.EXCHANGE, HttpEvent.REQUEST_RELAYED)
        body.remaining -= count
        self.bytes_in += count
        if body.complete:
            self._relaying = False
            self.request_body = None

    # --- the response ---

    def receive(self, data: bytes, now: float, may_persist: bool, out: list[Command]) -> None:
        """Bytes of the origin. `may_persist`: nothing else keeps the client's connection from going on.

        What is behind its end is left in `excess`. Raises `Refused` (502).
        """
        body = self._response_body
        if body is not None and self.stage is BODY:
            self._pass_content(body, data, b"", out)
        elif self.stage is AWAITED:
            self._read_heads(data, now, may_persist, out)
        else:
            self.excess += data

    def relayed(self, count: int) -> None:
        """The kernel has moved `count` bytes of the response's body."""
        self.stage = STAGES[self.stage][ResponsePart.RELAYED]
        self.bytes_out += count
        body = self._response_body
        if isinstance(body, ContentLengthBody):
            body.remaining -= count
            if body.complete:
                self.stage = STAGES[self.stage][_END]

    def origin_ended(self) -> bool:
        """The origin has closed; True when the response is complete with that."""
        if self.stage is BODY and isinstance(self._response_body, CloseDelimitedBody):
            self.stage = STAGES[self.stage][_END]
        return self.stage is COMPLETE

    @property
    def no_response_yet(self) -> bool:
        """True while nothing has come on a reused connection, which may have been dead already."""
        return self.reused and self.stage is AWAITED and not self._response_in and not self._interim

    @property
    def origin_persists(self) -> bool:
        """True when the origin's connection may be used again."""
        response = self.response
        return (
            response is not None
            and response.may_persist
            and self.request_body is None
            and not self.excess
            and not isinstance(self._response_body, CloseDelimitedBody)
        )

    def report(self, status: int, reason: str, now: float) -> Report:
        """The report of it, as of now."""
        return Report(
            CONNECT if self.is_connect else self.head.method,  # a tunnel keeps it for as long as it lives: one for all
            url_of(self.head),
            self.response.status if self.response is not None else status,
            reason,
            self.user,
            self.started,
            self.responded or now,
            self.bytes_in,
            self.bytes_out,
        )

    def _read_heads(self, data: bytes, now: float, may_persist: bool, out: list[Command]) -> None:
        """Read the heads that are there."""
        buffered = self._with_buffered(data) if self._response_in else data
        while self.stage is AWAITED:
            end = self._head_end(buffered)
            if end < 0:
                self._response_in = buffered
                self._searched = len(buffered)
                return
            response = response_head(bytes(buffered[:end]))
            self._response_in = b""
            self._searched = 0
            if response.status >= 200:
                self._begin_response(response, buffered, end, now, may_persist, out)
            elif response.status == 101:
                self._switch(response, bytes(buffered[end:]), now, out)
            else:
                self._pass_interim(response, out)
                buffered = bytes(buffered[end:])

    def _with_buffered(self, data: bytes) -> bytearray:
        """The buffered part of a head with `data` behind it; a head that comes byte by byte is not copied each time."""
        buffered = self._response_in
        if not isinstance(buffered, bytearray):
            buffered = bytearray(buffered)
        buffered += data
        return buffered

    def _head_end(self, data: bytes | bytearray) -> int:
        try:
            return find_end(data, self._searched)
        except Refused as refused:
            raise failures.bad_response(refused.failure.detail) from None

    def _pass_interim(self, response: ResponseHead, out: list[Command]) -> None:
        self._interim += 1
        if self._interim > INTERIM_MAX:
            raise failures.bad_response("the origin sends too many interim responses")
        if self.head.minor:  # RFC 9110 15.2: none of them to an HTTP/1.0 client
            self.send_to_client(response_to_client(response, self.via, chunked=False, connection=None), out)

    def _switch(self, response: ResponseHead, data: bytes, now: float, out: list[Command]) -> None:
        """101: what follows is another protocol, joined byte for byte."""
        if not (self.head.may_upgrade and response.fields.upgrade):
            raise failures.bad_response("the origin switches protocols without a request to")
        if self.request_body is not None:
            raise failures.bad_response("the origin switches protocols before it has the request")
        self.response = response
        self.responded = now
        self.stage = STAGES[self.stage][ResponsePart.SWITCH]
        self.send_to_client(response_to_client(response, self.via, chunked=False, connection=b"upgrade") + data, out)

    def _begin_response(
        self,
        response: ResponseHead,
        buffered: bytes | bytearray,
        end: int,
        now: float,
        may_persist: bool,
        out: list[Command],
    ) -> None:
        """Pass on the head, and what is in `buffered` behind its `end`."""
        if response.status >= 400 and self._upstream is not None and self._upstream.in_use:
            self._upstream.check(response, bool(self._interim), out)
        body = response_body(self.head.method, response)
        modern = self.head.minor == 1
        self.response = response
        self.responded = now
        self._rechunk = modern and isinstance(body, Chunked)
        delimited = self._rechunk or not isinstance(body, (Chunked, CloseDelimitedBody))
        self.persists = may_persist and delimited and self.request_body is None
        connection = None
        if response.fields.per_connection:
            self.authenticates_connection = True
            connection = PROXY_SUPPORT
        if self.authenticates_connection and not response.may_persist:
            self.persists = False  # the client's connection ends with the one that was authenticated
        if not self.persists:
            connection = b"close"
        start = passed_to_client(response, self.via, chunked=response.fields.chunked and modern, connection=connection)
        # A response may last for hours, and nothing is sent a second time any more.
        self._origin_head = b""
        drop_lines(self.head)
        drop_lines(response)
        if body is None:
            self.stage = STAGES[self.stage][ResponsePart.HEAD_ALONE]
            self.excess = bytes(buffered[end:])
            self.send_to_client(start, out)
            return
        self.stage = STAGES[self.stage][_HEAD]
        self._response_body = body
        if isinstance(body, ContentLengthBody) and len(buffered) - end <= body.remaining:
            body.remaining -= len(buffered) - end
            self._pass_content(body, b"", b"".join((start, memoryview(buffered)[end:])), out)  # copied once
        else:
            self._pass_content(body, bytes(buffered[end:]), start, out)

    def _pass_content(self, body: Body, data: bytes, start: bytes, out: list[Command]) -> None:
        """Pass on bytes of the body, behind `start` and in one piece with it."""
        if data:
            try:
                content, self.excess = body.feed(data)
            except Refused as refused:
                raise failures.bad_response(refused.failure.detail) from None
            start += chunk(content) if self._rechunk else content
        if body.complete:
            self.stage = STAGES[self.stage][_END]
            self.send_to_client(start + LAST_CHUNK if self._rechunk else start, out)
            return
        self.send_to_client(start, out)
        if isinstance(body, CloseDelimitedBody):
            out.append(RelayToClient(None))
        elif isinstance(body, ContentLengthBody) and body.remaining >= RELAY_MIN:
            out.append(RelayToClient(body.remaining))

    # --- responses of the proxy itself ---

    def refuse(self, failure: Failure, keep_alive: bool, config: SessionConfig, now: float, out: list[Command]) -> None:
        """Respond with an error, and report the exchange with the id that the response names."""
        self.responded = now
        head, method = self.head, self.head.method
        asker = Asker(config.new_id(), config.contact, self.target.host, method.decode("ascii"), wants_page(head))
        reply = error_response(failure, asker, keep_alive=keep_alive, with_body=method != b"HEAD")
        self.send_to_client(dated(reply, config.date(now)), out)
        report = self.report(failure.status, failure.reason, now)
        report.request_id = asker.request_id
        out.append(report.because(failure))

    def respond_as_recipient(self, date: bytes, now: float, out: list[Command]) -> None:
        """Respond to OPTIONS or TRACE as the last recipient (RFC 9110 7.6.2), and report the exchange."""
        trace = self.head.method == b"TRACE"
        self.send_to_client(dated(NOT_TRACED if trace else FINAL_RECIPIENT, date), out)
        out.append(self.report(405 if trace else 200, "", now))

    def send_to_client(self, data: bytes, out: list[Command]) -> None:
        """Send bytes to the client."""
        if data:
            self.bytes_out += len(data)
            out.append(ToClient(data))

    def __repr__(self) -> str:
        return f"<Exchange {self.head.method!r} {self.head.target!r}: {self.request_body!r}, {self.stage.value}>"
