"""`proxyfleet audit list` and `audit show`: changes and refused requests, with who made them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from api.cli.commands import WATCH, Given, Session, add_group, command, local_command
from api.cli.errors import CommandError, Status
from api.cli.local.upkeep import DATA_OPTIONS
from api.cli.options import argument, choice, number, text
from api.cli.quantities import SINCE_BEGIN, UNTIL
from api.cli.terminal.output import Column, Output, cell_text, pairs_of, titled

_IDENTIFIER = re.compile(r"(prx|usr|key|whk)_[0-9a-f]{16,}", re.ASCII)


def add_commands(app: typer.Typer) -> None:
    """Add the group `audit` to `app`."""
    group = typer.Typer(help="The audit trail.", no_args_is_help=True)
    command(group, "list", _LIST)(list_audit)
    command(group, "show", {"seq": argument("SEQ", "The number of the row.", int, min=1)})(show_audit)
    local_command(group, "verify", _VERIFY)(verify_audit)
    add_group(app, "audit", group, WATCH)


def author(row: Any) -> str:
    """The user and the key, which tells programs of one owner apart."""
    who = str(row["actor"]["username"] or row["actor"]["type"])
    credential = row["credential"] or {}
    if credential.get("method") != "api_key":
        return who
    return f"{who} (key {credential.get('name') or credential['id']})"


def _resource(row: Any) -> str | None:
    resource = row["resource"]
    return f"{resource['type']} {resource['name'] or resource['id'] or ''}".strip() if resource else None


def _changes(row: Any) -> str | None:
    """The fields of an update, or the reason of a failure, with the operation if a permission was missing."""
    details = row["details"] or {}
    if "required_permission" in details:
        return f"{row['operation']} needs {details['required_permission']}"
    if "reason" in details or "error" in details:
        return str(details.get("reason", details.get("error")))
    of_settings = row["action"].startswith("settings.")  # their document is made by the first change, and goes at last
    if not of_settings and (row["before"] is None or row["after"] is None):
        return None
    return ", ".join(name for name, _, _ in _fields(row["before"], row["after"]) if name != "id")


def _fields(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each field that differs: its dotted name and both values, None for a missing one."""
    for name in dict.fromkeys((*(before or {}), *(after or {}))):
        was, now = (part.get(name) if part else None for part in (before, after))
        if (isinstance(was, dict) or isinstance(now, dict)) and all(
            isinstance(each, dict | None) for each in (was, now)
        ):
            yield from _fields(was, now, f"{path}{name}.")
        else:
            yield f"{path}{name}", was, now


COLUMNS = (
    Column("SEQ", "seq", right=True),
    Column("TIME", "timestamp", whole=True),
    *titled("action", "outcome"),
    Column("BY", author),
    Column("FROM", "address", spare=True),
    Column("RESOURCE", _resource),
    Column("CHANGES", _changes, spare=True),
)


_DETAILS = (
    *("seq", "timestamp", "action", "outcome"),
    ("by", author),
    ("from", "address"),
    ("resource", _resource),
    ("resource id", "resource.id"),
    "operation",
    ("request", "request_id"),
)
_VERIFY = {**DATA_OPTIONS, "head": text("--head", "SEQ:HASH of an earlier verify, which must be in the chain.")}
_LIST = {
    "action": text("--action", "This action, or a group such as proxy.*"),
    "username": text("--username", "Only rows of this user."),
    "resource": text("--resource-id", "Only rows of this resource: its id, or its name then."),
    "outcome": choice("--outcome", "Only this outcome.", ("done", "failed")),
    **SINCE_BEGIN,
    **UNTIL,
    "limit": number("--limit -n", "The number of rows at most.", default=100, min=1, max=1000),
}


def list_audit(session: Session, resource: str | None, fields: Given) -> None:
    """Show changes and refused requests, with who made them, newest first."""
    name = "resource_id" if resource and _IDENTIFIER.fullmatch(resource) else "resource_name"
    data = session.api.get("/audit", **fields, **{name: resource})
    session.out.data(data, lambda: session.out.table(COLUMNS, data["audit"], "No row matches."))


def show_audit(session: Session, seq: int) -> None:
    """Show a whole row, with each field before and after the change."""
    found = session.api.get("/audit", cursor=str(seq + 1), limit=1)["audit"]
    if not found or found[0]["seq"] != seq:
        raise CommandError(f"There is no row {seq}", "All rows: proxyfleet audit list", Status.NOT_FOUND)
    row = found[0]
    pairs = [
        *pairs_of(row, _DETAILS),
        *((f"details.{name}", value) for name, value in (row["details"] or {}).items()),
        *((name, f"{cell_text(was)} → {cell_text(now)}") for name, was, now in _fields(row["before"], row["after"])),
        ("hash", row["hash"]),
    ]
    session.out.data({"entry": row}, lambda: session.out.details(pairs))


def verify_audit(out: Output, **given: Any) -> None:
    """Verify the hash chain of the audit trail; ends with 1 and names the row where it is broken. Only reads."""
    from api.cli.local import offline

    offline.verify_audit(out, **given)
