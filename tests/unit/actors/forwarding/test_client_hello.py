"""ClientHellos: those of real clients are read in whatever pieces they come; what is no proper one is refused.

`tests/conformance/test_client_hellos.py` compares with OpenSSL.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.net.client_hello import (
    ALPN_MAX,
    HELLO_MAX,
    MALFORMED,
    NOT_TLS,
    UNRECOGNIZED_NAME_ALERT,
    BadHello,
    ClientHello,
    HandshakeWatch,
    HelloReader,
    is_retry_request,
)
from tests.kit.client_hellos import (
    ALPN,
    PRE_SHARED_KEY,
    SERVER_NAME,
    SUPPORTED_VERSIONS,
    Hello,
    Sample,
    protocols,
    record,
    records,
    samples,
    server_name,
    vector,
    versions,
)

RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
A = Hello().with_((SERVER_NAME, server_name(b"a.example")))


def read(*pieces: bytes) -> ClientHello | None:
    reader = HelloReader()
    found = [reader.feed(piece) for piece in pieces]
    assert all(each is None for each in found[:-1])
    assert reader.data == b"".join(pieces)
    return found[-1]


def refusal(octets: bytes) -> tuple[str, str]:
    with pytest.raises(BadHello) as raised:
        HelloReader().feed(octets)
    return raised.value.kind, str(raised.value)


def byte_by_byte(octets: bytes) -> list[bytes]:
    return [octets[at : at + 1] for at in range(len(octets))]


def expected(sample: Sample, size: int) -> ClientHello:
    return ClientHello(sample.name, sample.alpn, sample.version, size)


def test_there_are_hellos_of_many_clients() -> None:
    programs = {sample.client.partition(",")[0] for sample in samples()}
    assert len(samples()) >= 30
    assert programs >= {"Chromium", "curl", "GnuTLS", "Go", "Java", "Node.js", "Python", "uv", "NSS", "curl_cffi"}
    assert {sample.version for sample in samples()} == {"1.0", "1.1", "1.2", "1.3"}


def test_real_hellos_are_read_in_whatever_pieces_and_records_they_come() -> None:
    for sample in samples():
        octets, message = sample.octets, sample.message
        half = len(message) // 2
        ways = {
            "whole": [octets],
            "byte by byte": byte_by_byte(octets),
            "in two segments": [octets[:9], octets[9:]],
            "in two records": [records(message, half + 1)],
            "in two records, byte by byte": byte_by_byte(records(message, half + 1)),
            "in records of a byte": [records(message, 1)],
        }
        for way, pieces in ways.items():
            assert read(*pieces) == expected(sample, sum(map(len, pieces))), (sample.client, way)


def test_what_follows_the_record_of_a_hello_is_kept_and_is_no_part_of_it() -> None:
    for behind in (record(b"\1", 20), record(b"early", 23), record(b"\2\0\0\0"), b"GET"):
        assert read(A.octets() + behind) == ClientHello("a.example", "", "1.2", len(A.octets()))


@given(st.data())
def test_pieces_don_t_matter(data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from(samples()))
    octets = records(sample.message, data.draw(st.integers(1, len(sample.message))))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(octets) - 1), max_size=5)))
    pieces = [octets[start:end] for start, end in zip([0, *cuts], [*cuts, len(octets)], strict=True)]
    assert read(*pieces) == expected(sample, len(octets))


def test_names_are_written_so_that_they_can_be_compared_and_logged() -> None:
    table = {
        b"WWW.Example.COM": "www.example.com",
        b"a.example.": "a.example",
        b"a.example..": "a.example..",
        b".": "",
        b"": "",
        b"xn--bcher-kva.example": "xn--bcher-kva.example",
        "bücher.example".encode(): "b\\xc3\\xbccher.example",
        b"a b": "a\\x20b",
        b"a\r\nb": "a\\x0d\\x0ab",
        b"a\\x00": "a\\x5cx00",
        b"\x7f\x1b": "\\x7f\\x1b",
        b"192.0.2.1": "192.0.2.1",
        b"a" * 255: "a" * 255,
        b"\xff" * 255: ("\\xff" * 64)[:255],
    }
    found = {name: read(Hello().with_((SERVER_NAME, server_name(name))).octets()) for name in table}
    assert {name: hello and hello.name for name, hello in found.items()} == table


def test_protocols_are_joined_as_far_as_there_is_room() -> None:
    table = {
        (b"h2", b"http/1.1"): "h2,http/1.1",
        (b"\x0a\x0a", b"h2"): "\\x0a\\x0a,h2",
        (b"a,b", b"c"): "a\\x2cb,c",
        (b"a" * 255, b"h2"): "a" * 255,
        (b"a" * 252, b"h2", b"h3"): "a" * 252 + ",h2",
        (b"a" * 253, b"h2", b"c"): "a" * 253 + ",c",
        (b"\xff" * 80, b"h2"): "h2",
    }
    for offered, joined in table.items():
        hello = read(Hello().with_((ALPN, protocols(*offered))).octets())
        assert hello is not None
        assert hello.alpn == joined
        assert len(joined) <= ALPN_MAX


def test_the_version_is_the_highest_that_is_known() -> None:
    table = {
        (0x0300, None): "ssl3",
        (0x0301, None): "1.0",
        (0x0302, None): "1.1",
        (0x0303, None): "1.2",
        (0x0304, None): "1.2",
        (0x0303, (0x0303, 0x0304)): "1.3",
        (0x0303, (0x7A7A, 0x0304, 0x0303)): "1.3",
        (0x0303, (0xFAFA, 0x0303)): "1.2",
        (0x0301, (0x0302,)): "1.1",
        (0x0303, (0x7F1C, 0x0303)): "1.3",
    }
    for (plain, offered), version in table.items():
        hello = replace(A, version=plain)
        if offered is not None:
            hello = hello.with_((SUPPORTED_VERSIONS, versions(*offered)))
        found = read(hello.octets())
        assert found is not None
        assert found.version == version, (plain, offered)
        assert found.name == ("" if version == "ssl3" else "a.example")


def test_what_is_no_tls_is_so_with_its_first_octets() -> None:
    for octets in (b"G", b"SSH-2.0", b"\0", b"\x15", b"\x17", b"\x16\x02", b"\x16\xfe\xfd", b"\x80\x2e\x01\x03\x01"):
        assert refusal(octets)[0] == NOT_TLS, octets


NAME = (SERVER_NAME, server_name(b"a.example"))
TWO_NAMES = vector(2 * (b"\0" + vector(b"a.example", 2)), 2)
OTHER_KIND_FIRST = vector(b"\1" + vector(b"b.example", 2) + b"\0" + vector(b"a.example", 2), 2)
MESSAGE = A.message()
MALFORMED_ONES = {
    "an empty record": record(b""),
    "a record over 2^14": b"\x16\x03\x01\x40\x01",
    "another message": record(b"\x02\0\0\x2a" + bytes(42)),
    "a message over the limit": b"\x16\x03\x01\x40\0\x01" + (HELLO_MAX - 3).to_bytes(3, "big"),
    "a message of nothing": record(b"\x01\0\0\0"),
    "an empty record within": record(MESSAGE[:9]) + record(b""),
    "an alert within": record(MESSAGE[:9]) + record(b"\1\0", 21),
    "another version within": record(MESSAGE[:9]) + b"\x16\x02",
    "a further message in its record": record(MESSAGE + b"\x01\0\0\0"),
    "a further message in its last record": record(MESSAGE[:9]) + record(MESSAGE[9:] + b"\0"),
    "two names": Hello().with_((SERVER_NAME, TWO_NAMES)).octets(),
    "a name of another type before it": Hello().with_((SERVER_NAME, OTHER_KIND_FIRST)).octets(),
    "a name of another type": Hello().with_((SERVER_NAME, server_name(b"a.example", 1))).octets(),
    "an empty list of names": Hello().with_((SERVER_NAME, b"\0\0")).octets(),
    "server_name without a value": Hello().with_((SERVER_NAME, b"")).octets(),
    "octets behind the list of names": Hello().with_((SERVER_NAME, server_name(b"a") + b"\0")).octets(),
    "a name of 256": Hello().with_((SERVER_NAME, server_name(b"a" * 256))).octets(),
    "a name with a NUL": Hello().with_((SERVER_NAME, server_name(b"a.example\0.b"))).octets(),
    "server_name twice": A.with_((10, b"")).with_((SERVER_NAME, server_name(b"b.example"))).octets(),
    "an unknown extension twice": A.with_((0x1A1A, b""), (0x1A1A, b"")).octets(),
    "an extension behind pre_shared_key": Hello().with_((PRE_SHARED_KEY, b""), NAME).octets(),
    "an empty protocol": A.with_((ALPN, protocols(b"h2", b""))).octets(),
    "no protocols": A.with_((ALPN, b"\0\0")).octets(),
    "protocols that are cut off": A.with_((ALPN, vector(b"\x03h2", 2))).octets(),
    "half a version": A.with_((SUPPORTED_VERSIONS, b"\x03\x03\x04\x03")).octets(),
    "no versions": A.with_((SUPPORTED_VERSIONS, b"\0")).octets(),
    "SSL 3.0 with more versions": replace(A, version=0x0300).with_((SUPPORTED_VERSIONS, versions(0x0304))).octets(),
    "a version before SSL 3.0": replace(A, version=0x0200).octets(),
    "a session id of 33": replace(A, session=bytes(33)).octets(),
    "no cipher suites": replace(A, ciphers=b"").octets(),
    "half a cipher suite": replace(A, ciphers=b"\x13\x01\x13").octets(),
    "no compression method": replace(A, compressions=b"").octets(),
    "only others than the null method": replace(A, compressions=b"\x01").octets(),
    "octets behind the extensions": records(b"\x01" + vector(MESSAGE[4:] + b"\0", 3)),
    "an extension that is cut off": records(b"\x01" + vector(MESSAGE[4:-1], 3)),
    "half an extension's header": records(
        b"\x01" + vector(replace(A, extensions=None).message()[4:] + b"\0\x02\0\0", 3)
    ),
}


def test_malformed_hellos_are_refused_with_a_sentence() -> None:
    for what, octets in MALFORMED_ONES.items():
        kind, text = refusal(octets)
        assert kind == MALFORMED, what
        assert text[0].islower() or text.startswith("ALPN"), what
        with pytest.raises(BadHello):
            read(*byte_by_byte(octets))


def test_no_part_of_a_hello_is_one() -> None:
    octets = records(A.message(), 20)
    assert [end for end in range(len(octets)) if read(octets[:end]) is not None] == []


def test_a_hello_of_16_kib_is_read_and_one_octet_more_is_malformed() -> None:
    room = HELLO_MAX - len(A.message()) - 4
    longest = A.with_((21, bytes(room)))
    assert read(longest.octets()) == ClientHello("a.example", "", "1.2", HELLO_MAX + 5)
    assert refusal(A.with_((21, bytes(room + 1))).octets())[0] == MALFORMED


def test_the_work_is_linear_in_the_octets_even_for_records_and_pieces_of_one() -> None:
    octets = records(A.with_((21, bytes(HELLO_MAX - len(A.message()) - 4))).message(), 1)
    before = time.process_time()
    assert read(*byte_by_byte(octets)) == ClientHello("a.example", "", "1.2", 6 * HELLO_MAX)
    assert time.process_time() - before < 1  # 0.05 s here; to go over all of it for each octet takes minutes


def test_records_of_one_octet_take_little_more_memory_than_their_octets() -> None:
    octets = records(A.with_((21, bytes(HELLO_MAX - len(A.message()) - 4))).message(), 1)
    reader = HelloReader()
    tracemalloc.start()
    try:
        assert reader.feed(octets[:-1]) is None
        assert tracemalloc.get_traced_memory()[0] < 1.5 * len(octets)
    finally:
        tracemalloc.stop()


def test_the_second_hello_is_expected_after_a_retry_request_alone() -> None:
    body = b"\x03\x03" + RETRY + vector(b"", 1) + b"\x13\x01\0" + vector(b"", 2)
    retry, other = (b"\x02" + vector(each, 3) for each in (body, body.replace(RETRY, bytes(range(32)))))
    alert = record(b"\1\x70", 21)
    streams = {
        records(retry): True,
        records(retry, 1): True,
        alert + records(retry, 9): True,
        records(other): False,
        records(other, 1): False,
        alert + alert: None,
        alert * 200: False,
        record(b"\1\0\0\0"): False,
        b"HTTP/1.1 400 ": False,
        b"\x16\x02\x01\0\x05": False,
        record(b"\1", 20): False,
        alert[:5]: None,
        alert: None,
        UNRECOGNIZED_NAME_ALERT: False,
    }
    for octets, expected_one in streams.items():
        assert is_retry_request(octets) is expected_one, octets
    for octets in (records(retry, 7), records(other, 7)):
        found = [is_retry_request(octets[:end]) for end in range(len(octets) + 1)]
        known = found.index(is_retry_request(octets))
        assert set(found[:known]) == {None}
        assert len(set(found[known:])) == 1


def test_further_handshake_records_of_a_client_are_seen_wherever_they_are_cut() -> None:
    passed = record(b"\1", 20) + record(b"", 23) + record(bytes(20_000)[:18_000], 23) + record(b"\1\0", 21)
    for stop in (record(b"\1\0\0\0"), b"\x18", b"G", b"\x17\x02", b"\x17\x03\x03\x48\x01"):
        for size in (1, 3, 7, 4096, 1 << 20):
            watch, octets, at = HandshakeWatch(), passed + stop + b"more", 0
            while (found := watch.feed(octets[at : at + size])) < 0:
                at += size
            if stop[0] in (22, 24, 71):
                assert at + found == len(passed)
            else:
                assert len(passed) <= at + found < len(passed + stop)
            assert watch.feed(record(b"", 23)) == 0  # it would be within the record that has begun
    assert HandshakeWatch().feed(passed) == HandshakeWatch().feed(b"") == -1


def test_a_client_says_that_the_name_was_not_recognized() -> None:
    ours, theirs = socket.socketpair()
    context = ssl.create_default_context()

    def refuse() -> None:
        reader = HelloReader()
        while reader.feed(ours.recv(99)) is None:
            pass
        ours.sendall(UNRECOGNIZED_NAME_ALERT)

    thread = threading.Thread(target=refuse)
    thread.start()
    with ours, theirs, pytest.raises(ssl.SSLError, match="unrecognized name"):
        context.wrap_socket(theirs, server_hostname="a.example")
    thread.join()
