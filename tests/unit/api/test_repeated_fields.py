"""Heads whose fields are those of the head before are read as every other parser would read them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from waitress.adjustments import Adjustments

from api.server.parser import Bodies, Parser
from api.server.repeated_fields import FIELDS_MAX, RepeatedFields, plain_first_line

PLAIN = b"Host: here\r\nAccept: application/json\r\nX-API-Key: pf_secret\r\n"
READ = [
    "first_line",
    "command",
    "request_uri",
    "version",
    "proxy_scheme",
    "proxy_netloc",
    "path",
    "query",
    "fragment",
    "url_scheme",
    "headers",
    "chunked",
    "content_length",
    "expect_continue",
    "connection_close",
    "completed",
    "empty",
    "headers_finished",
    "header_bytes_received",
]


@pytest.fixture
def adj() -> Any:
    made = Adjustments(url_scheme="https", max_request_header_size=8192)
    made.bodies = Bodies()
    return made


def seen(adj: Any, head: bytes, repeated: RepeatedFields | None = None) -> dict[str, Any]:
    """All that a server reads from a parser; of an error its kind and its text."""
    parser = Parser(adj, repeated)
    consumed = parser.received(head)
    found = {name: getattr(parser, name, None) for name in READ}
    found["error"] = None if parser.error is None else (type(parser.error), parser.error.body)
    parser.close()
    return {**found, "consumed": consumed, "body": parser.body_rcv is not None}


def head(first_line: bytes, fields: bytes = PLAIN) -> bytes:
    return first_line + b"\r\n" + fields + b"\r\n"


def was_read_in_full(adj: Any, monkeypatch: pytest.MonkeyPatch, request: bytes, repeated: RepeatedFields) -> bool:
    read: list[bytes] = []
    with monkeypatch.context() as patch:
        whole = Parser._parse_all
        patch.setattr(Parser, "_parse_all", lambda self, given: (read.append(given), whole(self, given)))
        seen(adj, request, repeated)
    return bool(read)


@pytest.mark.parametrize(
    "first_line",
    [
        b"GET / HTTP/1.1",
        b"GET /api/v1/proxies/prx_1 HTTP/1.1",
        b"HEAD /a.b/~c-d//e/?page=2&per_page=50 HTTP/1.1",
        b"DELETE /x?y HTTP/1.1",
    ],
)
def test_the_same_fields_are_read_once(adj: Any, monkeypatch: pytest.MonkeyPatch, first_line: bytes) -> None:
    repeated = RepeatedFields()
    assert was_read_in_full(adj, monkeypatch, head(b"GET /before HTTP/1.1"), repeated)
    assert not was_read_in_full(adj, monkeypatch, head(first_line), repeated)
    assert seen(adj, head(first_line), repeated) == seen(adj, head(first_line))


@pytest.mark.parametrize(
    "first_line",
    [
        b"GET / HTTP/1.0",
        b"GET / HTTP/1.2",
        b"GET /",
        b"get / HTTP/1.1",
        b"GET  / HTTP/1.1",
        b"GET / HTTP/1.1 ",
        b"GET //host/path HTTP/1.1",
        b"GET http://host/path HTTP/1.1",
        b"GET /a%20b HTTP/1.1",
        b"GET /a? HTTP/1.1",
        b"GET /a#b HTTP/1.1",
        b"GET /a:b HTTP/1.1",
        b"GET /\xc3\xa4 HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"GET /a\nb HTTP/1.1",
        b"GET /\x00 HTTP/1.1",
    ],
)
def test_other_first_lines_are_read_in_full(adj: Any, first_line: bytes) -> None:
    repeated = RepeatedFields()
    seen(adj, head(b"GET /before HTTP/1.1"), repeated)
    assert plain_first_line(first_line) is None
    assert seen(adj, head(first_line), repeated) == seen(adj, head(first_line))


@pytest.mark.parametrize(
    "fields",
    [
        b"Host: here\r\nConnection: close\r\n",
        b"Host: here\r\nConnection: keep-alive, close\r\n",
        b"Host: here\r\nContent-Length: 0\r\n",
        b"Host: here\r\nContent-Length: 5\r\n",
        b"Host: here\r\nTransfer-Encoding: chunked\r\n",
        b"Host: here\r\nExpect: 100-continue\r\n",
        b"Host: here\r\nHost: there\r\n",
        b"Host: here\r\n folded\r\n",
        b"Accept: */*\r\n",
        b"Host: here\r\nX: " + b"x" * FIELDS_MAX + b"\r\n",
    ],
)
def test_fields_with_a_meaning_of_their_own_are_read_each_time(
    adj: Any, monkeypatch: pytest.MonkeyPatch, fields: bytes
) -> None:
    repeated = RepeatedFields()
    for _ in range(2):
        assert was_read_in_full(adj, monkeypatch, head(b"GET /x HTTP/1.1", fields), repeated)
        assert seen(adj, head(b"GET /x HTTP/1.1", fields), repeated) == seen(adj, head(b"GET /x HTTP/1.1", fields))


def test_what_an_application_alters_is_not_in_the_next_request(adj: Any) -> None:
    repeated = RepeatedFields()
    for _ in range(3):
        parser = Parser(adj, repeated)
        parser.received(head(b"GET /x HTTP/1.1"))
        assert parser.headers == {"HOST": "here", "ACCEPT": "application/json", "X_API_KEY": "pf_secret"}
        parser.headers["CONNECTION"] = "close"


def test_an_absolute_target_names_the_host_of_its_own_request_only(adj: Any) -> None:
    repeated = RepeatedFields()
    assert seen(adj, head(b"GET http://other/ HTTP/1.1"), repeated)["headers"]["HOST"] == "other"
    assert seen(adj, head(b"GET / HTTP/1.1"), repeated)["headers"]["HOST"] == "here"


def test_any_sequence_of_heads_is_read_as_each_of_them_alone(adj: Any) -> None:
    numbers = random.Random(7)
    targets = (b"/", b"/a", b"/a?b=c", b"//a", b"/%41", b"http://x/y", b"*", b"/a b", b"/\t", b"/a?b=c?d", b"/\xff")
    lines = (b"Host: h", b"Host: i", b"Host : h", b"Connection: close", b"Connection: Keep-Alive", b"X_Y: 1", b"A: 1")
    more = (b"Content-Length: 0", b"Transfer-Encoding: chunked", b"Expect: 100-continue", b" folded", b"A:\x01", b"A:b")
    repeated, reads = RepeatedFields(), 0
    for _ in range(4000):
        given = [each for each in (*lines, *more) if numbers.random() < 0.08]
        fields = b"".join(each + b"\r\n" for each in (b"Host: h", *given))
        for _ in range(3):
            method = numbers.choice((b"GET", b"HEAD", b"POST", b"get", b"G(T"))
            version = numbers.choice((b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0"))
            request = head(method + b" " + numbers.choice(targets) + b" " + version, fields)
            reads += repeated.headers(fields + b"\r\n") is not None
            assert seen(adj, request, repeated) == seen(adj, request), request
    assert reads > 1000
