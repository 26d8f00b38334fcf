"""Bytes of a list as they come, decompressed, bounded and cut into lines."""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterator

from actors.lists.compiled import ListError

PIECE = 256 * 1024
"""Bytes that are decompressed at once."""
LINE_MAX = 4096
"""Bytes of a line; a longer one is no entry of any format."""
_GZIP = b"\x1f\x8b"
_WIDE = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}

Chunks = Iterator[bytes]


def bounded(chunks: Chunks, most: int, what: str) -> Chunks:
    """`chunks`. Raises `ListError` when they have more than `most` bytes."""
    total = 0
    for chunk in chunks:
        total += len(chunk)
        if total > most:
            raise ListError(f"{what} has more than {most} bytes (max_bytes)")
        yield chunk


def unzipped(chunks: Chunks, most: int) -> Chunks:
    """The content, where it is compressed by gzip, else `chunks`. At most `most` bytes.

    Raises `ListError` for damaged content and for content that ends too early.
    """
    first, rest = first_and_rest(chunks, len(_GZIP))
    if not first.startswith(_GZIP):
        return bounded(joined(first, rest), most, "it")
    return bounded(_inflated(joined(first, rest)), most, "its decompressed content")


def lines(chunks: Chunks) -> Iterator[bytes | None]:
    """The lines, without their ends; None for one that is too long. A mark of UTF-8 or UTF-16 at the beginning is left
    out, and UTF-16 is made UTF-8."""
    waiting, too_long = b"", False
    for chunk in _as_utf8(chunks):
        *whole, waiting = _split(waiting + chunk)
        for line in whole:
            yield None if too_long or len(line) > LINE_MAX else line
            too_long = False
        if len(waiting) > LINE_MAX:
            waiting, too_long = waiting[-1:], True  # the last byte may be half of CR LF
    if waiting or too_long:
        yield None if too_long else waiting.rstrip(b"\r")


def _split(data: bytes) -> list[bytes]:
    """Lines that ended with CR, LF or both, and what is behind the last one, which a CR may end."""
    end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1
    return [*data[:end].splitlines(), data[end:]]


def _as_utf8(chunks: Chunks) -> Chunks:
    first, rest = first_and_rest(chunks, len(codecs.BOM_UTF8))
    wide = _WIDE.get(first[:2])
    if wide is None:
        yield from joined(first.removeprefix(codecs.BOM_UTF8), rest)
        return
    decoder = codecs.getincrementaldecoder(wide)("replace")
    for chunk in joined(first[2:], rest):
        yield decoder.decode(chunk).encode("utf-8", "replace")


def _inflated(chunks: Chunks) -> Chunks:
    """One gzip member or several, in pieces whatever the content is packed to."""
    inflater = zlib.decompressobj(wbits=31)
    try:
        for chunk in chunks:
            data = chunk
            while data:
                if inflater.eof:
                    inflater = zlib.decompressobj(wbits=31)
                yield inflater.decompress(data, PIECE)
                data = inflater.unconsumed_tail or inflater.unused_data
    except zlib.error:
        raise ListError("its gzip content is damaged") from None
    if not inflater.eof:
        raise ListError("its gzip content ends too early")


def first_and_rest(chunks: Chunks, size: int) -> tuple[bytes, Chunks]:
    """At least `size` bytes, unless there are fewer, and the chunks behind them."""
    first = b""
    for chunk in chunks:
        first += chunk
        if len(first) >= size:
            break
    return first, chunks


def joined(first: bytes, rest: Chunks) -> Chunks:
    """All of it again, behind `first_and_rest`."""
    if first:
        yield first
    yield from rest
