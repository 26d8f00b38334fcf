"""What ours takes, the parsers take too, and all of them in the same way; and so they do with what ours passes on.

The two `check_` functions raise `AssertionError` for bytes that ours takes though two of the parsers differ on them,
and for bytes that ours passes on and that are not one clear message. What ours refuses is always right here.

Where a parser is left out, it is because it refuses or misreads what RFC 9110 or 9112 plainly allows, so that no
second reading of another kind can come of it:

- llhttp knows a fixed list of methods; any token is one (RFC 9110 9.1).
- llhttp has no notion of a response to HEAD, and frames it as any other.
- `http.client` takes an interim response other than 100 for the final one; they are to be read over (RFC 9110 15.2).
- `http.client` waits for the body of a 304 that names a coding; there is none (RFC 9112 6.3).
- httptools ends a request that asks for an upgrade with its head, though it has a body (RFC 9110 7.8).
- h11 and `http.server` refuse empty lines before the request line, which are to be ignored (RFC 9112 2.2).
"""

from __future__ import annotations

from dataclasses import dataclass

from actors.forwarding.protocols.commands import (
    CloseClient,
    Command,
    LeaveOrigin,
    Open,
    Report,
    ToClient,
    ToOrigin,
    Tunnel,
)
from actors.forwarding.protocols.http.exchange import Exchange
from actors.forwarding.protocols.http.session import HttpSession
from actors.forwarding.protocols.session import SessionConfig
from tests.conformance.reference_parsers import (
    REQUEST_PARSERS,
    RESPONSE_PARSERS,
    Field,
    Message,
    NotRead,
    ReferenceParser,
)

_END = b"\r\n\r\n"
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_OURS = frozenset(
    (b"via", b"host", b"connection", b"content-length", b"transfer-encoding", b"max-forwards", b"upgrade")
)
_KNOWN_METHODS = frozenset(b"GET HEAD POST PUT DELETE OPTIONS TRACE PATCH CONNECT".split())


@dataclass
class Passed:
    """One request that ours took: the exchange, and what the origin was sent for it; `refused`: for its body."""

    exchange: Exchange
    lines: list[bytes]
    to_origin: bytes = b""
    whole: bool = False
    refused: bool = False


def requests_passed(data: bytes) -> list[Passed]:
    """The requests that ours takes of `data`, with an origin that responds to each as soon as it is whole."""
    session = HttpSession(SessionConfig(via=b"us"), 0.0)
    passed: list[Passed] = []
    commands = session.receive_from_client(data, 0.0)
    while commands:
        more: list[Command] = []
        for command in commands:
            if isinstance(command, Open):
                assert session._exchange is not None
                passed.append(Passed(session._exchange, session._exchange.head.fields.lines))
                more += session.opened(False, 0.0)
            elif isinstance(command, ToOrigin):
                passed[-1].to_origin += command.data
            elif isinstance(command, Tunnel):
                passed[-1].to_origin += command.early
        if passed and not passed[-1].whole and passed[-1].exchange.request_body is None:
            passed[-1].whole = True
            if session.reads_origin:
                more += session.receive_from_origin(_OK, 0.0)
        commands = more
    if passed and not passed[-1].whole:
        passed[-1].refused = session.closed
    return passed


def check_requests(data: bytes) -> None:
    """Every request that ours takes of `data` is the same to all, before and behind."""
    rest = data
    for passed in requests_passed(data):
        if passed.refused:  # its body was found to be broken, and the connection was cut
            return
        while rest.startswith(b"\r\n"):
            rest = rest[2:]
        head = passed.exchange.head
        upgrades = head.fields.upgrade is not None and bool(head.fields.length or head.fields.chunked)
        without = set() if head.method in _KNOWN_METHODS and not upgrades else {"llhttp"}
        # Of what isn't whole the head counts: a body that can't end well is refused sooner by some than by others.
        seen = rest if passed.whole else rest[: rest.index(_END) + len(_END)]
        readings = _readings(seen, REQUEST_PARSERS, "", without)
        for name, message in readings.items():
            assert message.start == (head.method, head.target, head.minor), (name, message)
            assert message.whole == passed.whole, (name, message)
            _among([_field(line) for line in passed.lines], message.fields)
        body = _agreed(readings, rest)
        if passed.whole:
            assert _rests(readings) == {rest[passed.exchange.bytes_in :]} or passed.exchange.is_connect, readings
            if not passed.exchange.is_connect:
                _check_passed_request(passed, body)
        rest = rest[passed.exchange.bytes_in :]


def _check_passed_request(passed: Passed, body: bytes) -> None:
    """What the origin is sent is one message to every parser, with the same meaning."""
    head = passed.exchange.head
    path = passed.exchange.path or (b"*" if head.method == b"OPTIONS" else b"/")
    without = set() if head.method in _KNOWN_METHODS else {"llhttp"}
    if path.startswith(b"//"):
        without.add("cpython")  # it makes one slash of them for its own redirects
    for name, message in _readings(passed.to_origin, REQUEST_PARSERS, "", without).items():
        assert message.start == (head.method, path, 1), (name, message)
        assert (message.body, message.whole, message.rest) == (body, True, b""), (name, message)
        assert [value for field, value in message.fields if field == b"host"] == [passed.exchange.target.text]


@dataclass
class PassedResponse:
    """What the client was passed: `whole` when the response was passed on to its end."""

    to_client: bytes
    status: int
    whole: bool
    spoiled: bool


def response_passed(data: bytes, method: str = "GET") -> PassedResponse:
    """What ours makes of an origin that sends `data` and then closes."""
    session = HttpSession(SessionConfig(via=b"us"), 0.0)
    session.receive_from_client(f"{method} http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n".encode(), 0.0)
    commands = session.opened(False, 0.0)
    if data:
        commands += session.receive_from_origin(data, 0.0)
    if session.reads_origin:
        commands += session.receive_from_origin(b"", 0.0)
    passed = b"".join(command.data for command in commands if isinstance(command, ToClient))
    reports = [command for command in commands if isinstance(command, Report)]
    assert len(reports) == 1, reports
    aborted = any(isinstance(command, CloseClient) and command.abort for command in commands)
    assert any(isinstance(command, LeaveOrigin | Tunnel) for command in commands)
    return PassedResponse(passed, reports[0].status, not aborted and not reports[0].reason, bool(reports[0].reason))


def check_response(data: bytes, method: str = "GET") -> None:
    """If ours passes the response in `data` on as a whole one, all parsers read it alike, before and behind."""
    ours = response_passed(data, method)
    if not ours.whole:
        return
    without = {"llhttp"} if method == "HEAD" else set()
    before = _final(data, method, without | ({"cpython"} if ours.status == 304 else set()))
    behind = _final(ours.to_client, method, without)
    for name, message in before.items():
        assert message.start[0] == ours.status, (name, message, ours)
        assert message.whole, (name, message)
    body = _agreed(before, data)
    assert _agreed(behind, ours.to_client) == body
    for name, message in behind.items():
        assert (message.start[0], message.whole, message.rest) == (ours.status, True, b""), (name, message)
        if name in before:
            _among([field for field in message.fields if field[0] not in _OURS], before[name].fields)


def _final(data: bytes, method: str, without: set[str]) -> dict[str, Message]:
    """How the parsers read the final response, behind the interim ones."""
    for _ in range(100):
        first = _readings(data, {"h11": RESPONSE_PARSERS["h11"]}, method, set())["h11"]
        if first.start[0] >= 200:
            break
        # http.client skips 100 by itself, so it is only used once the interim responses are gone
        interim = _readings(data, RESPONSE_PARSERS, method, without | {"cpython"})
        assert len({(message.start, message.rest) for message in interim.values()}) == 1, interim
        data = first.rest
    return _readings(data, RESPONSE_PARSERS, method, without)


def _readings(data: bytes, parsers: dict[str, ReferenceParser], method: str, without: set[str]) -> dict[str, Message]:
    readings: dict[str, Message] = {}
    for name, read in parsers.items():
        if name in without:
            continue
        try:
            readings[name] = read(data, method)
        except NotRead as error:
            raise AssertionError(f"ours takes what {name} refuses ({error}): {data!r}") from error
    return readings


def _agreed(readings: dict[str, Message], data: bytes) -> bytes:
    """The body that all of them read, when it is whole. Starts and fields have to be the same too."""
    first, *others = readings.values()
    for other in others:
        assert (other.start, other.whole, other.fields) == (first.start, first.whole, first.fields), (readings, data)
        assert not first.whole or (other.body, other.rest) == (first.body, first.rest), (readings, data)
    return first.body


def _rests(readings: dict[str, Message]) -> set[bytes]:
    return {message.rest for message in readings.values()}


def _field(line: bytes) -> Field:
    name, _, value = line.partition(b":")
    return name.lower(), value.strip(b" \t")


def _among(some: list[Field], fields: list[Field]) -> None:
    """`some` are among `fields`, in the same order."""
    left = iter(fields)
    for wanted in some:
        assert any(field == wanted for field in left), (wanted, fields)
