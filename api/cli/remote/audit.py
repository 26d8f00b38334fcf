"""`proxyfleet audit list` and `audit show`: changes and refused requests, with who made them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import typer

from api.cli.commands import WATCH, Session, add_group, command, local_command
from api.cli.errors import CommandError, Status
from api.cli.terminal.output import Column, cell_text
from api.cli.time_options import PERIOD, SinceBeginOption, UntilOption, ago

_IDENTIFIER = re.compile(r"(prx|usr|key|whk)_[0-9a-f]{16,}", re.ASCII)


def add_commands(app: typer.Typer) -> None:
    """Add the group `audit` to `app`."""
    from api.cli.local.offline import verify_audit

    group = typer.Typer(help="The audit trail.", no_args_is_help=True)
    command(group, "list", PERIOD)(list_audit)
    command(group, "show")(show_audit)
    local_command(group, "verify")(verify_audit)
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
    Column("ACTION", "action"),
    Column("OUTCOME", "outcome"),
    Column("BY", author),
    Column("FROM", "address", spare=True),
    Column("RESOURCE", _resource),
    Column("CHANGES", _changes, spare=True),
)


def list_audit(
    session: Session,
    action: Annotated[str | None, typer.Option("--action", help="This action, or a group such as proxy.*")] = None,
    username: Annotated[str | None, typer.Option("--username", help="Only rows of this user.")] = None,
    resource: Annotated[
        str | None, typer.Option("--resource-id", help="Only rows of this resource: its id, or its name then.")
    ] = None,
    outcome: Annotated[Literal["done", "failed"] | None, typer.Option("--outcome", help="Only this outcome.")] = None,
    since: SinceBeginOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="The number of rows at most.")] = 100,
) -> None:
    """Show changes and refused requests, with who made them, newest first."""
    by_id = resource is not None and _IDENTIFIER.fullmatch(resource) is not None
    data = session.api.get(
        "/audit",
        action=action,
        username=username,
        resource_id=resource if by_id else None,
        resource_name=None if by_id else resource,
        outcome=outcome,
        start_time=ago(since) if since else None,
        end_time=ago(until, "--until") if until else None,
        limit=limit,
    )
    session.out.data(data, lambda: session.out.table(COLUMNS, data["audit"], "No row matches."))


def show_audit(
    session: Session, seq: Annotated[int, typer.Argument(metavar="SEQ", min=1, help="The number of the row.")]
) -> None:
    """Show a whole row, with each field before and after the change."""
    found = session.api.get("/audit", cursor=str(seq + 1), limit=1)["audit"]
    if not found or found[0]["seq"] != seq:
        raise CommandError(f"There is no row {seq}", "All rows: proxyfleet audit list", Status.NOT_FOUND)
    row = found[0]
    pairs = [
        *((name, row[name]) for name in ("seq", "timestamp", "action", "outcome")),
        ("by", author(row)),
        ("from", row["address"]),
        ("resource", _resource(row)),
        ("resource id", (row["resource"] or {}).get("id")),
        ("operation", row["operation"]),
        ("request", row["request_id"]),
        *((f"details.{name}", value) for name, value in (row["details"] or {}).items()),
        *((name, f"{cell_text(was)} → {cell_text(now)}") for name, was, now in _fields(row["before"], row["after"])),
        ("hash", row["hash"]),
    ]
    session.out.data({"entry": row}, lambda: session.out.details(pairs))
