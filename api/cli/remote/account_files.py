"""`proxyfleet accounts import` and `export`: accounts of the fleet as lines of a CSV file."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import os
import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from api.cli.commands import Session, command
from api.cli.errors import CommandError, Status
from api.cli.remote.account_csv import BadLine, Line, entries, read, write
from api.cli.request_body import display_name, is_stream, read_text
from api.cli.terminal.output import counted
from config.files.durable import replace_file_of_user
from config.weak_passwords import weakness_of_account

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


@cache  # the group is the same in every application
def add_commands(group: typer.Typer) -> None:
    """Add the commands to the group of accounts."""
    command(group, "import")(import_accounts)
    command(group, "export")(export_accounts)


def import_accounts(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV; - is standard input.")],
    new: Annotated[
        bool, typer.Option("--new", help="Add an account for each line, also for those with an id.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the lines, and change nothing.")] = False,
    weak_passwords: Annotated[
        bool, typer.Option("--weak-passwords", help="Take short passwords, and those that are tried first.")
    ] = False,
) -> None:
    """Add the accounts of a CSV file, all of them or none; a line with an id changes that account.

    The first line names the columns: fields of the API, nested ones with dots. Passwords are hashed here.
    """
    text = read_text(file)
    passwords = _checked(file, text, weak_passwords)
    if dry_run or passwords >= MANY_PASSWORDS:
        data = _send(session, file, _body(text, new, _placeholders), dry_run=True)
    if not dry_run:
        if passwords >= MANY_PASSWORDS:
            session.out.note(f"Hashing {passwords} passwords")
        data = _send(session, file, _body(text, new, _hashes))
    count = {name: data["count"][name] for name in ("created", "updated")}
    done = "would be" if dry_run else "are"
    summary = f"{counted(count['created'], 'account')} {done} added, {count['updated']} {done} changed"
    session.out.done({"count": count, "dry_run": dry_run}, f"{display_name(file)}: {summary}.")


def _checked(file: Path, text: str, weak_passwords: bool) -> int:
    """The number of passwords in a file that can be read. Raises `CommandError` that names the wrong lines."""
    passwords, wrong = 0, list[BadLine]()
    for each in entries(text) if weak_passwords else map(_judged, entries(text)):
        if isinstance(each, Line):
            passwords += "password" in each.body
        elif len(wrong) < ERRORS_MAX:
            wrong.append(each)
    if wrong:
        problems = tuple((_place(file, each.line, each.field), str(each)) for each in wrong)
        raise CommandError("The file can't be imported; nothing was changed", None, Status.USAGE, problems)
    return passwords


def _judged(entry: Line | BadLine) -> Line | BadLine:
    """The service gets hashes, in which it can't see whether a password is weak."""
    if isinstance(entry, BadLine):
        return entry
    why = weakness_of_account(entry.body.get("password"), str(entry.body.get("username", "")), None, "")
    return entry if why is None else BadLine(entry.number, "password", f"{why.partition(' (')[0]}; or --weak-passwords")


class _Body(NamedTuple):
    """The lines of a request, compressed, and their numbers in the file."""

    content: bytes
    numbers: Sequence[int]


def _body(text: str, new: bool, hashed: Callable[[list[str]], Iterable[str]]) -> _Body:
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
    return _Body(packed.getvalue(), numbers)


def _placeholders(passwords: list[str]) -> list[str]:
    return [_SOME_HASH] * len(passwords)


def _hashes(passwords: list[str]) -> list[str]:
    """On all cores: bcrypt is most of the work of an import."""
    from config.passwords import PREHASHED, hash_password

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [PREHASHED + each for each in pool.map(hash_password, passwords)]


def _send(session: Session, file: Path, body: _Body, dry_run: bool = False) -> Any:
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


def export_accounts(
    session: Session,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The file to write; by default, and for -, standard output.")
    ] = None,
) -> None:
    """Write the accounts of the fleet as CSV, without passwords; importing it again changes nothing."""
    accounts = list(session.api.cursor_pages("/accounts", "accounts", inline=False, limit=PAGE))
    text = "".join(write(accounts, sorted({name for each in accounts for name in each["metadata"]})))
    if file is None or is_stream(file):
        session.out.document(text)
        return
    try:
        replace_file_of_user(file, text.encode())
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}") from error
    session.out.done({"file": str(file), "accounts": len(accounts)}, f"{file}: {counted(len(accounts), 'account')}.")


def _named(file: Path, numbers: Sequence[int], field: str | None) -> str | None:
    """`FILE:LINE: FIELD` of a field such as `lines[3].username`."""
    found = _LINE.fullmatch(field or "")
    return field if found is None else _place(file, numbers[int(found[1]) - 1], found[2])


def _place(file: Path, line: int, field: str | None) -> str:
    return f"{display_name(file)}:{line}{f': {field}' if field else ''}"
