"""`proxyfleet history` and `rollback`: what was changed in the configuration, back to a state, or one change undone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import typer

from api.cli.commands import CONFIGURE, Session, YesOption, command, confirm
from api.cli.errors import CommandError, Status
from api.cli.remote.audit import author
from api.cli.remote.import_export import TIMEOUT, change_lines, commit_listed, summary_text
from api.cli.terminal.output import Column, counted, safe
from api.cli.time_options import PERIOD, SinceBeginOption, UntilOption, ago

_IDENTIFIER = re.compile(r"(prx|usr|key|wh|pln|acc|list|pool|policy)_[0-9a-f]{16,}|settings", re.ASCII)
_RANGE = re.compile(r"([1-9][0-9]*)(?:\.{2,3}([1-9][0-9]*))?", re.ASCII)
_NAMED = 3
"""Objects of a revision that a row of the list names; of more it has the number."""
_MANY = {"proxy": "proxies", "policy": "policies", "settings": "settings"}
_SIGNS = {"create": "+", "update": "~", "delete": "-"}

Kind = Literal["proxy", "user", "api_key", "webhook", "settings", "plan", "account", "list", "pool", "policy"]


def add_commands(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    command(app, "history", PERIOD, rich_help_panel=CONFIGURE)(show_history)
    command(app, "rollback", rich_help_panel=CONFIGURE)(rollback)


def _objects(row: Any) -> str:
    summary, objects = row["summary"], row["objects"]
    total = sum(summary.values())
    if not total:
        return "the state at that time" if row["restored"] is None else ""
    if total > _NAMED and len(objects) > 1:
        return _numbers(row)
    named = [f"{_SIGNS[each['action']]} {each['kind']} {each['name'] or each['id']}" for each in objects]
    left = total - len(named)
    return ", ".join([*named, *([f"{left} more"] if left > 0 else [])])


def _numbers(row: Any) -> str:
    """`+ 990 accounts`; where there are several kinds, and not all objects are here, the kinds behind the numbers."""
    summary, kinds = row["summary"], row["kinds"]
    found = Counter((each["action"], each["kind"]) for each in row["objects"])
    if len(kinds) == 1:
        found = Counter({(action, kinds[0]): number for action, number in summary.items()})
    if len(kinds) == 1 or found.total() == sum(summary.values()):
        return ", ".join(
            f"{_SIGNS[action]} {counted(number, kind.replace('_', ' '), _MANY.get(kind))}"
            for (action, kind), number in found.items()
            if number
        )
    numbers = [f"{_SIGNS[action]} {number}" for action, number in summary.items() if number]
    return f"{', '.join(numbers)} ({', '.join(kinds)})"


def _fields(row: Any) -> str | None:
    for deed, verb in (("restored", "restores"), ("undone", "undoes")):
        if row[deed] is not None:
            return f"{verb} {row[deed]}"
    if sum(row["summary"].values()) > _NAMED:
        return None
    return ", ".join(dict.fromkeys(field for each in row["objects"] for field in each["fields"])) or None


COLUMNS = (
    Column("REVISION", "revision", right=True),
    Column("TIME", "timestamp", whole=True),
    Column("BY", author),
    Column("FROM", "address", spare=True),
    Column("OBJECTS", _objects),
    Column("FIELDS", _fields, spare=True),
)


def show_history(
    session: Session,
    revision: Annotated[
        str | None,
        typer.Argument(
            metavar="N or N...M", help="Show revision N; or the differences from N to M.", show_default=False
        ),
    ] = None,
    kind: Annotated[Kind | None, typer.Option("--kind", help="Only changes of objects of this kind.")] = None,
    object_: Annotated[
        str | None, typer.Option("--object", help="Only changes of this object: its id, or its name then.")
    ] = None,
    username: Annotated[str | None, typer.Option("--username", help="Only changes by this user.")] = None,
    since: SinceBeginOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="The number of rows at most.")] = 100,
) -> None:
    """Show the revisions of the configuration, newest first; or one of them, field by field."""
    if revision is not None:
        _show_one(session, revision)
        return
    by_id = object_ is not None and _IDENTIFIER.fullmatch(object_) is not None
    data = session.api.get(
        "/revisions",
        kind=kind,
        object_id=object_ if by_id else None,
        object_name=None if by_id else object_,
        username=username,
        start_time=ago(since) if since else None,
        end_time=ago(until, "--until") if until else None,
        limit=limit,
    )
    session.out.data(data, lambda: session.out.table(COLUMNS, data["revisions"], "No revision matches."))


def _show_one(session: Session, given: str) -> None:
    found = _RANGE.fullmatch(given)
    if found is None:
        raise CommandError(f"{given!r} is no revision", "A number such as 12, or two: 12...15", Status.USAGE)
    first, other = found.groups()
    data = _all_pages(session, f"/revisions/{first}...{other}" if other else f"/revisions/{first}")
    if other:
        session.out.data(data, lambda: session.out.lines(_change_lines(session, data["changes"])))
        return
    session.out.data(data, lambda: _print_one(session, data))


def _print_one(session: Session, data: Any) -> None:
    row = data["revision"]
    pairs = [
        ("revision", row["revision"]),
        ("time", row["timestamp"]),
        ("by", author(row)),
        ("from", row["address"]),
        ("operation", row["operation"]),
        ("request", row["request_id"]),
        *([("restores", row["restored"])] if row["restored"] is not None else []),
        *([("undoes", row["undone"])] if row["undone"] is not None else []),
    ]
    session.out.details(pairs)
    session.out.lines(_change_lines(session, data["changes"]))


def _all_pages(session: Session, path: str) -> Any:
    data = session.api.get(path, limit=1000)
    while data["has_more"]:
        page = session.api.get(path, limit=1000, cursor=data["next_cursor"])
        data = {**page, "changes": [*data["changes"], *page["changes"]]}
    return data


def _change_lines(session: Session, changes: list[Any]) -> Iterator[str]:
    if not changes:
        yield "Nothing differs."
    for change in changes:
        yield from change_lines(session, change, change["fields"])


def rollback(
    session: Session,
    revision: Annotated[
        int,
        typer.Argument(metavar="N", min=1, help="The revision whose state is to come back, or with --only to undo."),
    ],
    only: Annotated[
        bool,
        typer.Option("--only", help="Undo what revision N changed, and nothing else: later changes stay."),
    ] = False,
    objects: Annotated[
        list[str] | None,
        typer.Option("--object", help="Only this object: its id, or its name. May be repeated."),
    ] = None,
    with_passwords: Annotated[
        bool,
        typer.Option("--with-passwords", help="Passwords of users, accounts and proxies as they were, too."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the changes, and make none.")] = False,
    yes: YesOption = False,
) -> None:
    """Restore the configuration to what it was after revision N, or undo that one; lists the changes and asks.

    All of it or nothing. A field that was changed again after revision N can't be undone alone: the error names it, and
    the later revision.
    """
    path = f"/revisions/{revision}/{'undo' if only else 'restore'}"
    query: dict[str, Any] = {
        "object_id": [_object_id(session, each) for each in objects or []],
        "with_passwords": with_passwords,
    }
    plan = session.api.call("POST", path, query={**query, "dry_run": True}, timeout=TIMEOUT)
    if dry_run or not plan["changed"]:
        plan["dry_run"] = dry_run
        session.out.data(plan, lambda: session.out.lines(_plan_lines(session, plan)))
        return
    if session.out.format != "json":
        session.out.lines(_plan_lines(session, plan))
    confirm("Do it?", yes)
    done = commit_listed(session, path, query)
    text = f"{summary_text(done['summary'], '')} This is revision {done['revision']}."
    session.out.data(done, lambda: session.out.line(text))


def _plan_lines(session: Session, plan: Any) -> Iterator[str]:
    for change in plan["changes"]:
        if change["action"] != "unchanged":
            yield from change_lines(session, change, change["fields"])
    for each in plan["not_restored"]:
        what = f"{each['kind']} {each['name'] or each['id']}{'' if each['field'] is None else ' ' + each['field']}"
        yield f"  {safe(what)}: {safe(each['reason'])}"
    yield summary_text(plan["summary"], "would be " if plan["dry_run"] else "")


def _object_id(session: Session, given: str) -> str:
    """The id of an object, by the name in one of its last changes. Raises `CommandError`."""
    if _IDENTIFIER.fullmatch(given):
        return given
    found = session.api.get("/revisions", object_name=given, limit=100)["revisions"]
    ids = {each["id"]: each["kind"] for row in found for each in row["objects"]}
    if len(ids) > 1:
        named = ", ".join(f"{identifier} ({kind})" for identifier, kind in ids.items())
        raise CommandError(f"{len(ids)} objects were called {given!r}", f"Give the id: {named}", Status.USAGE)
    if not ids:
        raise CommandError(f"No revision changed {given!r}", "All of them: proxyfleet history", Status.NOT_FOUND)
    return str(next(iter(ids)))
