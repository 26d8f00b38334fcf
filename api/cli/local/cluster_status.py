"""`proxyfleet cluster status` and `show-lost`: they work while the API does not, and load nothing of that."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from api.cli.errors import CommandError, Status
from api.cli.local.shared import data_of, require_own_directory, translated
from api.cli.terminal import Column, Output
from api.history.lost_changes import NeverLost, lost_changes
from api.operator.fleet_state import NO_NODE, FleetState, patience, runs_for, state_of
from config.model.nodes import pending_text
from config.text.formatting import counted, size_text

_CUT_OFF, _PROBLEM = Status.UNREACHABLE, 4
"""Exit statuses; 1 is no fleet. A node that is behind and follows by itself needs no one: 0."""


@translated()
def status(out: Output, config: Path | None, data_dir: Path | None) -> None:
    """Say how this node stands to its fleet, by its files and the database alone."""
    data = data_of(config, data_dir)
    require_own_directory(data.path)
    found = state_of(data, patience(runs_for()))
    if found is None:
        raise CommandError(NO_NODE, "`proxyfleet cluster init` makes a fleet of it")
    out.data(asdict(found), lambda: _show(out, found))
    if not found.connected:
        raise SystemExit(_CUT_OFF)
    if found.problem is not None:
        raise SystemExit(_PROBLEM)


def _show(out: Output, found: FleetState) -> None:
    out.details(
        [
            ("fleet", found.fleet),
            ("node", f"{found.name} ({found.node}), {found.role}"),
            ("database", found.database if found.connected else f"cut off: {found.error}"),
            ("revision", found.revision if found.head is None else f"{found.revision} of {found.head}"),
            ("behind", None if found.head is None else f"{found.behind_seconds:.1f} s"),
            ("doorbell", found.doorbell),
            ("waiting for the database", pending_text(found.pending)),
            ("free disk", size_text(found.disk_free)),
            *([("problem", found.problem)] if found.problem else []),
        ]
    )


_REVISIONS = (
    Column("COMMIT", "commit", right=True),
    Column("REVISION", "revision", right=True),
    Column("TIME", "timestamp", whole=True),
    Column("BY", lambda row: row["actor"]["username"] or row["actor"]["type"]),
    Column("NODE", "node"),
    Column("OPERATION", "operation", spare=True),
)
_DOCUMENTS = (
    Column("COLLECTION", "collection"),
    Column("NAME", "name"),
    Column("ID", "id"),
    Column("LOST", lambda row: "its deletion" if row["body"] is None else f"what commit {row['revision']} made of it"),
)


@translated()
def show_lost(out: Output, which: str | None, config: Path | None, data_dir: Path | None) -> None:
    """List what was undone; an empty list when nothing ever was."""
    data = data_of(config, data_dir)
    try:
        found = lost_changes(data, which or "")
    except NeverLost:
        out.done([], "Nothing was lost: the fleet's database has all that this node had.")
        return

    def show() -> None:
        out.line(
            f"Noticed at {found.at}: the database went back to commit {found.revision}, and lacks"
            f" {counted(len(found.commits), 'commit')} with {counted(len(found.documents), 'object')}."
        )
        for columns, rows, nothing in (
            (_REVISIONS, found.revisions, "No revision of the configuration is among them."),
            (_DOCUMENTS, found.documents, "No object differs."),
        ):
            if rows:
                out.table(columns, rows)
            else:
                out.line(nothing)

    out.data({"id": found.id, **{name: getattr(found, name) for name in found.__slots__}}, show)
