"""Formats of access log lines: `common`, `combined`, squid's native one, and templates of the operator's own.

A template is written as squid's `logformat`: text in which `%` begins a code. Width and padding stand between the two
(`%6tr`, `%03tu`, `%-10un`). Squid's quoting modifiers (`[`, `"`, `'`, `#`) are accepted and change nothing: every value
is quoted so that it can be split at spaces and stands in one pair of quotes. A value that is not known is `-`.

===============  ============================================================================================
`%ts` `%tu`      seconds since 1970, and the milliseconds of that time
`%tg`            the time in UTC as Apache writes it: `31/Jan/2026:12:00:00 +0000` (also as `%tl`)
`%tr`            milliseconds that the request took
`%>a` `%<a`      address of the client; name of the upstream proxy, else host of the target
`%un`            user name (also as `%ui`, which is always `-`)
`%rm` `%ru`      method; URL, or `host:port` of a tunnel
`%rp` `%rv`      path of the URL; version of HTTP, always `1.1`
`%>Hs`           status
`%>st` `%<st`    bytes from the client; bytes to the client
`%Ss` `%Sh`      squid's result (`TCP_MISS`, `TCP_TUNNEL`, `TCP_DENIED`) and hierarchy (`HIER_DIRECT`, ...)
`%mt`            media type, always `-`
`%{name}>h`      a request header, always `-`: headers are not recorded
`%{field}`       any field of the record, such as `%{reason}` or `%{request_id}`
`%%`             a percent sign
===============  ============================================================================================
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

Record = Mapping[str, Any]
Line = Callable[[Record], str]

FORMATS: dict[str, str] = {
    "common": '%>a %ui %un [%tg] "%rm %ru HTTP/%rv" %>Hs %<st',
    "combined": '%>a %ui %un [%tg] "%rm %ru HTTP/%rv" %>Hs %<st "%{Referer}>h" "%{User-Agent}>h"',
    "squid": "%ts.%03tu %6tr %>a %Ss/%03>Hs %<st %rm %ru %un %Sh/%<a %mt",
}
"""Templates by the name that `logging.output` has for them."""
FILE_FORMATS = ("jsonl", *FORMATS, "template")
"""Formats of access records in files."""

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_NOTHING = "-"
_NAME = r"\{[A-Za-z_-]{1,64}\}(?:[<>]h)?"
_CODE = re.compile(rf"%(?:(?P<percent>%)|(?P<width>-?[0-9]{{0,3}})[\[\"'#]?(?P<code>{_NAME}|[<>]?[A-Za-z]{{1,2}}))")
_UNSAFE = re.compile(r'[\s"\\]')


class BadTemplate(ValueError):
    """The template has a code that does not exist; the text names it and what is allowed."""


def compiled(template: str, fields: Collection[str]) -> Line:
    """The function that writes a record as a line without its end. `fields` are those that a record has.

    Raises `BadTemplate`.
    """
    pieces: list[str | Line] = []
    at = 0
    while at < len(template):
        if template[at] != "%":
            end = template.find("%", at)
            end = len(template) if end < 0 else end
            pieces.append(template[at:end])
            at = end
            continue
        match = _CODE.match(template, at)
        if match is None:
            raise BadTemplate(f"has no code at {template[at : at + 8]!r}; {_allowed(fields)}")
        pieces.append("%" if match["percent"] else _padded(match["width"], _value(match["code"], fields)))
        at = match.end()
    return lambda record: "".join([piece if isinstance(piece, str) else piece(record) for piece in pieces])


def _value(code: str, fields: Collection[str]) -> Line:
    if code in _CODES:
        return _CODES[code]
    name, _, place = code.removeprefix("{").partition("}")
    if code.startswith("{") and place:
        return _unknown
    if code.startswith("{") and name in fields:
        return lambda record: quoted(record[name])
    raise BadTemplate(f"has no code %{code}; {_allowed(fields)}")


def _allowed(fields: Collection[str]) -> str:
    codes = " ".join(f"%{code}" for code in _CODES)
    return f"codes are {codes} %{{header}}>h %% and %{{field}} with one of {', '.join(fields)}"


def _padded(width: str, value: Line) -> Line:
    """`6` pads with spaces on the left, `-6` on the right, `06` with zeros."""
    if not width.strip("-0"):
        return value
    size = int(width.lstrip("-"))
    if width.startswith("-"):
        return lambda record: value(record).ljust(size)
    return lambda record: value(record).rjust(size, "0" if width.startswith("0") else " ")


def quoted(value: Any) -> str:
    """A value in which no white space, quote or backslash is left, percent-encoded; `-` for an empty one."""
    text = str(value)
    if not text:
        return _NOTHING
    return _UNSAFE.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), text)


def _unknown(_record: Record) -> str:
    return _NOTHING


def _apache_time(record: Record) -> str:
    moment = time.gmtime(record["timestamp"])
    return time.strftime(f"%d/{_MONTHS[moment.tm_mon - 1]}/%Y:%H:%M:%S +0000", moment)


def _path(record: Record) -> str:
    """Of a refused request the target can be anything, and `urlsplit` raises `ValueError` for some of that."""
    _scheme, absolute, rest = str(record["target_url"]).partition("://")
    _authority, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    return quoted(slash + path or "/") if absolute else _NOTHING


def _target_host(record: Record) -> str:
    url = str(record["target_url"])
    authority = url.partition("://")[2] or url
    authority = re.split(r"[/?#]", authority, maxsplit=1)[0]
    return quoted(authority.rpartition(":")[0] if re.search(r":[0-9]+\Z", authority) else authority)


def _result(record: Record) -> str:
    """Squid's words for what became of a request, as far as they fit a proxy without a cache."""
    if record["status_code"] in (403, 407):
        return "TCP_DENIED"
    tunnel = record["method"] == "CONNECT" or "://" not in str(record["target_url"])
    return "TCP_TUNNEL" if tunnel and record["status_code"] < 400 else "TCP_MISS"


def _upstream(record: Record) -> str:
    return str(record.get("parent") or "")


def _hierarchy(record: Record) -> str:
    if _upstream(record):
        return "FIRSTUP_PARENT"
    return "HIER_NONE" if _result(record) == "TCP_DENIED" else "HIER_DIRECT"


def _peer(record: Record) -> str:
    if _upstream(record):
        return quoted(_upstream(record))
    return _NOTHING if _result(record) == "TCP_DENIED" else _target_host(record)


_CODES: dict[str, Line] = {
    "ts": lambda record: str(int(record["timestamp"])),
    "tu": lambda record: str(int(record["timestamp"] * 1000) % 1000),
    "tg": _apache_time,
    "tl": _apache_time,
    "tr": lambda record: str(round(record["duration"])),
    ">a": lambda record: quoted(record["client_ip"]),
    "<a": _peer,
    "ui": _unknown,
    "un": lambda record: quoted(record["user"]),
    "rm": lambda record: quoted(record["method"]),
    "ru": lambda record: quoted(record["target_url"]),
    "rp": _path,
    "rv": lambda _record: "1.1",
    ">Hs": lambda record: str(record["status_code"]),
    ">st": lambda record: str(record["bytes_in"]),
    "<st": lambda record: str(record["bytes_out"]),
    "Ss": _result,
    "Sh": _hierarchy,
    "mt": _unknown,
}
