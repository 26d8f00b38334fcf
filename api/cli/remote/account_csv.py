"""`proxyfleet accounts import` and `export`: accounts of the fleet as lines of a CSV file.

There is a column for each field of the API, nested ones with dots.

An empty cell says nothing: the field has its default, or stays as it is; `null` is null. Entries of lists are separated
by semicolons, or the cell is a JSON array. A cell that a spreadsheet would take for a formula is written with an
apostrophe before it, which reading takes away again.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from api.cli.commands import Session, command
from api.cli.documents import display_name, is_stream, put, read_text, write_private
from api.cli.errors import CommandError, Status
from api.cli.options import argument, flag
from api.cli.remote.accounts import group
from api.cli.terminal import inside
from config.text.formatting import counted, with_apostrophe, without_apostrophe
from config.weak_passwords import weakness_of_account

PASSWORD_MAX = 128
"""Characters; checked here, since the API gets a hash."""
SECRET_FORM = re.compile(r"pfc_[0-9A-Za-z]{40}")
"""Forwarding takes it for the secret of a credential (`config.model.account_credentials`)."""


class BadLine(ValueError):
    """A line can't be read; `field` is the column at fault, if it is one."""

    def __init__(self, line: int, field: str | None, error: str) -> None:
        super().__init__(error)
        self.line = line
        self.field = field


class CsvLine(NamedTuple):
    """An account of a file, as a body for the API. `number` is that of its first line in the file, from 1."""

    number: int
    body: dict[str, Any]


def _password(cell: str) -> Any:
    if len(cell) > PASSWORD_MAX:
        raise ValueError(f"must have at most {PASSWORD_MAX} characters")
    if SECRET_FORM.fullmatch(cell):
        raise ValueError("must not have the form of a credential's secret")
    return cell


def _number(cell: str) -> Any:
    if not (cell.isascii() and cell.isdecimal()):
        raise ValueError("must be a whole number")
    return int(cell)


def _flag(cell: str) -> Any:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if cell.lower() not in words:
        raise ValueError("must be true or false")
    return words[cell.lower()]


def _list(cell: str) -> Any:
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
    "id": str,
    "username": str,
    "password": _password,
    "password_hash": str,
    "enabled": _flag,
    "plan": str,
    "policy": str,
    "expires_at": str,
    "proxies.all": _flag,
    "proxies.ids": _list,
    "proxies.tags": _list,
    "limits.bandwidth_in": _number,
    "limits.bandwidth_out": _number,
    "limits.connections": _number,
    "limits.requests_per_minute": _number,
    "limits.clients": _number,
    "limits.clients_window": _number,
    "quota.bytes": _number,
    "quota.period": str,
    "allow_clients": _list,
    "allow_destinations": _list,
    "deny_destinations": _list,
    "schedule.timezone": str,
    "schedule.windows": _json,
    "certificates": _list,
    "socks4_by_name": _flag,
    "tags": _list,
}
"""How the cell of a column is read. `metadata.NAME` is a column, too."""
_WITH_NULL = ("plan", "policy", "expires_at", *(name for name, read in FIELDS.items() if read in (_number, _list)))
"""Columns whose cell may be `null`."""
METADATA = "metadata."
_UNKNOWN_TO_EXPORT = frozenset({"password", "password_hash"})
"""No response of the API has them."""


def read(text: str) -> Iterator[CsvLine]:
    """The accounts of a file. Raises `BadLine`."""
    for each in entries(text):
        if isinstance(each, BadLine):
            raise each
        yield each


def entries(text: str) -> Iterator[CsvLine | BadLine]:
    """The accounts of a file, or what is wrong with a line; what is wrong with the file itself is the last entry."""
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        columns = next(reader, [])
        _check_columns(columns)
        number = reader.line_num + 1
        for cells in reader:
            if any(cells):
                yield _entry(number, columns, cells)
            number = reader.line_num + 1
    except csv.Error as error:
        yield BadLine(reader.line_num, None, f"is not CSV: {error}")
    except BadLine as error:
        yield error


def _entry(number: int, columns: list[str], cells: list[str]) -> CsvLine | BadLine:
    try:
        return CsvLine(number, _body(number, columns, cells))
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
                put(body, name, None if text == "null" and name in _WITH_NULL else FIELDS[name](text))
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
    if isinstance(value, list):
        return with_apostrophe(_listed(value))
    return "" if value is None else json.dumps(value) if isinstance(value, bool) else with_apostrophe(str(value))


def _listed(values: list[Any]) -> str:
    """With semicolons, unless reading would make something else of it."""
    plain = values and all(isinstance(each, str) and each == each.strip() != "" and ";" not in each for each in values)
    text = ";".join(values) if plain else ""
    return text if plain and not text.startswith("[") and text != "null" else json.dumps(values, ensure_ascii=False)


# --- the commands ---

TIMEOUT = 3600.0
"""Seconds that an import may take."""
PAGE = 1000
MANY_PASSWORDS = 100
"""From here on a note says why nothing happens for a while, and the file is checked before."""
ERRORS_MAX = 100
"""Wrong lines that are named."""
HASHED = 200
"""Passwords that are hashed at once."""

_LINE = re.compile(r"lines\[([0-9]+)\]\.?(.*)", re.ASCII)
_SOME_HASH = f"$2b$10${53 * 'u'}"
"""In place of passwords while a file is only checked."""


_IMPORT = {
    "file": argument("FILE", "CSV; - is standard input.", Path),
    "new": flag("--new", "Add an account for each line, also for those with an id."),
    "dry_run": flag("--dry-run", "Check the lines, and change nothing."),
    "weak_passwords": flag("--weak-passwords", "Take short passwords, and those that are tried first."),
}
_EXPORT = {"file": argument("FILE", "The file to write; by default, and for -, standard output.", Path, default=None)}


@command(group, "import", _IMPORT)
def import_accounts(session: Session, file: Path, new: bool, dry_run: bool, weak_passwords: bool) -> None:
    """Add the accounts of a CSV file, all of them or none; a line with an id changes that account.

    The first line names the columns: fields of the API, nested ones with dots. Passwords are hashed here.
    """
    text = read_text(file)
    passwords = _checked(file, text, weak_passwords)
    if dry_run or passwords >= MANY_PASSWORDS:
        data = _send(session, file, _packed(text, new, lambda passwords: [_SOME_HASH] * len(passwords)), dry_run=True)
    if not dry_run:
        if passwords >= MANY_PASSWORDS:
            session.out.note(f"Hashing {passwords} passwords")
        data = _send(session, file, _packed(text, new, _hashes))
    count = {name: data["count"][name] for name in ("created", "updated")}
    done = "would be" if dry_run else "are"
    summary = f"{counted(count['created'], 'account')} {done} added, {count['updated']} {done} changed"
    session.out.done({"count": count, "dry_run": dry_run}, f"{display_name(file)}: {summary}.")


def _checked(file: Path, text: str, weak_passwords: bool) -> int:
    """The number of passwords in a file that can be read. Raises `CommandError` that names the wrong lines."""
    passwords, wrong = 0, list[BadLine]()
    for each in entries(text) if weak_passwords else map(_judged, entries(text)):
        if isinstance(each, CsvLine):
            passwords += "password" in each.body
        elif len(wrong) < ERRORS_MAX:
            wrong.append(each)
    if wrong:
        problems = tuple((_place(file, each.line, each.field), str(each)) for each in wrong)
        raise CommandError("The file can't be imported; nothing was changed", None, Status.USAGE, problems)
    return passwords


def _judged(entry: CsvLine | BadLine) -> CsvLine | BadLine:
    """The service gets hashes, in which it can't see whether a password is weak."""
    if isinstance(entry, BadLine):
        return entry
    why = weakness_of_account(entry.body.get("password"), str(entry.body.get("username", "")), None, "")
    return entry if why is None else BadLine(entry.number, "password", f"{why.partition(' (')[0]}; or --weak-passwords")


class _Packed(NamedTuple):
    """The lines of a request, compressed, and their numbers in the file."""

    content: bytes
    numbers: Sequence[int]


def _packed(text: str, new: bool, hashed: Callable[[list[str]], Iterable[str]]) -> _Packed:
    """The accounts of a file, without ids if they are `new`; `hashed` makes hashes of passwords."""
    numbers, packed, lines = array("Q"), io.BytesIO(), read(text)
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as stream:
        while part := list(itertools.islice(lines, HASHED)):
            given = [each.body for each in part if "password" in each.body]
            hashes = hashed([body.pop("password") for body in given])
            for body, one in zip(given, hashes, strict=True):
                body["password_hash"] = one
            for line in part:
                if new:
                    line.body.pop("id", None)
                stream.write(json.dumps(line.body).encode() + b"\n")
            numbers.extend(each.number for each in part)
    return _Packed(packed.getvalue(), numbers)


def _hashes(passwords: list[str]) -> list[str]:
    """On all cores: bcrypt is most of the work of an import."""
    from config.passwords import PREHASHED, hash_password

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [PREHASHED + each for each in pool.map(hash_password, passwords)]


def _send(session: Session, file: Path, body: _Packed, dry_run: bool = False) -> Any:
    headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
    try:
        return session.api.call(
            "POST",
            "/accounts/import",
            query={"dry_run": dry_run},
            content=body.content,
            headers=headers,
            timeout=TIMEOUT,
        )
    except CommandError as error:
        error.problems = tuple((_named(file, body.numbers, field), text) for field, text in error.problems)
        raise


@command(group, "export", _EXPORT)
def export_accounts(session: Session, file: Path | None) -> None:
    """Write the accounts of the fleet as CSV, without passwords; importing it again changes nothing."""
    accounts = list(session.api.pages("/accounts", "accounts", inline=False, limit=PAGE))
    text = "".join(write(accounts, sorted({name for each in accounts for name in each["metadata"]})))
    if file is None or is_stream(file):
        session.out.document(text)
        return
    write_private(file, text)
    session.out.done({"file": str(file), "accounts": len(accounts)}, f"{file}: {counted(len(accounts), 'account')}.")


def _named(file: Path, numbers: Sequence[int], field: str | None) -> str | None:
    """`FILE:LINE: FIELD` of a field such as `lines[3].username`."""
    found = _LINE.fullmatch(field or "")
    return field if found is None else _place(file, numbers[int(found[1]) - 1], found[2])


def _place(file: Path, line: int, field: str | None) -> str:
    return f"{display_name(file)}:{line}{f': {field}' if field else ''}"
