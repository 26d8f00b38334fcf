"""`proxyfleet accounts import` and `export`: accounts of the fleet as lines of a CSV file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.commands import Session, command
from api.cli.errors import CommandError, Status
from api.cli.remote.account_csv import BadLine, Line, read, write
from api.cli.request_body import display_name, read_text
from api.cli.terminal.output import counted
from config.files.durable import replace_file_of_user

TIMEOUT = 600.0
"""Seconds that an import may take."""
PAGE = 1000
PART = 10_000
"""Lines of one request; of a longer file all parts are checked before the first is stored."""
MANY_PASSWORDS = 100
"""From here on a note says why nothing happens for a while."""

_ENTRY = re.compile(r"(create|update)\[([0-9]+)\]\.?(.*)", re.ASCII)


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
) -> None:
    """Add the accounts of a CSV file, all of them or none; a line with an id changes that account.

    The first line names the columns: fields of the API, nested ones with dots. Passwords are hashed here.
    """
    with _naming_lines(file):
        lines = list(read(read_text(file)))
    if new:
        for each in lines:
            each.body.pop("id", None)
    _hash_passwords(session, [each.body for each in lines])
    parts = list(_parts(lines))
    checked = [_send(session, file, part, dry_run=True) for part in parts] if dry_run or len(parts) > 1 else []
    results = checked if dry_run else _store(session, file, parts)
    count = {name: sum(each["count"][name] for each in results) for name in ("created", "updated")}
    done = "would be" if dry_run else "are"
    text = f"{counted(count['created'], 'account')} {done} added, {count['updated']} {done} changed"
    session.out.done({"count": count, "dry_run": dry_run}, f"{display_name(file)}: {text}.")


def _parts(lines: list[Line]) -> Iterator[list[Line]]:
    """As many lines as one request takes; accounts of one name are in one part, where the API compares them."""
    if len(lines) <= PART:
        yield lines
        return
    ordered = sorted(lines, key=lambda each: str(each.body.get("username")))
    begin = 0
    while begin < len(ordered):
        end = min(begin + PART, len(ordered))
        while begin + 1 < end < len(ordered) and _name(ordered[end - 1]) == _name(ordered[end]) is not None:
            end -= 1
        yield ordered[begin:end]
        begin = end


def _name(line: Line) -> Any:
    return line.body.get("username")


def _store(session: Session, file: Path, parts: Sequence[list[Line]]) -> list[Any]:
    """Store all parts, which were checked; if one fails all the same, what the others added is removed again."""
    stored: list[Any] = []
    for part in parts:
        try:
            stored.append(_send(session, file, part))
        except CommandError as error:
            added = [each["id"] for one in stored for each in one["created"]]
            for begin in range(0, len(added), PART):
                gone = {"delete": added[begin : begin + PART]}
                session.api.call("POST", "/accounts/import", body=gone, timeout=TIMEOUT)
            if added:
                error.hint = "The accounts that were added before it are removed again; changes of others stay"
            raise
    return stored


def _send(session: Session, file: Path, lines: list[Line], dry_run: bool = False) -> Any:
    sent = {
        "create": [each for each in lines if "id" not in each.body],
        "update": [each for each in lines if "id" in each.body],
    }
    body = {name: [each.body for each in entries] for name, entries in sent.items()}
    with _naming_lines(file, sent):
        query = {"dry_run": dry_run}
        return session.api.call("POST", "/accounts/import", query=query, body=body, timeout=TIMEOUT)


def export_accounts(
    session: Session,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The file to write; by default standard output.")
    ] = None,
) -> None:
    """Write all accounts of the fleet as CSV, without passwords; importing it again changes nothing."""
    accounts = list(session.api.cursor_pages("/accounts", "accounts", limit=PAGE))
    text = "".join(write(accounts, sorted({name for each in accounts for name in each["metadata"]})))
    if file is None:
        session.out.document(text)
        return
    try:
        replace_file_of_user(file, text.encode())
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}") from error
    session.out.done({"file": str(file), "accounts": len(accounts)}, f"{file}: {counted(len(accounts), 'account')}.")


def _hash_passwords(session: Session, bodies: Sequence[dict[str, Any]]) -> None:
    """Replace passwords by their hashes, on all cores: bcrypt is most of the work of an import."""
    from config.passwords import hash_password

    given = [each for each in bodies if "password" in each]
    if len(given) >= MANY_PASSWORDS:
        session.out.note(f"Hashing {len(given)} passwords")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        hashes = pool.map(hash_password, [each["password"] for each in given])
        for body, hashed in zip(given, hashes, strict=True):
            del body["password"]
            body["password_hash"] = hashed


@contextmanager
def _naming_lines(file: Path, sent: dict[str, list[Line]] | None = None) -> Iterator[None]:
    """Name file and line of problems. `sent` are the lines behind the entries of the body."""
    try:
        yield
    except BadLine as error:
        place = f"{display_name(file)}:{error.line}"
        problem = (f"{place}: {error.field}" if error.field else place, str(error))
        raise CommandError("The file can't be imported; nothing was changed", None, Status.USAGE, (problem,)) from error
    except CommandError as error:
        error.problems = tuple((_place(file, sent or {}, field), text) for field, text in error.problems)
        raise


def _place(file: Path, sent: dict[str, list[Line]], field: str | None) -> str | None:
    """`FILE:LINE: FIELD` of a field such as `create[3].username`."""
    found = _ENTRY.fullmatch(field or "")
    if found is None:
        return field
    line = sent[found[1]][int(found[2])].number
    return f"{display_name(file)}:{line}{f': {found[3]}' if found[3] else ''}"
