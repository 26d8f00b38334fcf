"""Reads access.log of squid: its own format, and `common` and `combined`; one line at a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import BinaryIO, NamedTuple
from urllib.parse import unquote

from api.import_export.convert.statements import is_address

LINE_MAX = 64 * 1024
_NATIVE = 10
"""Fields of a line in squid's own format."""
_STAMP = "%d/%b/%Y:%H:%M:%S %z"
STAMP_MAX = 40
TIME_MAX = 4_102_444_800
"""The year 2100: what is later is no time of a request, and no calendar has what is much later."""


class Entry(NamedTuple):
    """One request. `user` is empty without one, `way` is squid's word for it (`HIER_DIRECT`), `server` may be empty."""

    time: float
    client: str
    result: str
    status: int
    method: str
    url: str
    user: str
    way: str
    server: str


class Unreadable(ValueError):
    """The line can't be read; the text says why."""


def lines_of(file: BinaryIO) -> Iterator[bytes | None]:
    """The lines of a file; None for one that is longer than any may be."""
    while line := file.readline(LINE_MAX):
        if line.endswith(b"\n") or len(line) < LINE_MAX:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(LINE_MAX)
        yield None


def entry_of(line: bytes | None) -> Entry:
    """The request of a line. Raises `Unreadable`."""
    if line is None:
        raise Unreadable(f"is longer than {LINE_MAX:,} bytes")
    text = line.decode("utf-8", "replace")
    try:
        found = _combined(text) if ' "' in text and " [" in text else _native(text.split())
    except (ValueError, OverflowError):
        raise Unreadable("is neither in squid's own format nor in common or combined") from None
    if not 0 <= found.time <= TIME_MAX:
        raise Unreadable("has no time of a request")
    if not is_address(found.client):
        raise Unreadable("has no address of a client")
    return found


def _native(words: list[str]) -> Entry:
    if len(words) < _NATIVE:
        raise ValueError
    time, _elapsed, client, outcome, _size, method, url, user, way, *_rest = words
    result, _, status = outcome.partition("/")
    name, _, server = way.partition("/")
    return Entry(float(time), client, result, int(status), method, url, _user(user), name, _address(server))


def _combined(text: str) -> Entry:
    who, _, rest = text.strip().partition(" [")
    stamp, _, rest = rest.partition('] "')
    request, _, rest = rest.partition('" ')
    client, _ident, user = who.split()
    method, url, _version = request.split()
    result, _, way = rest.rpartition(" ")[2].partition(":")
    if len(stamp) > STAMP_MAX or not way:
        raise ValueError
    time = datetime.strptime(stamp, _STAMP).timestamp()
    return Entry(time, client, result, int(rest.split()[0]), method, url, _user(user), way, "")


def _user(word: str) -> str:
    return "" if word == "-" else unquote(word)


def _address(word: str) -> str:
    return word if is_address(word) else ""
