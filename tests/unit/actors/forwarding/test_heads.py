"""Heads are read in one way or not at all (RFC 9112 sections 2 to 5)."""

from __future__ import annotations

import contextlib

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.forwarding.protocols.failures import Refused
from actors.forwarding.protocols.http.head_parser import (
    FIELDS_MAX,
    HEAD_MAX,
    LINE_MAX,
    find_end,
    parse_request,
    parse_response,
)
from tests.kit.tables import table

GOOD = b"GET http://a.example/x?y=1 HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n\r\n"


def request(*lines: bytes, start: bytes = b"POST http://a.example/ HTTP/1.1") -> bytes:
    return b"\r\n".join((start, b"Host: a.example", *lines)) + b"\r\n\r\n"


def test_a_request_keeps_the_lines_that_a_proxy_need_not_understand() -> None:
    head = parse_request(request(b"Accept: */*", b"X-Odd:\tvalue with \xe9", b"Content-Length: 5"))
    assert head.method == b"POST"
    assert head.minor == 1
    assert head.fields.lines == [b"Accept: */*", b"X-Odd:\tvalue with \xe9"]
    assert head.fields.length == 5
    assert head.fields.host == b"a.example"


def test_hop_by_hop_fields_and_those_that_connection_names_do_not_pass() -> None:
    head = parse_request(
        request(
            b"Connection: close, X-Mine",
            b"X-Mine: 1",
            b"x-mine: 2",
            b"Keep-Alive: timeout=5",
            b"TE: trailers",
            b"Proxy-Authorization: Basic eA==",
            b"Proxy-Connection: keep-alive",
            b"X-Yours: 3",
        )
    )
    assert head.fields.lines == [b"X-Yours: 3"]
    assert head.fields.close
    assert head.fields.keep_alive
    assert head.fields.credentials == b"Basic eA=="


@table(
    "head",
    [
        b"GET http://a/ HTTP/1.1\nHost: a\n\n\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\n Host: a\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\nHost: a\x00b\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\nHost: a\rb\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\nHost: a\x0bb\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\nNo colon\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\n: no name\r\n\r\n",
        b"GET  http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://a/ HTTP/1.1 \r\nHost: a\r\n\r\n",
        b"GET http://a/\tHTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://a/ HTTP/2.0\r\nHost: a\r\n\r\n",
        b"GET http://a/ HTTP/1.10\r\nHost: a\r\n\r\n",
        b"GET http://a/ http/1.1\r\nHost: a\r\n\r\n",
        b"GET http://a/\r\n\r\n",
        b"G(T http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://a/\xff HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\n\r\n",
        request(b"Host: b"),
        b"GET http://a/ HTTP/1.1\r\nHost: a, b\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\nHost: me@a\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\nHost: a/b\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\nHost: a:8o\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\nHost: \xe9\r\n\r\n",
        request(b"Content-Length: 5", b"Content-Length: 5"),
        request(b"Content-Length: 5, 5"),
        request(b"Content-Length: +5"),
        request(b"Content-Length: 0x5"),
        request(b"Content-Length: 1_0"),
        request(b"Content-Length: -1"),
        request(b"Content-Length:"),
        request(b"Content-Length: 9999999999999999999"),
        request(b"Content-Length: \xd9\xa3"),
        request(b"Content-Length: 5", b"Transfer-Encoding: chunked"),
        request(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
        request(b"Transfer-Encoding: chunked, chunked"),
        request(b"Transfer-Encoding: gzip, chunked"),
        request(b"Transfer-Encoding: identity"),
        request(b"Transfer-Encoding: xchunked"),
        request(b"Transfer-Encoding: \x0bchunked"),
        request(b"Transfer-Encoding:"),
        request(b"Transfer-Encoding: chunked "),
        request(b"Transfer-Encoding: chunked\t"),
        request(b"Transfer-Encoding: chunked", start=b"POST http://a.example/ HTTP/1.0"),
        request(b"Connection: Content-Length", b"Content-Length: 3"),
        request(b"Connection: transfer-encoding"),
        request(b"Proxy-Authorization: Basic eA==", b"Proxy-Authorization: Basic eQ=="),
    ],
)
def test_a_head_that_two_parsers_could_read_differently_is_400_and_ends_the_connection(head: bytes) -> None:
    with pytest.raises(Refused) as caught:
        parse_request(head)
    assert caught.value.failure.status == 400
    assert caught.value.failure.close


def test_limits_of_fields_lines_and_heads() -> None:
    parse_request(request(*[b"A: b"] * (FIELDS_MAX - 1)))
    request_line = b"GET http://a.example/%b HTTP/1.1"
    fitting = request(start=request_line % (b"x" * (LINE_MAX - len(request_line) + 2)))
    parse_request(fitting)
    for head in (
        request(*[b"A: b"] * FIELDS_MAX),
        request(b"A: " + b"b" * LINE_MAX),
        fitting.replace(b"/x", b"/xx", 1),
    ):
        with pytest.raises(Refused) as caught:
            parse_request(head)
        assert caught.value.failure.status == 431


@table(
    ("part", "status"),
    [
        (b"GET / HTTP/1.1\n", 400),
        (b"\x16\x03\x01\x00\xa5\x00", 400),
        (b"GET http://a/ HTTP/1.1\r\nHost: a\rx", 400),
        (b"A" * (LINE_MAX + 1), 431),
        (b"GET http://a/ HTTP/1.1\r\n" + b"A: b\r\n" * (HEAD_MAX // 6), 431),
    ],
)
def test_what_cannot_become_a_head_is_refused_before_its_end(part: bytes, status: int) -> None:
    with pytest.raises(Refused) as caught:
        find_end(part, 0)
    assert caught.value.failure.status == status


@pytest.mark.parametrize("length", [LINE_MAX - 1, LINE_MAX, LINE_MAX + 1])
def test_a_line_that_may_never_end_is_as_long_as_one_that_did(length: int) -> None:
    line = b"A: " + b"b" * (length - 3)
    for part in (line, line + b"\r", GOOD[:-2] + line, GOOD[:-2] + line + b"\r"):
        if length > LINE_MAX:
            with pytest.raises(Refused):
                find_end(part, len(part) - 1)
        else:
            assert find_end(part, len(part) - 1) == -1


@given(st.integers(0, len(GOOD)))
def test_the_end_is_found_wherever_the_bytes_are_split(cut: int) -> None:
    first = find_end(GOOD[:cut], 0)
    assert first == (len(GOOD) if cut == len(GOOD) else -1)
    assert find_end(GOOD, min(cut, len(GOOD) - 1)) == len(GOOD)


def test_a_bare_lf_is_found_on_the_border_of_two_reads() -> None:
    part = b"GET http://a/ HTTP/1.1"
    assert find_end(part, 0) == -1
    with pytest.raises(Refused):
        find_end(part + b"\n", len(part))


@given(st.binary(max_size=200))
def test_any_bytes_give_a_head_or_a_refusal(data: bytes) -> None:
    for parse in (parse_request, parse_response):
        with contextlib.suppress(Refused):
            parse(data + b"\r\n\r\n")


_TEXT = st.text(st.characters(min_codepoint=0, max_codepoint=255), max_size=20).map(lambda text: text.encode("latin-1"))


@given(
    st.lists(st.tuples(st.sampled_from([b"Content-Length", b"Transfer-Encoding", b"X", b"Host"]), _TEXT), max_size=3)
)
def test_what_is_taken_here_llhttp_takes_too(fields: list[tuple[bytes, bytes]]) -> None:
    head = request(*[name + b": " + value for name, value in fields])
    try:
        parse_request(head)
    except Refused:
        return
    httptools.HttpRequestParser(object()).feed_data(head)


@table(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 099 No\r\n\r\n",
        b"HTTP/1.1 2000 No\r\n\r\n",
        b"HTTP/3.1 200 OK\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked \r\n\r\n",
        b"HTTP/1.1 200 " + b"x" * LINE_MAX + b"\r\n\r\n",
    ],
)
def test_an_answer_that_two_parsers_could_read_differently_is_502(head: bytes) -> None:
    with pytest.raises(Refused) as caught:
        parse_response(head)
    assert caught.value.failure.status == 502


def test_an_answer_may_have_an_empty_phrase_or_none() -> None:
    assert parse_response(b"HTTP/1.1 204 \r\n\r\n").status == 204
    assert parse_response(b"HTTP/1.0 204\r\n\r\n").minor == 0
