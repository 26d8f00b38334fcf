"""Lists of upstream proxies as providers write them: one on a line, or CSV.

A line is one of these; what is empty is not given, and the first that fits counts:

    scheme://host:port                 scheme://user:password@host:port      (a URI, RFC 3986: %40 is an @)
    host:port                          host:port:user                        host:port:user:password
    user:password@host:port            user@host:port

Labels and a name may follow, each after a space: `host:port:user:password country=de city=berlin #de1`. Neither has
spaces; a password with such an ending has to be written in a URI, where a space is %20.

Schemes are `http`, `https`, `socks4`, `socks4a`, `socks5` and `socks5h`; names are always resolved by the upstream, so
the two with a letter are the same as those without. Lines without a scheme are of the protocol that is given beside the
list. An IPv6 address is in brackets. Blank lines and lines that begin with `#` are skipped.

CSV (RFC 4180) begins with a row of column names that has `host` and `port` in it; a column `label.country` has that
label, and an empty cell none. No error quotes a line, which may hold a password.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

DEFAULT_PROTOCOL = "http"
COLUMNS = ("protocol", "host", "port", "username", "password", "weight", "name")
LABEL_COLUMN = "label."
LABELS_MAX = 32
SCHEMES = {
    "http": "http",
    "https": "https",
    "socks4": "socks4",
    "socks4a": "socks4",
    "socks5": "socks5",
    "socks5h": "socks5",
}

_HOST_PORT = r"(\[[^\[\]]*\]|[^\[\]:@/\s]+):([0-9]{1,6})"
_ADDRESS = re.compile(_HOST_PORT, re.ASCII)
_COLONS = re.compile(_HOST_PORT + r"(?::([^:]*)(?::(.*))?)?", re.ASCII | re.DOTALL)
_LABEL = re.compile("([A-Za-z0-9_]+)=(.+)", re.ASCII | re.DOTALL)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_FORMS = "host:port, host:port:user:password, user:password@host:port or scheme://user:password@host:port"

Entry = dict[str, Any]


class BadUpstreamLine(ValueError):
    """A line is no upstream; the text has the error without quoting the line."""

    def __init__(self, error: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {error}" if line else error)


def read_text(text: str, protocol: str = DEFAULT_PROTOCOL) -> list[tuple[int, Entry]]:
    """The entries of a list of lines or of CSV, each with the number of its line. Raises `BadUpstreamLine`."""
    found = []
    for number, entry in each_entry(text, None, protocol):
        if isinstance(entry, BadUpstreamLine):
            raise entry
        found.append((number, entry))
    if not found and not any(_counts(line) for line in text.split("\n")):
        raise BadUpstreamLine("there is no upstream in it; an empty list ends the chain")
    return found


def each_entry(text: str, form: str | None, protocol: str) -> Iterator[tuple[int, Entry | BadUpstreamLine]]:
    """The entries of a list, or why a line is none, each with the number of its line.

    `form` is `text` or `csv`; None is CSV where the first line has its columns. Raises `BadUpstreamLine` where CSV has
    not.
    """
    lines = text.split("\n")
    first = next((index for index, line in enumerate(lines) if _counts(line)), None)
    if first is None:
        return
    columns = [] if form == "text" else _columns(lines[first])
    if {"host", "port"} <= set(columns):
        yield from _rows(lines, first, columns, protocol)
    elif form == "csv":
        raise BadUpstreamLine("must name the columns, host and port among them", first + 1)
    else:
        yield from ((number, _at(number, line, protocol)) for number, line in enumerate(lines, 1) if _counts(line))


def read_line(text: str, protocol: str = DEFAULT_PROTOCOL) -> Entry:
    """The entry of one line. Raises `BadUpstreamLine`."""
    line, labels, name = _ending(text.strip("\ufeff \t\r"))
    entry = _address(line, protocol)
    if labels:
        entry["labels"] = labels
    return {**entry, "name": name} if name else entry


def _ending(line: str) -> tuple[str, dict[str, str], str]:
    """A line without its labels and its name, and these."""
    labels: dict[str, str] = {}
    name = ""
    while True:
        before, _, last = line.replace("\t", " ").rpartition(" ")
        label = _LABEL.fullmatch(last)
        if not before or not (label or (last.startswith("#") and len(last) > 1)):
            return line, labels, name
        if len(labels) == LABELS_MAX:
            raise BadUpstreamLine(f"has more than {LABELS_MAX} labels")
        if label is None:
            if name:
                raise BadUpstreamLine("has two names")
            name = last[1:]
        elif label[1] in labels:
            raise BadUpstreamLine("has a label twice")
        else:
            labels = {label[1]: label[2], **labels}
        line = line[: len(before)].rstrip(" \t")


def _address(line: str, protocol: str) -> Entry:
    if "://" in line:
        return _uri(line)
    found = _COLONS.fullmatch(line)
    if found is not None:
        host, port, user, password = found.groups()
        return _entry(protocol, host, port, user, password)
    credentials, at, address = line.rpartition("@")
    found = _ADDRESS.fullmatch(address)
    if not at or found is None:
        raise BadUpstreamLine(f"must be {_FORMS}")
    user, _, password = credentials.partition(":")
    return _entry(protocol, found[1], found[2], user, password)


def _counts(line: str) -> bool:
    stripped = line.strip("\ufeff \t\r")
    return bool(stripped) and not stripped.startswith("#")


def _at(number: int, line: str, protocol: str) -> Entry | BadUpstreamLine:
    try:
        return read_line(line, protocol)
    except BadUpstreamLine as error:
        return BadUpstreamLine(str(error), number)


def _uri(text: str) -> Entry:
    scheme, _, rest = text.partition("://")
    protocol = _protocol(scheme)
    credentials, _, address = rest.rpartition("@")
    found = _ADDRESS.fullmatch(address.removesuffix("/"))
    if found is None:
        raise BadUpstreamLine("must end with host:port")
    user, _, password = credentials.partition(":")
    return _entry(protocol, found[1], found[2], _decoded(user), _decoded(password))


def _protocol(text: str) -> str:
    protocol = SCHEMES.get(text.lower())
    if protocol is None:
        raise BadUpstreamLine(f"the protocol must be one of {', '.join(SCHEMES)}")
    return protocol


def _decoded(text: str) -> str:
    if _BAD_ESCAPE.search(text):
        raise BadUpstreamLine("a percent sign must be followed by two hex digits")
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise BadUpstreamLine("what is percent-encoded must be UTF-8") from None  # the error has the bytes in it


def _entry(protocol: str, host: str, port: str, user: str | None, password: str | None) -> Entry:
    entry: Entry = {"protocol": protocol, "host": host.removeprefix("[").removesuffix("]"), "port": int(port)}
    if password and not user:
        raise BadUpstreamLine("there is a password without a user name")
    if user:
        entry["auth"] = {"username": user, **({"password": password} if password else {})}
    return entry


# --- CSV ----------------------------------------------------------------------------------------------------------


def _columns(line: str) -> list[str]:
    return [cell.strip().lower() for cell in line.strip("\ufeff \t\r").split(",")]


def _rows(
    lines: list[str], first: int, columns: list[str], protocol: str
) -> Iterator[tuple[int, Entry | BadUpstreamLine]]:
    """Each row with the number of its first line. Raises `BadUpstreamLine` for the columns."""
    unknown = [name for name in columns if name not in COLUMNS and not name.startswith(LABEL_COLUMN)]
    if unknown or len(set(columns)) < len(columns):
        raise BadUpstreamLine(f"the columns may be {', '.join(COLUMNS)} and {LABEL_COLUMN}NAME, each once", first + 1)
    reader = csv.reader((f"{line}\n" for line in lines[first + 1 :]), strict=True, skipinitialspace=True)
    end = first + 1
    while True:
        begin = end + 1
        try:
            cells = next(reader, None)
            if cells is None:
                return
            if any(cell.strip() for cell in cells) and not cells[0].startswith("#"):
                yield begin, _row(cells, columns, protocol, begin)
        except csv.Error:
            yield begin, BadUpstreamLine("is not CSV: check its quotes", begin)
        except BadUpstreamLine as error:
            yield begin, error
        end = first + 1 + reader.line_num


def _row(cells: list[str], columns: list[str], protocol: str, number: int) -> Entry:
    if len(cells) != len(columns):
        raise BadUpstreamLine(f"has {len(cells)} cells, and there are {len(columns)} columns", number)
    row = {name: cell.strip(" \t\r") for name, cell in zip(columns, cells, strict=True)}
    try:
        entry = _entry(
            _protocol(row["protocol"]) if row.get("protocol") else protocol,
            row["host"],
            str(_number(row["port"], "port")),
            row.get("username"),
            row.get("password"),
        )
        if row.get("weight"):
            entry["weight"] = _number(row["weight"], "weight")
    except BadUpstreamLine as error:
        raise BadUpstreamLine(str(error), number) from None
    labels = {
        column.removeprefix(LABEL_COLUMN): cell
        for column, cell in row.items()
        if column.startswith(LABEL_COLUMN) and cell
    }
    if labels:
        entry["labels"] = labels
    return {**entry, "name": row["name"]} if row.get("name") else entry


def _number(text: str, column: str) -> int:
    if not re.fullmatch("[0-9]{1,6}", text, re.ASCII):
        raise BadUpstreamLine(f"the {column} must be a number")
    return int(text)
