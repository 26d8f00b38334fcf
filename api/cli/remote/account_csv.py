"""Accounts as lines of a CSV file: a column for each field of the API, nested ones with dots.

An empty cell says nothing: the field has its default, or stays as it is; `null` is null. Entries of lists are separated
by semicolons, or the cell is a JSON array. A cell that a spreadsheet would take for a formula is written with an
apostrophe before it, which reading takes away again.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from api.cli.request_body import put
from api.cli.terminal.output import inside
from config.text.csv_cells import with_apostrophe, without_apostrophe

PASSWORD_MAX = 128
"""Characters; checked here, since the API gets a hash."""
SECRET_FORM = re.compile(r"pfc_[0-9A-Za-z]{40}")
"""Forwarding takes it for the secret of a credential (`config.model.new_credentials`)."""


class BadLine(ValueError):
    """A line can't be read; `field` is the column at fault, if it is one."""

    def __init__(self, line: int, field: str | None, error: str) -> None:
        super().__init__(error)
        self.line = line
        self.field = field


class Line(NamedTuple):
    """An account of a file, as a body for the API. `number` is that of its first line in the file, from 1."""

    number: int
    body: dict[str, Any]


def _text(cell: str) -> Any:
    return cell


def _password(cell: str) -> Any:
    if len(cell) > PASSWORD_MAX:
        raise ValueError(f"must have at most {PASSWORD_MAX} characters")
    if SECRET_FORM.fullmatch(cell):
        raise ValueError("must not have the form of a credential's secret")
    return cell


def _nullable(cell: str) -> Any:
    return None if cell == "null" else cell


def _number(cell: str) -> Any:
    if cell == "null":
        return None
    if not (cell.isascii() and cell.isdecimal()):
        raise ValueError("must be a whole number")
    return int(cell)


def _flag(cell: str) -> Any:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if cell.lower() not in words:
        raise ValueError("must be true or false")
    return words[cell.lower()]


def _list(cell: str) -> Any:
    if cell == "null":
        return None
    if cell.startswith("["):
        return _json(cell)
    return [each.strip() for each in cell.split(";") if each.strip()]


def _json(cell: str) -> Any:
    try:
        return json.loads(cell)
    except ValueError as error:
        raise ValueError(f"must be JSON: {error}") from error
    except RecursionError:
        raise ValueError("is nested too deeply") from None


FIELDS: Mapping[str, Callable[[str], Any]] = {
    "id": _text,
    "username": _text,
    "password": _password,
    "password_hash": _text,
    "enabled": _flag,
    "plan": _nullable,
    "policy": _nullable,
    "expires_at": _nullable,
    "proxies.all": _flag,
    "proxies.ids": _list,
    "proxies.tags": _list,
    "limits.bandwidth_in": _number,
    "limits.bandwidth_out": _number,
    "limits.connections": _number,
    "limits.requests_per_minute": _number,
    "quota.bytes": _number,
    "quota.period": _text,
    "allow_clients": _list,
    "allow_destinations": _list,
    "deny_destinations": _list,
    "schedule.timezone": _text,
    "schedule.windows": _json,
    "certificates": _list,
    "socks4_by_name": _flag,
    "tags": _list,
}
"""How the cell of a column is read. `metadata.NAME` is a column, too."""
METADATA = "metadata."
_UNKNOWN_TO_EXPORT = frozenset({"password", "password_hash"})
"""No response of the API has them."""


def read(text: str) -> Iterator[Line]:
    """The accounts of a file. Raises `BadLine`."""
    for each in entries(text):
        if isinstance(each, BadLine):
            raise each
        yield each


def entries(text: str) -> Iterator[Line | BadLine]:
    """The accounts of a file, or what is wrong with a line; what is wrong with the file itself is the last entry."""
    try:
        yield from _entries(text)
    except BadLine as error:
        yield error


def _entries(text: str) -> Iterator[Line | BadLine]:
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        columns = next(reader, [])
        _check_columns(columns)
        while True:
            number = reader.line_num + 1
            cells = next(reader, None)
            if cells is None:
                return
            if any(cells):
                yield _entry(number, columns, cells)
    except csv.Error as error:
        raise BadLine(reader.line_num, None, f"is not CSV: {error}") from error


def _entry(number: int, columns: list[str], cells: list[str]) -> Line | BadLine:
    try:
        return Line(number, _body(number, columns, cells))
    except BadLine as error:
        return error


def _check_columns(columns: list[str]) -> None:
    if not columns:
        raise BadLine(1, None, "must name the columns")
    for name in columns:
        if name not in FIELDS and not (name.startswith(METADATA) and name != METADATA):
            hint = "separate columns with commas; " if ";" in name else ""
            raise BadLine(1, name, f"is no column; {hint}columns are {', '.join(FIELDS)}, metadata.NAME")
        if columns.count(name) > 1:
            raise BadLine(1, name, "is there twice")


def _body(number: int, columns: list[str], cells: list[str]) -> dict[str, Any]:
    if len(cells) != len(columns):
        raise BadLine(number, None, f"has {len(cells)} cells, and there are {len(columns)} columns")
    body: dict[str, Any] = {}
    for name, cell in zip(columns, cells, strict=True):
        if cell == "":
            continue
        text = without_apostrophe(cell)
        try:
            if name.startswith(METADATA):
                body.setdefault("metadata", {})[name.removeprefix(METADATA)] = text
            else:
                put(body, name, FIELDS[name](text))
        except ValueError as error:
            raise BadLine(number, name, str(error)) from error
    if {"password", "password_hash"} <= body.keys():
        raise BadLine(number, "password_hash", "must be left out where a password is given")
    return body


def write(accounts: Iterable[Mapping[str, Any]], metadata: Iterable[str]) -> Iterator[str]:
    """The lines of a file with these accounts of the API. `metadata` are the names in it that have columns."""
    columns = [name for name in FIELDS if name not in _UNKNOWN_TO_EXPORT] + [METADATA + name for name in metadata]
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(columns)
    for account in accounts:
        writer.writerow([_cell(_value(account, name)) for name in columns])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def _value(account: Mapping[str, Any], name: str) -> Any:
    if name.startswith(METADATA):  # whose names may have dots
        return (account.get("metadata") or {}).get(name.removeprefix(METADATA))
    return inside(account, name)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return with_apostrophe(_listed(value))
    return with_apostrophe(str(value))


def _listed(values: list[Any]) -> str:
    """With semicolons, unless reading would make something else of it."""
    plain = values and all(isinstance(each, str) and each == each.strip() != "" and ";" not in each for each in values)
    text = ";".join(values) if plain else ""
    return text if plain and not text.startswith("[") and text != "null" else json.dumps(values, ensure_ascii=False)
