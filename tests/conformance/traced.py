"""All that comes of one input, as lines of text: each command of a session, and the values that readers return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any

from actors.bus import permissions
from actors.bus.codec import ProtocolError, decode, encode
from actors.forwarding.protocols.commands import Command
from actors.forwarding.protocols.failures import Refused
from actors.forwarding.protocols.http.framing import Chunked
from actors.forwarding.protocols.http.targets import authority_of_name, parse_absolute, parse_authority
from actors.forwarding.protocols.session import Session
from actors.forwarding.protocols.socks.replies import read_datagram
from actors.forwarding.protocols.socks.v4 import Socks4Session
from actors.forwarding.protocols.socks.v5 import Socks5Session
from actors.net.proxy_protocol import BadHeader, read_header
from tests.conformance.fuzzing import http_sides
from tests.conformance.fuzzing.http_sides import ClientSide, OriginSide
from tests.conformance.fuzzing.input import Input, read_input
from tests.conformance.fuzzing.socks_sides import SocksSide
from tests.conformance.tls_reference import ours
from tests.kit.compiled import attributes

assert permissions.__name__  # its import registers the messages

DEEPEST = 6
"""Levels of attributes that are shown."""


def shown(thing: object, depth: int = 0) -> str:
    """A value in full, the same whether Python or the compiler has made its class.

    A whole number is one whatever its type: where a `float` is declared, the compiler makes one of it.
    """
    if isinstance(thing, float) and thing.is_integer():
        return repr(int(thing))
    if thing is None or isinstance(thing, bool | int | float | str | bytes | bytearray | Enum):
        return repr(thing)
    if depth == DEEPEST:
        return type(thing).__name__
    if isinstance(thing, dict):
        return str({shown(key, depth + 1): shown(value, depth + 1) for key, value in thing.items()})
    if isinstance(thing, tuple | list):
        return f"{type(thing).__name__}({', '.join(shown(each, depth + 1) for each in thing)})"
    if callable(thing):
        return "callable"
    names = sorted({*attributes(thing), *getattr(thing, "__dict__", {})})
    fields = [f"{name}={shown(getattr(thing, name), depth + 1)}" for name in names if hasattr(thing, name)]
    return f"{type(thing).__name__}({', '.join(fields)})"


def _state(session: Session) -> str:
    return f"{session.deadline} {session.reads_client} {session.reads_origin}"


class _Client(ClientSide):
    """Writes down each command."""

    def __init__(self, given: Input, lines: list[str]) -> None:
        super().__init__(replace(http_sides.POLICY, wants_credentials=given.flag(0)), given.flag(1))
        self._lines = lines

    def _do(self, command: Command) -> list[Command]:
        self._lines.append(shown(command))
        return super()._do(command)


def _requests(octets: bytes, lines: list[str]) -> None:
    given = read_input(octets)
    for way in given.ways() if given is not None else ():
        side = _Client(given, lines).run(way)
        lines += (shown(side.outcome), _state(side.session))


def _responses(octets: bytes, lines: list[str]) -> None:
    given = read_input(octets)
    for way in given.ways() if given is not None else ():
        side = OriginSide(b"HEAD" if given.flag(0) else b"GET", 0 if given.flag(1) else 1, given.flag(2)).run(way)
        lines += (shown(side.commands), shown(side.outcome()), _state(side.session))


def _socks(kind: type[Socks4Session | Socks5Session]) -> Callable[[bytes, list[str]], None]:
    def traced(octets: bytes, lines: list[str]) -> None:
        given = read_input(octets)
        for way in given.ways() if given is not None else ():
            side = SocksSide(kind, given).run(way)
            lines += (shown(side.outcome), _state(side.session))

    return traced


def _chunked(octets: bytes, lines: list[str]) -> None:
    given = read_input(octets)
    for way in given.ways() if given is not None else ():
        body = Chunked()
        lines += (_result(body.feed, piece) for piece in way if not body.complete)
        lines.append(shown(body.complete))


def _targets(octets: bytes, lines: list[str]) -> None:
    lines += (_result(parse_authority, octets, 80), _result(parse_authority, octets, None))
    lines += (_result(parse_absolute, octets), _result(authority_of_name, octets, 443))


def _client_hellos(octets: bytes, lines: list[str]) -> None:
    given = read_input(octets)
    lines += (repr(ours(way)) for way in (given.ways() if given is not None else ()))


def _bus(octets: bytes, lines: list[str]) -> None:
    lines.append(_result(lambda: encode(decode(octets))))


def _result(read: Callable[..., Any], *arguments: Any) -> str:
    try:
        return shown(read(*arguments))
    except (Refused, BadHeader, ProtocolError) as error:
        return f"{type(error).__name__}: {error} {shown(vars(error))}"


TRACED: dict[str, Callable[[bytes, list[str]], None]] = {
    "http_requests": _requests,
    "http_responses": _responses,
    "chunked_bodies": _chunked,
    "targets": _targets,
    "socks4": _socks(Socks4Session),
    "socks5": _socks(Socks5Session),
    "datagrams": lambda octets, lines: lines.append(_result(read_datagram, octets)),
    "proxy_protocol": lambda octets, lines: lines.append(_result(read_header, octets)),
    "client_hellos": _client_hellos,
    "bus": _bus,
}
"""By the names of the fuzz targets."""


def trace(name: str, octets: bytes) -> list[str]:
    """What comes of an input of a target; an exception that no one expects is the last line."""
    lines: list[str] = []
    traced = TRACED[name]
    try:
        traced(octets, lines)
    except Exception as error:  # noqa: BLE001 - an exception belongs to what is compared
        lines.append(f"{type(error).__name__}: {error}")
    return lines
