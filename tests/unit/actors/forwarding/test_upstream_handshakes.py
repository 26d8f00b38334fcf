"""The client's side of the handshakes with upstreams, without sockets: whole, in pieces, and hostile."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.forwarding.protocols.http.targets import parse_authority
from actors.forwarding.upstreams.handshake import Blame, Handshake, UpstreamFailed
from actors.forwarding.upstreams.http_connect import ConnectHandshake, credentials_field
from actors.forwarding.upstreams.socks_connect import Socks4Handshake, Socks5Handshake
from tests.kit.tables import table

NAME = parse_authority(b"example.com:443", None)
V4 = parse_authority(b"192.0.2.7:80", None)
V6 = parse_authority(b"[2001:db8::7]:80", None)
V5_OK = b"\x05\x00\x00\x01\x0a\x00\x00\x01\x12\x34"


def connect() -> Handshake:
    return ConnectHandshake(NAME, credentials_field("u", "p"), b"1.1 us")


def socks4() -> Handshake:
    return Socks4Handshake(NAME, "u")


def socks5() -> Handshake:
    return Socks5Handshake(NAME, "u", "p")


GOOD: list[tuple[Callable[[], Handshake], bytes]] = [
    (connect, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
    (connect, b"HTTP/1.0 200\r\n\r\n"),
    (connect, b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 299 Fine\r\nX: y\r\n\r\n"),
    (socks4, b"\0\x5a\0\0\0\0\0\0"),
    (socks5, b"\x05\x00" + V5_OK),
    (socks5, b"\x05\x02\x01\x00" + V5_OK),
    (socks5, b"\x05\x02\x01\x00\x05\x00\x00\x04" + b"\x01" * 18),
    (socks5, b"\x05\x02\x01\x00\x05\x00\x00\x03\x03abc\x12\x34"),
]


def run(handshake: Handshake, pieces: list[bytes]) -> tuple[bytes, bytes | None]:
    """What was sent, and what is left behind the handshake; None when it isn't done."""
    sent, buffered = handshake.begin(), b""
    for number, piece in enumerate(pieces):
        buffered += piece
        while buffered:
            step = handshake.feed(buffered)
            assert 0 < step.used <= len(buffered)
            sent, buffered = sent + step.send, buffered[step.used :]
            if step.done:
                return sent, buffered + b"".join(pieces[number + 1 :])
    return sent, None


def failure(handshake: Handshake, response: bytes) -> UpstreamFailed:
    with pytest.raises(UpstreamFailed) as failed:
        run(handshake, [response])
    return failed.value


@table(("make", "response"), GOOD)
def test_the_bytes_behind_a_good_answer_are_the_tunnels_however_they_come(
    make: Callable[[], Handshake], response: bytes
) -> None:
    whole = response + b"220 hello"
    sent, rest = run(make(), [whole])
    assert rest == b"220 hello"
    assert run(make(), [bytes((octet,)) for octet in whole]) == (sent, rest)
    for cut in range(1, len(whole)):
        assert run(make(), [whole[:cut], whole[cut:]]) == (sent, rest)


@table(("make", "response"), GOOD)
def test_a_part_of_a_good_answer_is_not_enough(make: Callable[[], Handshake], response: bytes) -> None:
    for cut in range(len(response)):
        assert run(make(), [response[:cut]])[1] is None


@given(st.sampled_from([connect, socks4, socks5]), st.binary(min_size=1, max_size=400))
def test_whatever_comes_is_a_step_or_a_failure(make: Callable[[], Handshake], response: bytes) -> None:
    with contextlib.suppress(UpstreamFailed):
        run(make(), [response])


def test_what_connect_sends() -> None:
    assert connect().begin() == (
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\nVia: 1.1 us\r\n"
        b"Proxy-Authorization: Basic dTpw\r\n\r\n"
    )
    port_80 = parse_authority(b"example.com", 80)
    assert ConnectHandshake(port_80, b"", b"1.1 us").begin().startswith(b"CONNECT example.com:80 HTTP/1.1\r\n")


def test_credentials_for_an_upstream_are_utf_8() -> None:
    field = credentials_field("ü", "€")
    assert base64.b64decode(field.removeprefix(b"Proxy-Authorization: Basic ")).decode() == "ü:€"


def test_what_socks4_sends_a_name_as_4a_an_address_as_it_is() -> None:
    assert socks4().begin() == b"\x04\x01\x01\xbb\0\0\0\x01u\0example.com\0"
    assert Socks4Handshake(V4, None).begin() == b"\x04\x01\0\x50\xc0\0\x02\x07\0"


@pytest.mark.parametrize(
    ("target", "address"),
    [
        (NAME, b"\x03\x0bexample.com\x01\xbb"),
        (V4, b"\x01\xc0\0\x02\x07\0\x50"),
        (V6, b"\x04\x20\x01\x0d\xb8" + b"\0" * 11 + b"\x07\0\x50"),
    ],
)
def test_what_socks5_sends(target: object, address: bytes) -> None:
    handshake = Socks5Handshake(target, "u", "p")  # type: ignore[arg-type]
    assert (
        run(handshake, [b"\x05\x02", b"\x01\0"])[0] == b"\x05\x02\0\x02" + b"\x01\x01u\x01p" + b"\x05\x01\0" + address
    )


def test_socks5_without_credentials_offers_none_and_without_a_target_ends_with_them() -> None:
    assert run(Socks5Handshake(NAME, None, None), [b"\x05\0"])[0].startswith(b"\x05\x01\0\x05\x01\0")
    assert run(Socks5Handshake(None, "u", "p"), [b"\x05\x02\x01\0"])[1] == b""


def test_socks4_has_no_ipv6() -> None:
    with pytest.raises(UpstreamFailed) as failed:
        Socks4Handshake(V6, None)
    assert failed.value.blame is Blame.UNFIT


@table(
    ("make", "response", "blame", "status", "kind"),
    [
        (connect, b"HTTP/1.1 407 No\r\nContent-Length: 900\r\n\r\n", Blame.UPSTREAM, 502, "proxy_configuration_error"),
        (connect, b"HTTP/1.1 403 No\r\n\r\n", Blame.TARGET, 403, "http_request_denied"),
        (connect, b"HTTP/1.1 502 No\r\n\r\n", Blame.TARGET, 502, "destination_unavailable"),
        (connect, b"HTTP/1.1 504 No\r\n\r\n", Blame.TARGET, 504, "connection_timeout"),
        (
            connect,
            b"HTTP/1.1 502 No\r\nProxy-Status: x; error=connection_refused; details=y\r\n\r\n",
            Blame.TARGET,
            502,
            "connection_refused",
        ),
        (connect, b"HTTP/1.1 503 No\r\n\r\n", Blame.UNCLEAR, 503, "destination_unavailable"),
        (connect, b"HTTP/1.1 302 Go\r\nLocation: x\r\n\r\n", Blame.UNCLEAR, 502, "destination_unavailable"),
        (connect, b"HTTP/1.1 101 Up\r\n\r\n", Blame.UPSTREAM, 502, "http_protocol_error"),
        (connect, b"HTTP/1.1 100 Go\r\n\r\n" * 20, Blame.UPSTREAM, 502, "http_protocol_error"),
        (connect, b"SSH-2.0-x\r\n\r\n", Blame.UPSTREAM, 502, "http_protocol_error"),
        (connect, b"HTTP/1.1 200 OK\nX: y\n\n", Blame.UPSTREAM, 502, "http_protocol_error"),
        (connect, b"HTTP/1.1 200 OK\r\nX: " + b"y" * 20_000, Blame.UPSTREAM, 502, "http_protocol_error"),
        (connect, b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 5_000, Blame.UPSTREAM, 502, "http_protocol_error"),
        (connect, b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 5_000 + b"\r\n", Blame.UPSTREAM, 502, "http_protocol_error"),
        (socks4, b"\0\x5b\0\0\0\0\0\0", Blame.UNCLEAR, 502, "destination_unavailable"),
        (socks4, b"\0\x5d\0\0\0\0\0\0", Blame.UPSTREAM, 502, "proxy_configuration_error"),
        (socks4, b"\0\x01\0\0\0\0\0\0", Blame.UPSTREAM, 502, "http_protocol_error"),
        (socks4, b"\x04", Blame.UPSTREAM, 502, "http_protocol_error"),
        (socks5, b"\x05\xff", Blame.UPSTREAM, 502, "proxy_configuration_error"),
        (socks5, b"\x05\x01", Blame.UPSTREAM, 502, "http_protocol_error"),
        (socks5, b"H", Blame.UPSTREAM, 502, "http_protocol_error"),
        (socks5, b"\x05\x02\x01\x01", Blame.UPSTREAM, 502, "proxy_configuration_error"),
        (socks5, b"\x05\x02\x07\x00", Blame.UPSTREAM, 502, "http_protocol_error"),
        (socks5, b"\x05\0\x05\x01\0\x01\0", Blame.UNCLEAR, 502, "destination_unavailable"),
        (socks5, b"\x05\0\x05\x02\0\x01\0", Blame.TARGET, 403, "http_request_denied"),
        (socks5, b"\x05\0\x05\x03\0\x01\0", Blame.TARGET, 502, "destination_ip_unroutable"),
        (socks5, b"\x05\0\x05\x04\0\x01\0", Blame.TARGET, 502, "destination_unavailable"),
        (socks5, b"\x05\0\x05\x05\0\x01\0", Blame.TARGET, 502, "connection_refused"),
        (socks5, b"\x05\0\x05\x06\0\x01\0", Blame.TARGET, 504, "connection_timeout"),
        (socks5, b"\x05\0\x05\x08\0\x01\0", Blame.UNFIT, 502, "proxy_configuration_error"),
        (socks5, b"\x05\0\x05\x7f\0\x01\0", Blame.UNCLEAR, 502, "destination_unavailable"),
        (socks5, b"\x05\0\x05\0\0\x09\0", Blame.UPSTREAM, 502, "http_protocol_error"),
        (socks5, b"\x05\0\x05\0\x01\x01\0", Blame.UPSTREAM, 502, "http_protocol_error"),
    ],
)
def test_a_no_has_one_meaning(
    make: Callable[[], Handshake], response: bytes, blame: Blame, status: int, kind: str
) -> None:
    failed = failure(make(), response)
    assert (failed.blame, failed.failure.status, failed.failure.kind) == (blame, status, kind)
