"""Addresses and datagram heads of SOCKS5."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.forwarding.protocols.failures import Refused
from actors.forwarding.protocols.socks.replies import pack_datagram_head, read_address, read_datagram
from actors.net.socks_wire import endpoint_of, pack_address
from tests.kit.tables import table


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)), st.integers(0, 65535), st.binary(max_size=8))
def test_an_address_that_is_written_is_read_again(address: object, port: int, rest: bytes) -> None:
    packed = pack_address((str(address), port))
    found = read_address(b"?" + packed + rest, 1)
    assert found is not None
    target, end = found
    assert pack_address((target.host, target.port)) == packed
    assert end == 1 + len(packed)


@given(st.integers(0, 18))
def test_an_address_that_is_not_there_whole_is_waited_for(cut: int) -> None:
    packed = pack_address(("2001:db8::1", 53))
    assert read_address(packed[:cut], 0) is None


def test_a_datagram_has_its_target_and_its_data() -> None:
    data = b"\0\0\0\x03\x09a.example\x00\x35data"
    datagram = read_datagram(data)
    assert datagram is not None
    assert datagram.target.text == b"a.example:53"
    assert data[datagram.start :] == b"data"


@table(
    "data",
    [
        b"",
        b"\0\0\0",
        b"\0\0\x01\x01\x01\x02\x03\x04\x00\x35x",  # a fragment
        b"\0\0\x80\x01\x01\x02\x03\x04\x00\x35x",
        b"\0\x01\0\x01\x01\x02\x03\x04\x00\x35x",  # a reserved octet
        b"\0\0\0\x02\x01\x02\x03\x04\x00\x35x",  # no such address type
        b"\0\0\0\x01\x01\x02\x03\x04\x00",  # cut off
        b"\0\0\0\x01\x01\x02\x03\x04\0\0x",  # port 0
        b"\0\0\0\x03\x05127.1\x00\x35x",
        b"\0\0\0\x03\x00\x00\x35x",
    ],
)
def test_a_datagram_that_is_not_right_is_dropped(data: bytes) -> None:
    assert read_datagram(data) is None


@given(st.binary(max_size=64))
def test_no_datagram_is_more_than_dropped(data: bytes) -> None:
    datagram = read_datagram(data)
    assert datagram is None or datagram.start <= len(data)


def test_an_unknown_type_of_address_is_refused() -> None:
    with pytest.raises(Refused):
        read_address(b"\x05rest", 0)


def test_the_head_for_the_client_names_the_sender() -> None:
    assert pack_datagram_head(("192.0.2.1", 53)) == b"\0\0\0\x01\xc0\0\x02\x01\x00\x35"


@pytest.mark.parametrize(
    ("returned", "endpoint"),
    [
        (("192.0.2.1", 5), ("192.0.2.1", 5)),
        (("::ffff:192.0.2.1", 5, 0, 0), ("192.0.2.1", 5)),
        (("fe80::1%eth0", 5, 0, 2), ("fe80::1", 5)),
    ],
)
def test_what_the_kernel_returns_becomes_an_endpoint(returned: tuple[str, int], endpoint: tuple[str, int]) -> None:
    assert endpoint_of(returned) == endpoint
