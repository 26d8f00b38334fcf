"""The chunked bodies of requests, whole and byte by byte."""

from __future__ import annotations

from waitress.buffers import OverflowableBuffer

from api.server.parser import LINE_MAX, ChunkedBody
from tests.kit.tables import table

NEXT = b"GET / HTTP/1.1\r\n"


def read(sent: bytes, step: int) -> tuple[ChunkedBody, int]:
    """The body, and how many bytes belong to it."""
    body, consumed = ChunkedBody(OverflowableBuffer(1024)), 0
    for at in range(0, len(sent), step):
        consumed += body.received(sent[at : at + step])
    return body, consumed


@table("step", [1, 3, 1000])
@table(
    ("sent", "content"),
    [
        (b"0\r\n\r\n", b""),
        (b"5\r\nhello\r\n000\r\n\r\n", b"hello"),
        (b"5\r\nhello\r\nB;a\r\n\r\nfor you\r\n\r\n0\r\n\r\n", b"hello\r\nfor you\r\n"),
        (b'1;a=b;c="d \\" \n"\r\nx\r\n0\r\n\r\n'.replace(b"\n", b"e", 1), b"x"),
        (b"1\r\nx\r\n0\r\nA: b\r\nC:\r\n\r\n", b"x"),
    ],
)
def test_a_body_ends_where_the_next_request_begins(sent: bytes, content: bytes, step: int) -> None:
    body, consumed = read(sent + NEXT, step)
    assert (body.error, body.completed, consumed) == (None, True, len(sent))
    assert body.getfile().read() == content
    assert len(body) == len(content)


@table("step", [1, 3, 10_000])
@table(
    "sent",
    [
        b"\r\n1\r\nx\r\n0\r\n\r\n",
        b"1\n\r\nx\r\n0\r\n\r\n",
        b"1\nx\n0\n\n",
        b"1\r\nx0\r\n\r\n",
        b"1\r\nx\r\n\r\n0\r\n\r\n",
        b"0x1\r\nx\r\n0\r\n\r\n",
        b"+1\r\nx\r\n0\r\n\r\n",
        b" 1\r\nx\r\n0\r\n\r\n",
        b"1 \r\nx\r\n0\r\n\r\n",
        b"1_0\r\nx\r\n0\r\n\r\n",
        b"1;\r\nx\r\n0\r\n\r\n",
        b"1;a\rb\r\nx\r\n0\r\n\r\n",
        b"F" * 16 + b"\r\n",
        b"1;a=" + b"x" * LINE_MAX,
        b"0\r\nA: b\n\r\n\r\n",
        b"0\r\nA : b\r\n\r\n",
        b"0\r\nGET / HTTP/1.1\r\n\r\n",
    ],
)
def test_what_a_balancer_may_read_in_another_way_is_an_error(sent: bytes, step: int) -> None:
    body, _consumed = read(sent, step)
    assert body.error is not None
    assert not body.completed
