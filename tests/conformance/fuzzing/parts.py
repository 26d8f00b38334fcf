"""The smaller readers under the fuzzer: what they take has one meaning, and can be written and read again."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from actors.bus import permissions
from actors.bus.codec import ProtocolError, decode, encode
from actors.forwarding.protocols.failures import Refused
from actors.forwarding.protocols.http.framing import LAST_CHUNK, Chunked, chunk
from actors.forwarding.protocols.http.targets import Authority, authority_of_name, parse_absolute, parse_authority
from actors.forwarding.protocols.socks.replies import pack_datagram_head, read_datagram
from actors.net.client_hello import HandshakeWatch, is_retry_request
from actors.net.proxy_protocol import HEADER_MAX, BadHeader, build_v1, build_v2, read_header
from tests.conformance.fuzzing.input import read_input
from tests.conformance.fuzzing.invariants import check_work
from tests.conformance.tls_reference import check, ours

assert permissions.__name__  # its import registers the messages
_IN_A_HEAD = re.compile(rb"[\x21-\x7e]+")
"""What can come as a target; the rest is refused with the head."""


def chunked_bodies(octets: bytes) -> None:
    """Chunked bodies: cut anywhere they give the same, and what was read can be written and read again."""
    given = read_input(octets)
    if given is None:
        return
    outcomes = [_decoded(way) for way in given.ways()]
    assert outcomes[0] == outcomes[1] == outcomes[2], outcomes
    if given.flag(6):
        much = given.much()
        check_work(lambda: _decoded(much), sum(map(len, much)))
    again = chunk(given.data) + LAST_CHUNK + b"behind"
    assert _decoded([again]) == (given.data, b"behind", True)


def _decoded(pieces: list[bytes]) -> Any:
    body, content, rest = Chunked(), b"", b""
    for piece in filter(None, pieces):
        if body.complete:
            rest += piece
            continue
        try:
            more, behind = body.feed(piece)
        except Refused:
            return "refused"
        content, rest = content + more, rest + behind
    return content, rest, body.complete


def targets(octets: bytes) -> None:
    """Targets of requests and names of SOCKS: an authority is what `urllib` sees too, and is itself when read again."""
    for default in (80, None):
        authority = _or_none(parse_authority, octets, default)
        if authority is not None:
            _check_authority(authority, octets, default)
    absolute = _or_none(parse_absolute, octets) if _IN_A_HEAD.fullmatch(octets) else None
    if absolute is not None:
        authority, path = absolute
        _check_authority(authority, urlsplit(octets).netloc, 80)
        assert not path or (path.startswith(b"/") and b"#" not in path)
        assert parse_absolute(b"http://" + authority.text + path) == absolute
    named = _or_none(authority_of_name, octets, 443)
    if named is not None:
        assert parse_authority(named.text, None) == named


def _or_none(read: Any, *arguments: Any) -> Any:
    try:
        return read(*arguments)
    except Refused:
        return None


def _check_authority(authority: Authority, written: bytes, default: int | None) -> None:
    assert 1 <= authority.port <= 65535
    split = urlsplit(b"//" + written)
    assert split.username is None
    assert (split.port or default) == authority.port
    host = (split.hostname or b"").decode()
    assert authority.literal or host == authority.host, (host, authority)
    assert parse_authority(authority.text, default) == authority


def datagrams(octets: bytes) -> None:
    """Heads of UDP datagrams of SOCKS5: what is read is within the datagram, and an address is itself when written."""
    found = read_datagram(octets)
    if found is None:
        return
    target = found.target
    assert 4 < found.start <= len(octets)
    assert 1 <= target.port <= 65535
    if target.literal:
        head = pack_datagram_head((target.host, target.port))
        again = read_datagram(head + octets[found.start :])
        assert again is not None
        assert (again.target, again.start) == (target, len(head))


def proxy_protocol(octets: bytes) -> None:
    """Headers of the PROXY protocol: the same with anything behind or cut anywhere, and written they are read again."""
    try:
        header = read_header(octets)
    except BadHeader:
        return
    if header is None:
        assert len(octets) < HEADER_MAX
        return
    assert 0 < header.size <= len(octets)
    assert read_header(octets[: header.size]) == read_header(octets + b"\r\n") == header
    for end in {*range(0, header.size, 1 + header.size // 64), header.size - 1}:
        assert read_header(octets[:end]) is None, end
    assert (header.source is None) == (header.destination is None)
    if header.source is None or header.destination is None:
        return
    for build in (build_v1, build_v2):
        again = read_header(build(header.source, header.destination))
        assert again is not None
        assert (again.source, again.destination) == (header.source, header.destination)


def client_hellos(octets: bytes) -> None:
    """ClientHellos: what OpenSSL makes of them, however they are cut; and what may follow them on both sides."""
    given = read_input(octets)
    if given is None:
        return
    outcomes = [repr(ours(way)) for way in given.ways()]
    assert outcomes[0] == outcomes[1] == outcomes[2], outcomes
    check(given.data)
    if given.flag(6):
        much = given.much()
        check_work(lambda: ours(much), sum(map(len, much)))
    known = is_retry_request(given.data)
    assert known is None or is_retry_request(given.data + b"\x16\x03\x03\0\1\2") is known
    assert len({_handshake_at(way) is None for way in given.ways()}) == 1


def _handshake_at(pieces: list[bytes]) -> int | None:
    watch, before = HandshakeWatch(), 0
    for piece in pieces:
        if (at := watch.feed(piece)) >= 0:
            return before + at
        before += len(piece)
    return None


def bus(octets: bytes) -> None:
    """Frames of the bus: a message or a `ProtocolError`; a message is itself when written and read again."""
    try:
        envelope = decode(octets)
    except ProtocolError:
        return
    frame = encode(envelope)
    assert encode(decode(frame)) == frame  # not compared by value: there is a float that isn't itself
