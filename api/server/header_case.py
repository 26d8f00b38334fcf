"""How the names of header fields are spelled on the wire, and the heads of most responses.

Names mean the same in any case (RFC 9110, section 5.1), but waitress capitalizes each part of them, and people search
for `ETag` and `X-RateLimit-Limit`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter

from waitress.utilities import build_http_date

_SPELLED = (
    "ETag",
    "RateLimit",
    "RateLimit-Policy",
    "WWW-Authenticate",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
)
_BY_LOWER = {name.lower(): name for name in _SPELLED}
_NAME = re.compile(rb"(?<=\r\n)(?:" + "|".join(_BY_LOWER).encode() + rb")(?=: )", re.IGNORECASE)
_NAMES = 256
"""Different names of fields that are remembered; the product has fewer."""
_DECIDED = frozenset(("Connection", "Date", "Server"))
"""Fields that waitress adds, or does something about."""


def spelled(head: bytes) -> bytes:
    """The head of a response with the names of its fields as their specifications write them."""
    return _NAME.sub(lambda found: _BY_LOWER[found[0].lower().decode()].encode(), head)


def whole_head(status: str, fields: Sequence[tuple[str, str]], began: float) -> bytes | None:
    """What waitress makes, and `spelled`, of a response of HTTP/1.1 that has a body and leaves its connection open.

    None when waitress has to decide more: without `Content-Length`, or with a field that it adds to or replaces.
    """
    lines = [(*_names(name), value) for name, value in fields]
    given = {capitalized for capitalized, _, _ in lines}
    if "Content-Length" not in given or not _DECIDED.isdisjoint(given):
        return None
    lines.append(("Date", "Date", _date(int(began))))
    lines.sort(key=itemgetter(0))  # those of one name keep their order
    text = "".join([f"{name}: {value}\r\n" for _, name, value in lines])
    return f"HTTP/1.1 {status}\r\n{text}\r\n".encode("latin-1")


@lru_cache(maxsize=_NAMES)
def _names(name: str) -> tuple[str, str]:
    """By which the field is sorted, and as it is written."""
    capitalized = "-".join(part.capitalize() for part in name.split("-"))
    return capitalized, _BY_LOWER.get(capitalized.lower(), capitalized)


@lru_cache(maxsize=2)
def _date(second: int) -> str:
    return str(build_http_date(second))
