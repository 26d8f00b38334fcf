"""The fields of an access record, in the order in which a row has them, its message, and the formats of its line in a
log.

Sentences of records say some things to some readers alone: addresses of names, and upstreams that have failed. What an
internal name resolves to is known to those who run the proxies, not to everybody who may use or watch them.

Formats are `common`, `combined`, squid's native one, and templates of the operator's own. A template is written as
squid's `logformat`: text in which `%` begins a code. Width and padding stand between the two (`%6tr`, `%03tu`,
`%-10un`). Squid's quoting modifiers (`[`, `"`, `'`, `#`) are accepted and change nothing: every value is quoted so that
it can be split at spaces and stands in one pair of quotes. A value that is not known is `-`.

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
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

ACCESS_FIELDS = (
    "timestamp",  # Unix seconds, when the request ended
    "level",  # debug, info, warning, error, critical
    "proxy_id",
    "client_ip",
    "user",  # the client's user name, "" for none
    "method",  # CONNECT for tunnels
    "target_url",  # the URL, or host:port of a tunnel
    "status_code",
    "response_time",  # milliseconds from the head of the request to the end of the response's head
    "duration",  # milliseconds from the head of the request to the end
    "bytes_in",  # what the client sent for this request
    "bytes_out",  # what the client received
    "request_id",
    "reason",  # the Proxy-Status error type or the rule, "" when all went well
    "parent",  # the name of the upstream proxy that it went through, "" for none
    "detail",  # the sentence that the client received of a refusal or failure, "" when all went well
    "rule",  # what of the configuration refused it: an entry of the access rules, the egress guard; "" for none
    "credential",  # the id of the credential that was used in place of the password, "" for none
    "source_address",  # the address that it left from, "" where the configuration gives none
    "parameters",  # those of the user name: `session=7 ttl=600 country=de ?unknown=x`, "" for none
    "pool",  # the name of the pool that the upstream proxy is in, "" for none
    "country",  # where the address is that it went to, by a database of places that rules name; "" where none says so
    "asn",  # the number of its autonomous system, likewise
    "listen_port",  # the port of the proxy that the client came to
    "tls_name",  # what the client's TLS handshake in the tunnel names: A-labels, lower case; "" where none was read
    "alpn",  # the protocols that the handshake offers, with commas between: h2,http/1.1
    "tls_version",  # the highest version of TLS that the handshake offers, such as 1.3
)

PROXY_NAME = "proxy_name"
LINE_FIELDS = (*ACCESS_FIELDS, PROXY_NAME)
"""Those of a record in an output: the name is looked up or sent along, since a proxy may be renamed."""


def message_of(record: Mapping[str, Any]) -> str:
    """A record in one line: `GET http://example.com/ 200`, and the reason in parentheses if there is one."""
    reason = f" ({record['reason']})" if record.get("reason") else ""
    return f"{record.get('method', '')} {record.get('target_url', '')} {record.get('status_code', '')}{reason}".strip()


_NAME_WITH_ADDRESS = re.compile(r"^(\S+) \([0-9a-f.:]+\) port (?=\d)", re.ASCII)


_TRIED = "; upstreams tried: "
_NAMED = 5
"""Upstreams that a sentence names."""


def with_tried(sentence: str, failures: Sequence[tuple[str, str]]) -> str:
    """The sentence with the names of the upstreams that were tried in vain, and what each did."""
    named = ", ".join(f"{name} ({cause})" for name, cause in failures[:_NAMED])
    more = f" and {len(failures) - _NAMED} more" if len(failures) > _NAMED else ""
    return f"{sentence}{_TRIED if sentence else _TRIED[2:]}{named}{more}"


def without_tried(sentence: str) -> str:
    """The sentence without these."""
    before, found, _ = sentence.partition(_TRIED)
    return "" if not found and sentence.startswith(_TRIED[2:]) else before


def name_and_address(name: str, address: str) -> str:
    """As a sentence begins that goes on with ` port ` and the port."""
    return f"{name} ({address})"


def without_address(sentence: str) -> str:
    """The sentence without the address of its name; any other sentence as it is."""
    return _NAME_WITH_ADDRESS.sub(r"\1 port ", sentence)


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
