"""No input stops or stalls an actor: work grows as what was sent, and one connection holds at most 256 KiB."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

from actors.forwarding.protocols.commands import Open
from actors.forwarding.protocols.failures import Refused
from actors.forwarding.protocols.http.framing import Chunked
from actors.forwarding.protocols.http.head_parser import HEAD_MAX
from actors.forwarding.protocols.http.session import HttpSession
from actors.forwarding.protocols.socks.v4 import Socks4Session
from actors.forwarding.protocols.socks.v5 import Socks5Session
from tests.conformance.fuzzing.http_sides import OK, POLICY
from tests.conformance.fuzzing.invariants import SIZE_MAX, deep_size
from tests.kit.compiled import COUNTS_CALLS
from tests.kit.tables import table

SMALL, LARGE, LARGEST = 2_500, 10_000, 60_000
CPU_MAX = 5.0
"""Seconds; a tenth of one is usual. This is for what the count of calls does not see: the work within one."""
GET = b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"
HEAD = GET[:-2]
RESPONSE = b"HTTP/1.1 200 OK\r\n"

Feed = Callable[[bytes, int], object]
"""Gives the bytes in pieces of so many."""


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def from_client(data: bytes, size: int) -> HttpSession:
    session = HttpSession(POLICY, 0.0)
    for piece in pieces(data, size):
        if session.reads_client:
            session.receive_from_client(piece, 0.0)
    return session


def responded(data: bytes, size: int) -> HttpSession:
    session = HttpSession(POLICY, 0.0)
    for piece in pieces(data, size):
        commands = session.receive_from_client(piece, 0.0)
        while any(isinstance(command, Open) for command in commands):
            session.opened(False, 0.0)
            commands = session.receive_from_origin(OK, 0.0)
    return session


def from_origin(data: bytes, size: int) -> HttpSession:
    session = from_client(GET, len(GET))
    session.opened(False, 0.0)
    for piece in pieces(data, size):
        if session.reads_origin:
            session.receive_from_origin(piece, 0.0)
    return session


def chunked(data: bytes, size: int) -> Chunked:
    body = Chunked()
    try:
        for piece in pieces(data, size):
            body.feed(piece)
    except Refused:
        return body
    return body


def socks(kind: type[Socks4Session | Socks5Session]) -> Feed:
    def feed(data: bytes, size: int) -> object:
        session = kind(POLICY, 0.0)
        for piece in pieces(data, size):
            if session.reads_client:
                session.receive_from_client(piece, 0.0)
        return session

    return feed


def repeated(unit: bytes, before: bytes = b"") -> Callable[[int], bytes]:
    return lambda size: before + unit * ((size - len(before)) // len(unit))


CASES: dict[str, tuple[Feed, Callable[[int], bytes]]] = {
    "a head of the shortest lines": (from_client, repeated(b"A:\r\n", HEAD)),
    "a head of long lines": (from_client, repeated(b"A: " + b"b" * 2_000 + b"\r\n", HEAD)),
    "a line without end": (from_client, repeated(b"b", HEAD + b"A: ")),
    "a request line without end": (from_client, repeated(b"/")),
    "empty lines": (from_client, repeated(b"\r\n")),
    "pipelined requests that wait": (from_client, repeated(GET)),
    "pipelined requests, responded": (responded, repeated(GET)),
    "pipelined requests with empty lines": (responded, repeated(b"\r\n" + GET)),
    "fields that connection names": (from_client, repeated(b"Connection: a,b,c,d,e,f,g,h\r\n", HEAD)),
    "one long connection field": (from_client, repeated(b"a,", HEAD + b"Connection: ")),
    "a response of the shortest lines": (from_origin, repeated(b"A:\r\n", RESPONSE)),
    "a response of long lines": (from_origin, repeated(b"A: " + b"b" * 2_000 + b"\r\n", RESPONSE)),
    "interim responses": (from_origin, repeated(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")),
    "a response of one-byte chunks": (
        from_origin,
        repeated(b"1\r\nx\r\n", RESPONSE + b"Transfer-Encoding: chunked\r\n\r\n"),
    ),
    "one-byte chunks": (chunked, repeated(b"1\r\nx\r\n")),
    "chunks with long extensions": (chunked, repeated(b"1;" + b"e" * 240 + b"\r\nx\r\n")),
    "a chunk's size of zeros": (chunked, repeated(b"0")),
    "trailers": (chunked, repeated(b"A: b\r\n", b"0\r\n")),
    "a trailer without end": (chunked, repeated(b"b", b"0\r\nA: ")),
    "a SOCKS5 greeting and bytes behind": (socks(Socks5Session), repeated(b"\x05\x01\x00\x01")),
    "a SOCKS5 greeting of all methods": (socks(Socks5Session), repeated(b"\x00", b"\x05\xff")),
    "a SOCKS4 request and bytes behind": (socks(Socks4Session), repeated(b"x", b"\x04\x01\0P\x01\x02\x03\x04a\0")),
    "a SOCKS4 user without end": (socks(Socks4Session), repeated(b"x", b"\x04\x01\0P\x01\x02\x03\x04")),
}


def calls_of(feed: Feed, data: bytes, size: int) -> int:
    """How many functions were called, in Python and in C."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        feed(data, size)
    finally:
        sys.setprofile(before)
    return calls


@COUNTS_CALLS
@table("piece", [1, 65536])
@table("case", CASES)
def test_four_times_as_much_takes_about_four_times_the_calls(case: str, piece: int) -> None:
    feed, data = CASES[case]
    few, many = (calls_of(feed, data(size), piece) for size in (SMALL, LARGE))
    assert many <= 6 * few + 200, f"{few} calls for {SMALL} bytes, {many} for {LARGE}"


@table("piece", [1, 65536])
@table("case", CASES)
def test_what_is_held_is_within_256_kib_and_soon_there(case: str, piece: int) -> None:
    feed, data = CASES[case]
    came = data(250_000 if piece > 1 else LARGEST)
    began = time.thread_time()
    holder = feed(came, piece)
    assert time.thread_time() - began < CPU_MAX
    assert deep_size(holder) <= SIZE_MAX


def large_head(size: int) -> bytes:
    """A request's head of nearly this size; no line of it is too long."""
    line = b"A: " + b"b" * 9_000 + b"\r\n"
    return HEAD + line * ((size - len(HEAD) - 2) // len(line)) + b"\r\n"


def test_a_large_head_and_its_answer_and_requests_behind_it_are_held_within_256_kib() -> None:
    session = from_client(large_head(HEAD_MAX) + GET * 1000, 65536)
    assert not session.reads_client  # one piece is behind the request: the rest waits in the kernel
    session.opened(False, 0.0)
    for piece in pieces((RESPONSE + b"A: " + b"b" * 9_000 + b"\r\n" + b"A: b\r\n" * 9_000)[: HEAD_MAX - 1], 4096):
        session.receive_from_origin(piece, 0.0)
    assert session.reads_origin
    assert deep_size(session) <= SIZE_MAX


def test_thousands_of_refused_requests_in_one_piece_get_one_answer() -> None:
    session = HttpSession(replace(POLICY, wants_credentials=True), 0.0)
    session.receive_from_client(GET * 1000, 0.0)
    commands = session.authorized(None, 0.0)
    assert sum(len(getattr(command, "data", b"")) for command in commands) < 1000
    assert session.closed
