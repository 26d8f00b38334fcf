"""HTTP sessions under the fuzzer: a client that sends anything to a good origin, and an origin that says anything."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from actors.forwarding.protocols.commands import (
    Authorize,
    CloseClient,
    Command,
    LeaveOrigin,
    Open,
    RelayToClient,
    RelayToOrigin,
    Report,
    ToClient,
    ToOrigin,
    Tunnel,
)
from actors.forwarding.protocols.http.framing import Chunked
from actors.forwarding.protocols.http.session import HttpSession
from actors.forwarding.protocols.session import SessionConfig
from tests.conformance.differential import check_requests, check_response
from tests.conformance.fuzzing.input import read_input
from tests.conformance.fuzzing.invariants import check, check_size, check_work

POLICY = SessionConfig(timeout=30, handshake_timeout=10, keep_alive_timeout=60, via=b"us")
LONGEST_WAIT = 60.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"


@dataclass
class Turn:
    """One exchange as it went: what the driver was to find out, and what both sides were sent."""

    queries: list[Any] = field(default_factory=list)
    to_origin: bytes = b""
    to_client: bytes = b""

    def outcome(self, end: Report) -> tuple[Any, ...]:
        """The same however the bytes were cut. How much of a refused one was passed on depends on that."""
        if end.reason:
            return ("refused",)
        return (self.queries, _uncut(self.to_origin), _uncut(self.to_client), end)


class ClientSide:
    """A session that receives what a client sends; the origin responds as soon as it has a whole request."""

    def __init__(self, policy: SessionConfig, switches: bool) -> None:
        self.session = HttpSession(policy, 0.0)
        self.commands: list[Command] = []
        self.outcome: list[tuple[Any, ...]] = []
        self.over = False
        self._switches = switches
        self._turn = Turn()
        self._tunnel: Report | None = None
        self._to_relay = 0

    def run(self, pieces: list[bytes]) -> ClientSide:
        """Give it the pieces, and then the end."""
        session = self.session
        for piece in filter(None, pieces):
            self._relay(piece)
        if self._tunnel is not None:
            self.outcome.append(self._turn.outcome(self._tunnel))
        elif self._to_relay and not self.over:
            self._take(session.request_relayed(0, 0.0, True))
        elif session.reads_client and not self.over:
            self._take(session.receive_from_client(b"", 0.0))
        check_size(self.session)
        return self

    def _relay(self, piece: bytes) -> None:
        """The kernel moves what was ordered; the session gets the rest."""
        count = len(piece) if self._tunnel is not None else self._to_relay
        moved, piece = piece[:count], piece[count:]
        if self._tunnel is not None:
            self._turn.to_origin += moved
        elif moved:
            self._to_relay -= len(moved)
            self._turn.to_origin += moved
            self._take(self.session.request_relayed(len(moved), 0.0, False))
        if piece and not self.over and self.session.reads_client:
            self._take(self.session.receive_from_client(piece, 0.0))

    def _take(self, commands: list[Command]) -> None:
        session = self.session
        while commands:
            for command in commands:
                assert not self.over, f"{command} behind the last word"
                commands += self._do(command)
            check(session, self.over, 0.0, LONGEST_WAIT)
            commands = []
            exchange = session._exchange
            if session.reads_origin and exchange is not None and exchange.request_body is None:
                response = SWITCHED if self._switches and exchange.head.may_upgrade else OK
                commands = session.receive_from_origin(response, 0.0)

    def _do(self, command: Command) -> list[Command]:
        turn, session = self._turn, self.session
        if isinstance(command, Authorize):
            turn.queries.append(command)
            return session.authorized(command.user or "anonymous", 0.0)
        if isinstance(command, Open):
            turn.queries.append(command)
            return session.opened(False, 0.0)
        if isinstance(command, ToOrigin):
            turn.to_origin += command.data
        elif isinstance(command, ToClient):
            turn.to_client += command.data
        elif isinstance(command, RelayToOrigin):
            self._to_relay = command.length
        elif isinstance(command, Report):
            self.outcome.append(turn.outcome(command))
            self._turn = Turn()
        elif isinstance(command, Tunnel):
            turn.to_origin += command.early
            self._tunnel = command.report.copy()
            self._tunnel.bytes_in = 0
        elif isinstance(command, CloseClient):
            self.outcome.append(("closed",))
        self.over = isinstance(command, CloseClient | Tunnel)
        return []


def _uncut(data: bytes) -> tuple[Any, ...]:
    """A message with its chunks put together, as they are cut like what came in."""
    head, end, body = data.partition(b"\r\n\r\n")
    interim = b""
    while head.startswith(b"HTTP/1.1 1") and body.startswith(b"HTTP/"):
        interim += head + end
        head, end, body = body.partition(b"\r\n\r\n")
    if b"\r\nTransfer-Encoding: chunked" not in head:
        return (data,)
    decoder = Chunked()
    return (interim + head, *decoder.feed(body), decoder.complete) if body else (interim + head,)


def http_requests(octets: bytes) -> None:
    """A client that sends anything: HTTP requests."""
    given = read_input(octets)
    if given is None:
        return
    policy = replace(POLICY, wants_credentials=given.flag(0))
    outcomes = [ClientSide(policy, given.flag(1)).run(way).outcome for way in given.ways()]
    assert outcomes[0] == outcomes[1] == outcomes[2], outcomes
    if given.flag(6):
        much = given.much()
        check_work(lambda: ClientSide(policy, given.flag(1)).run(much), sum(map(len, much)))
    check_requests(given.data)


class OriginSide:
    """A session with a request under way that receives what the origin sends."""

    def __init__(self, method: bytes, minor: int, upgrade: bool) -> None:
        self.session = HttpSession(POLICY, 0.0)
        self.commands: list[Command] = []
        self.over = False
        self.to_client = b""
        self._to_relay: float = 0
        options = b"Connection: upgrade\r\nUpgrade: x\r\n" if upgrade else b""
        request = b"%b http://a.example/ HTTP/1.%d\r\nHost: a.example\r\n%b\r\n" % (method, minor, options)
        self._take(self.session.receive_from_client(request, 0.0))

    def run(self, pieces: list[bytes]) -> OriginSide:
        """Give it the pieces, and then the end."""
        for piece in filter(None, pieces):
            if self.over and isinstance(self.commands[-1], Tunnel):
                self.to_client += piece
            elif not self.over and self.session.reads_origin:
                self._relay(piece)
        if self.session.reads_origin and not self.over:
            relaying = self._to_relay > 0
            session = self.session
            self._take(session.response_relayed(0, 0.0, True) if relaying else session.receive_from_origin(b"", 0.0))
        check_size(self.session)
        return self

    def _relay(self, piece: bytes) -> None:
        count = int(min(self._to_relay, len(piece)))
        moved, piece = piece[:count], piece[count:]
        if moved:
            self._to_relay -= count
            self.to_client += moved
            self._take(self.session.response_relayed(count, 0.0, False))
        if piece and not self.over and self.session.reads_origin:
            self._take(self.session.receive_from_origin(piece, 0.0))

    def _take(self, commands: list[Command]) -> None:
        for command in commands:
            assert not self.over, f"{command} behind the last word"
            self.commands.append(command)
            self.over = isinstance(command, CloseClient | Tunnel)
            if isinstance(command, Open):
                commands += self.session.opened(False, 0.0)
            elif isinstance(command, ToClient):
                self.to_client += command.data
            elif isinstance(command, RelayToClient):
                self._to_relay = float("inf") if command.length is None else command.length
        check(self.session, self.over, 0.0, LONGEST_WAIT)

    def outcome(self) -> tuple[Any, ...]:
        """What came of it, however it was cut."""
        kinds = [
            type(command).__name__ for command in self.commands if isinstance(command, LeaveOrigin | Tunnel | Report)
        ]
        tunnelled = b"".join(command.data for command in self.commands if isinstance(command, ToOrigin))
        tunnelled += b"".join(command.early for command in self.commands if isinstance(command, Tunnel))
        reports = [command for command in self.commands if isinstance(command, Report)]
        aborted = any(isinstance(command, CloseClient) and command.abort for command in self.commands)
        if aborted:
            return ("cut off",)
        if reports and reports[0].reason:
            return ("refused",)
        return (kinds, tunnelled, _uncut(self.to_client), [_timeless(report) for report in reports])


def _timeless(report: Report) -> Report:
    copy = report.copy()
    copy.bytes_out = 0  # chunks are counted as they were cut
    return copy


def http_responses(octets: bytes) -> None:
    """An origin that sends anything: HTTP responses."""
    given = read_input(octets)
    if given is None:
        return
    method = b"HEAD" if given.flag(0) else b"GET"
    sides = [OriginSide(method, 0 if given.flag(1) else 1, given.flag(2)) for _ in range(3)]
    outcomes = [side.run(way).outcome() for side, way in zip(sides, given.ways(), strict=True)]
    assert outcomes[0] == outcomes[1] == outcomes[2], outcomes
    if given.flag(6):
        much = given.much()
        check_work(lambda: OriginSide(method, 1, given.flag(2)).run(much), sum(map(len, much)))
    check_response(given.data, method.decode())
