"""Heads that come again are parsed as the first time, and what is a secret is not kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.forwarding.protocols.failures import Refused
from actors.forwarding.protocols.http import head_cache
from actors.forwarding.protocols.http.head_cache import (
    CACHED_HEADS,
    HEAD_SIZE_MAX,
    HeadCache,
    drop_lines,
    passed_to_client,
    passed_to_origin,
    request_to_origin,
    response_to_client,
    route_of,
    url_of,
)
from actors.forwarding.protocols.http.head_parser import parse_request, parse_response
from actors.forwarding.protocols.http.targets import parse_absolute
from tests.kit.tables import table

REQUEST = b"GET http://example.com/%b HTTP/1.1\r\nHost: example.com\r\n%b\r\n"
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n%b\r\n"
FIELDS = st.lists(
    st.sampled_from(
        (
            b"Accept: */*\r\n",
            b"Connection: close\r\n",
            b"Connection: upgrade\r\n",
            b"Upgrade: websocket\r\n",
            b"Via: 1.1 other\r\n",
            b"Max-Forwards: 3\r\n",
            b"Cookie: a=b\r\n",
            b"Proxy-Authorization: Basic YTpi\r\n",
        )
    ),
    unique=True,
).map(b"".join)


@given(FIELDS, st.booleans(), st.sampled_from((b"one", b"two")))
def test_a_request_that_comes_again_reads_and_passes_on_as_one_that_is_new(
    fields: bytes, upgrade: bool, via: bytes
) -> None:
    written = REQUEST % (b"path", fields)
    fresh = parse_request(written)
    expected = request_to_origin(fresh, *parse_absolute(fresh.target), via, upgrade=upgrade)
    for _time in range(3):
        head = head_cache.request_head(bytes(bytearray(written)))
        assert head == fresh
        assert route_of(head) == parse_absolute(fresh.target)
        assert url_of(head) == "http://example.com/path"
        assert passed_to_origin(head, via, upgrade=upgrade) == expected


@given(FIELDS, st.booleans(), st.sampled_from((None, b"close", b"keep-alive")), st.sampled_from((b"one", b"two")))
def test_an_answer_that_comes_again_reads_and_passes_on_as_one_that_is_new(
    fields: bytes, chunked: bool, connection: bytes | None, via: bytes
) -> None:
    written = RESPONSE % fields
    fresh = parse_response(written)
    expected = response_to_client(fresh, via, chunked=chunked, connection=connection)
    for _time in range(3):
        head = head_cache.response_head(bytes(bytearray(written)))
        assert head == fresh
        assert passed_to_client(head, via, chunked=chunked, connection=connection) == expected


def test_what_is_refused_is_refused_each_time_and_not_kept() -> None:
    memory = HeadCache(parse_request)
    for _time in range(2):
        with pytest.raises(Refused):
            memory(b"GET / HTTP/1.1\r\nHost : a\r\n\r\n")
    assert len(memory) == 0


@table(
    "secret",
    [
        b"Proxy-Authorization: Basic YTpi",
        b"Authorization: Bearer x",
        b"COOKIE: a=b",
        b"Set-Cookie: a=b",
        b"X-Auth-Token: x",
        b"Api-Key: x",
    ],
)
def test_secrets_are_not_kept(secret: bytes) -> None:
    memory = HeadCache(parse_request)
    memory(REQUEST % (b"", secret + b"\r\n"))
    assert len(memory) == 0


def test_nor_is_a_query() -> None:
    memory = HeadCache(parse_request)
    memory(REQUEST % (b"?access_token=secret", b""))
    assert len(memory) == 0


def test_long_heads_are_not_kept_and_the_number_of_the_others_is_bounded() -> None:
    memory = HeadCache(parse_request)
    memory(REQUEST % (b"x" * HEAD_SIZE_MAX, b""))
    assert len(memory) == 0
    for number in range(3 * CACHED_HEADS):
        memory(REQUEST % (b"%d" % number, b""))
        assert len(memory) <= CACHED_HEADS


def test_letting_go_leaves_what_others_share_and_empties_what_no_one_does() -> None:
    memory = HeadCache(parse_request)
    shared, own = (memory(REQUEST % (b"", fields)) for fields in (b"Accept: */*\r\n", b"Cookie: a=b\r\n"))
    for head in (shared, own):
        drop_lines(head)
    assert shared.fields.lines == [b"Accept: */*"]
    assert own.fields.lines == []
