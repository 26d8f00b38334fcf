"""`proxyfleet audit …`: changes and refused requests, with who made them; `history` and `rollback`: what was changed in
the configuration, back to a state, or one change undone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from api.cli.client import quoted
from api.cli.commands import CONFIGURE, TOP, WATCH, YES, Given, Session, command, new_group
from api.cli.errors import CommandError, Status
from api.cli.local.commands import DATA_OPTIONS
from api.cli.options import OF_NODE, argument, choice, flag, number, text, texts
from api.cli.quantities import SINCE_BEGIN, UNTIL
from api.cli.remote.import_export import SIGNS, Changes, change_lines, print_revision, summary_text
from api.cli.terminal import Column, cell_text, pairs_of, safe, titled
from config.text.formatting import counted

# --- the audit trail ---

audit = new_group("audit", "The audit trail.", WATCH)
_AUDITED_ID = re.compile(r"(prx|usr|key|whk)_[0-9a-f]{16,}", re.ASCII)


def _with_node(columns: Sequence[Column], rows: Sequence[Any]) -> Sequence[Column]:
    """With a column of the node behind number and time, if rows have one."""
    return (*columns[:2], Column("NODE", "node"), *columns[2:]) if any(row.get("node") for row in rows) else columns


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
    return ", ".join(name for name, _, _ in _changed_fields(row["before"], row["after"]) if name != "id")


def _changed_fields(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each field that differs: its dotted name and both values, None for a missing one."""
    for name in dict.fromkeys((*(before or {}), *(after or {}))):
        was, now = (part.get(name) if part else None for part in (before, after))
        if (isinstance(was, dict) or isinstance(now, dict)) and all(
            isinstance(each, dict | None) for each in (was, now)
        ):
            yield from _changed_fields(was, now, f"{path}{name}.")
        else:
            yield f"{path}{name}", was, now


AUDIT_COLUMNS = (
    Column("SEQ", "seq", right=True),
    Column("TIME", "timestamp", whole=True),
    *titled("action", "outcome", ("BY", author)),
    Column("FROM", "address", spare=True),
    Column("RESOURCE", _resource),
    Column("CHANGES", _changes, spare=True),
)


_ROW_DETAILS = (
    *("seq", "timestamp", "action", "outcome"),
    ("by", author),
    ("from", "address"),
    ("resource", _resource),
    ("resource id", "resource.id"),
    "operation",
    ("request", "request_id"),
)
_VERIFY = {
    **DATA_OPTIONS,
    "head": text("--head", "SEQ:HASH of an earlier verify, which must be in the chain."),
    "all_": flag("--all", "Over the API: the chains of all nodes of a fleet, in the database and on each node."),
}
_LIST = {
    "action": text("--action", "This action, or a group such as proxy.*"),
    "username": text("--username", "Only rows of this user."),
    "resource": text("--resource-id", "Only rows of this resource: its id, or its name then."),
    "outcome": choice("--outcome", "Only this outcome.", ("done", "failed")),
    **SINCE_BEGIN,
    **UNTIL,
    **OF_NODE,
    "limit": number("--limit -n", "The number of rows at most.", default=100, min=1, max=1000),
}


@command(audit, "list", _LIST)
def list_audit(session: Session, resource: str | None, fields: Given) -> None:
    """Show changes and refused requests, with who made them, newest first."""
    name = "resource_id" if resource and _AUDITED_ID.fullmatch(resource) else "resource_name"
    data = session.api.get("/audit", **fields, **{name: resource})
    columns = _with_node(AUDIT_COLUMNS, data["audit"])
    session.out.data(data, lambda: session.out.table(columns, data["audit"], "No row matches."))
    session.out.note_missing(data)


@command(audit, "show", {"seq": argument("SEQ", "The number of the row.", int, min=1), **OF_NODE})
def show_audit(session: Session, seq: int, fields: Given) -> None:
    """Show a whole row, with each field before and after the change. Each node of a fleet numbers its own."""
    found = session.api.get("/audit", seq=seq, **fields)["audit"]
    if not found:
        raise CommandError(f"There is no row {seq}", "All rows: proxyfleet audit list", Status.NOT_FOUND)
    if len(found) > 1:
        names = ", ".join(each["node"] for each in found)
        raise CommandError(f"{len(found)} nodes have a row {seq}: {names}", "Give one of them: --node", Status.USAGE)
    row = found[0]
    pairs = [
        *pairs_of(row, (*_ROW_DETAILS, *(["node"] if row.get("node") else []))),
        *((f"details.{name}", value) for name, value in (row["details"] or {}).items()),
        *(
            (name, f"{cell_text(was)} → {cell_text(now)}")
            for name, was, now in _changed_fields(row["before"], row["after"])
        ),
        ("hash", row["hash"]),
    ]
    session.out.data({"entry": row}, lambda: session.out.details(pairs))


@command(audit, "verify", _VERIFY)
def verify_audit(session: Session, all_: bool, fields: Given) -> None:
    """Verify the hash chain of the audit trail; ends with 1 and names the row where it is broken. Only reads."""
    if not all_:
        from api.cli.local import offline

        offline.verify_audit(session.out, **fields)
        return
    data = session.api.get("/audit/verify")
    rows = data.get("nodes") or [data]
    session.out.data(data, lambda: session.out.table(_VERIFIED, rows))
    session.out.note_missing(data)
    if broken := [each.get("node") or "this machine" for each in rows if not each["intact"]]:
        raise CommandError(f"The audit trail is broken: {', '.join(broken)}")


_VERIFIED = (
    Column("NODE", "node"),
    Column("ROWS", "entries", right=True),
    Column("HEAD", lambda row: row["head"] and "{seq}:{hash}".format(**row["head"]), whole=True),
    Column("BROKEN", lambda row: row["broken"] and "row {seq} {error}".format(**row["broken"])),
)


# --- revisions ---

_IDENTIFIER = re.compile(r"(prx|usr|key|wh|pln|acc|list|pool|policy|nod)_[0-9a-f]{16,}|settings", re.ASCII)
_RANGE = re.compile(r"([1-9][0-9]*)(?:\.{2,3}([1-9][0-9]*))?", re.ASCII)
_NAMED = 3
"""Objects of a revision that a row of the list names; of more it has the number."""

Kind = Literal["proxy", "user", "api_key", "webhook", "settings", "plan", "account", "list", "pool", "policy", "node"]


def _objects(row: Any) -> str:
    summary, objects = row["summary"], row["objects"]
    total = sum(summary.values())
    if not total:
        return "the state at that time" if row["restored"] is None else ""
    if total > _NAMED and len(objects) > 1:
        return _numbers(row)
    named = [f"{SIGNS[each['action']][0]} {each['kind']} {each['name'] or each['id']}" for each in objects]
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
            f"{SIGNS[action][0]} {counted(number, kind.replace('_', ' '))}"
            for (action, kind), number in found.items()
            if number
        )
    numbers = [f"{SIGNS[action][0]} {number}" for action, number in summary.items() if number]
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


_HISTORY = {
    "revision": argument("N or N...M", "Show revision N; or the differences from N to M.", default=None),
    "kind": choice("--kind", "Only changes of objects of this kind.", Kind),
    "object_": text("--object", "Only changes of this object: its id, or its name then."),
    "username": text("--username", "Only changes by this user."),
    **SINCE_BEGIN,
    **UNTIL,
    "limit": number("--limit -n", "The number of rows at most.", default=100, min=1, max=1000),
}
_ROLLBACK = {
    "revision": argument("N", "The revision whose state is to come back, or with --only to undo.", int, min=1),
    "only": flag("--only", "Undo what revision N changed, and nothing else: later changes stay."),
    "object_id": texts("--object", "Only this object: its id, or its name. May be repeated."),
    "with_passwords": flag("--with-passwords", "Passwords of users, accounts and proxies as they were, too."),
    "dry_run": flag("--dry-run", "List the changes, and make none."),
    "yes": YES,
}


@command(TOP, "history", _HISTORY, rich_help_panel=CONFIGURE)
def show_history(session: Session, revision: str | None, object_: str | None, fields: Given) -> None:
    """Show the revisions of the configuration, newest first; or one of them, field by field."""
    if revision is not None:
        _show_one(session, revision)
        return
    name = "object_id" if object_ and _IDENTIFIER.fullmatch(object_) else "object_name"
    data = session.api.get("/revisions", **fields, **{name: object_})
    columns = _with_node(COLUMNS, data["revisions"])
    session.out.data(data, lambda: session.out.table(columns, data["revisions"], "No revision matches."))


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


_DETAILS = (
    "revision",
    ("time", "timestamp"),
    ("by", author),
    ("from", "address"),
    "operation",
    ("request", "request_id"),
)


def _print_one(session: Session, data: Any) -> None:
    row = data["revision"]
    deeds = [(title, name) for title, name in (("restores", "restored"), ("undoes", "undone")) if row[name] is not None]
    node = ["node"] if row.get("node") else []
    session.out.details(pairs_of(row, (*_DETAILS, *node, *deeds)))
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


@command(TOP, "rollback", _ROLLBACK, rich_help_panel=CONFIGURE)
def rollback(session: Session, revision: int, only: bool, fields: Given) -> None:
    """Restore the configuration to what it was after revision N, or undo that one; lists the changes and asks.

    All of it or nothing. A field that was changed again after revision N can't be undone alone: the error names it, and
    the later revision.
    """
    path = f"/revisions/{revision}/{'undo' if only else 'restore'}"
    ids = [_object_id(session, each) for each in fields["object_id"] or []]
    query = {"object_id": ids, "with_passwords": fields["with_passwords"]}
    changes = Changes(session, path, query, lambda plan: _plan_lines(session, plan))
    _changed, done = changes.listed_and_made(fields["dry_run"], fields["yes"])
    if done is not None:
        print_revision(session, done)


def reapply(session: Session, which: str | None, fields: Given) -> None:
    """`proxyfleet cluster reapply`."""
    name = Path(which).name if which else "last"
    query = {"object_id": fields["object_id"] or [], "overwrite": fields["overwrite"]}
    changes = Changes(session, f"/lost-changes/{quoted(name)}/reapply", query, lambda plan: _plan_lines(session, plan))
    _changed, done = changes.listed_and_made(fields["dry_run"], fields["yes"])
    if done is not None:
        print_revision(session, done)


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
