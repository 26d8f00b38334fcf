"""Bodies end where RFC 9112 section 6 lets them, however the bytes are split."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.forwarding.protocols.failures import Refused
from actors.forwarding.protocols.http.framing import LAST_CHUNK, Chunked, ContentLengthBody, chunk
from tests.kit.tables import table

NEXT = b"GET http://next/ HTTP/1.1\r\n"


def feed_in_pieces(body: Chunked | ContentLengthBody, data: bytes, cuts: list[int]) -> tuple[bytes, bytes]:
    content = b""
    rest = b""
    borders = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    for start, end in itertools.pairwise(borders):
        if body.complete:
            rest += data[start:end]
            continue
        part, behind = body.feed(data[start:end])
        content += part
        rest += behind
    return content, rest


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=5), st.lists(st.integers(0, 10_000), max_size=20))
def test_chunks_split_anywhere_give_the_same_content(parts: list[bytes], cuts: list[int]) -> None:
    coded = b"".join(map(chunk, parts)) + LAST_CHUNK
    body = Chunked()
    assert feed_in_pieces(body, coded + NEXT, cuts) == (b"".join(parts), NEXT)
    assert body.complete


def test_chunks_one_byte_at_a_time() -> None:
    coded = b'5;ext=1;x;y="a \\"b"\r\nhello\r\n006\r\n world\r\n0\r\nX-Trailer: x\r\n\r\n'
    body = Chunked()
    assert feed_in_pieces(body, coded + NEXT, list(range(len(coded) + len(NEXT)))) == (b"hello world", NEXT)


@table(
    "coded",
    [
        b"-1\r\n",
        b"+5\r\nhello\r\n",
        b"0x5\r\nhello\r\n",
        b"5_0\r\n",
        b" 5\r\nhello\r\n",
        b"\r\n",
        b"5\nhello\n",
        b"5\r\nhelloX",
        b"5\r\nhello\n",
        b"5\rX",
        b"5;\x00\r\n",
        b"1000000000000000\r\n",
        b"5;" + b"e" * 300,
        b"5;" + b"e" * 300 + b"\r\nhello\r\n",
        b"5 \r\n",
        b"5\t;a\r\n",
        b"5;\r\n",
        b"5; a\r\n",
        b"5;a b\r\n",
        b"5;a=\r\n",
        b'5;a="b\r\n',
        b"5;a=\xe9\r\n",
        b"5" + b" " * 300,
        b"0\r\nbad trailer\r\n\r\n",
        b"0\r\n folded: x\r\n\r\n",
        b"0\r\n" + b"T: x\r\n" * 2000,
        "٣\r\n".encode(),
    ],
)
def test_broken_chunks_are_refused(coded: bytes) -> None:
    with pytest.raises(Refused):
        Chunked().feed(coded)


@table(
    "name",
    [
        *(
            b"Transfer-Encoding",
            b"content-length",
            b"HOST",
            b"Connection",
            b"Trailer",
            b"TE",
            b"Upgrade",
            b"Keep-Alive",
        ),
        *(
            b"Proxy-Connection",
            b"Proxy-Authorization",
            b"Authorization",
            b"Cookie",
            b"Set-Cookie",
            b"Range",
            b"If-Match",
        ),
        *(b"Content-Encoding", b"Content-Type", b"Content-Range", b"Max-Forwards", b"Expect", b"Via", b"Cache-Control"),
    ],
)
def test_trailers_that_only_a_head_may_have_are_refused_however_they_come(name: bytes) -> None:
    coded = b"1\r\nx\r\n0\r\nX-Sum: 1\r\n" + name + b": 1\r\n\r\n"
    for cuts in ([], list(range(len(coded)))):
        body = Chunked()
        with pytest.raises(Refused, match="in the trailers"):
            feed_in_pieces(body, coded, cuts)
        assert not body.complete


@table(
    "name", [b"Digest", b"ETag", b"Server-Timing", b"Proxy-Status", b"Proxy-Authentication-Info", b"Hosts", b"X-Host"]
)
def test_trailers_that_are_meant_to_be_ones_are_passed_over(name: bytes) -> None:
    body = Chunked()
    assert body.feed(b"1\r\nx\r\n0\r\n" + name + b": 1\r\n\r\n" + NEXT) == (b"x", NEXT)


def test_an_empty_content_makes_no_chunk_since_that_would_be_the_last() -> None:
    assert chunk(b"") == b""


@given(st.binary(max_size=100), st.lists(st.integers(0, 1000), max_size=5))
def test_a_counted_body_takes_what_is_its_own(data: bytes, cuts: list[int]) -> None:
    body = ContentLengthBody(len(data))
    assert feed_in_pieces(body, data + NEXT, cuts) == (data, NEXT)
    assert body.complete


@given(st.binary(max_size=300))
def test_any_bytes_are_content_or_refused(data: bytes) -> None:
    body = Chunked()
    try:
        content, rest = body.feed(data)
    except Refused:
        return
    assert len(content) + len(rest) <= len(data)
