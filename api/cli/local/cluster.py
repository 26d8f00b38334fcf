"""Commands that make this installation a node of a fleet, and ask about it; they work while the API does not."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

from actors.bus.messages.cluster import (
    FleetFounded,
    FleetJoined,
    FleetRekeyed,
    FoundFleet,
    JoinFleet,
    LeaveFleet,
    RekeyFleet,
)
from actors.bus.messages.common import Done
from api.cli.commands import Given
from api.cli.errors import CommandError, Status
from api.cli.local.offline import running_at
from api.cli.local.shared import data_of, locked_data, require_own_directory, settings_of, translated
from api.cli.terminal import Output
from api.operator import cluster, joining
from api.operator.fleet_state import BEHIND, FleetState, migrations_of, state_of
from api.operator.running import ask_cluster
from config.settings.env import ENV_PREFIX
from config.text.formatting import size_text

DSN_VARIABLE = f"{ENV_PREFIX}CLUSTER__DSN"
_CUT_OFF, _BEHIND = Status.UNREACHABLE, 4
"""Exit statuses of `cluster status`; 1 is no fleet."""


@translated()
def init(out: Output, config: Path | None, data_dir: Path | None, run_dir: Path | None, fields: Given) -> None:
    """Make this installation the first node of a fleet."""
    settings = settings_of(config).cluster
    known = {name: getattr(settings, name).get_secret_value() for name in ("dsn", "listen_dsn")}
    asked = FoundFleet(**{**known, **{name: value for name, value in fields.items() if value}})
    if not asked.dsn:
        raise CommandError("--dsn: which database shall it be?", f"Or give it by {DSN_VARIABLE}", status=Status.USAGE)
    running = running_at(config, data_dir, run_dir)
    if running is None:
        with locked_data(config, data_dir) as data:
            done = cluster.found_offline(data, asked, settings.listen)
    else:
        done = ask_cluster(running, asked, FleetFounded)
    text = f"This is the node {done.name} of the new fleet {done.fleet}. Back up the key in the data directory's keys/."
    out.done(asdict(done), text)


@translated()
def join(
    out: Output,
    config: Path | None,
    data_dir: Path | None,
    run_dir: Path | None,
    line: str,
    name: str | None,
    address: str | None,
    discard: bool,
) -> None:
    """Make this installation a node of a fleet."""
    asked = JoinFleet(sys.stdin.readline() if line == "-" else line, name or "", address or "", discard)
    running = running_at(config, data_dir, run_dir)
    if running is None:
        with locked_data(config, data_dir, may_be_new=True) as data:
            joined = joining.join(data, settings_of(config).cluster.listen, **asdict(asked))
    else:
        joined = ask_cluster(running, asked, FleetJoined).name
    out.done({"name": joined}, f"This installation is the node {joined} of the fleet.")


@translated()
def leave(out: Output, config: Path | None, data_dir: Path | None, run_dir: Path | None, force: bool) -> None:
    """Go on alone with everything this node has."""
    running = running_at(config, data_dir, run_dir)
    if running is None:
        with locked_data(config, data_dir) as data:
            cluster.leave_offline(data, force)
    else:
        ask_cluster(running, LeaveFleet(force), Done)
    out.done({"left": True}, "This installation stands alone, with everything that it had as a node.")


@translated()
def rekey(out: Output, config: Path | None, data_dir: Path | None, run_dir: Path | None) -> None:
    """Replace the key that seals secrets, on all nodes."""
    running = running_at(config, data_dir, run_dir)
    if running is None:
        raise CommandError("the product is stopped", "Start it: it hands the new key to the other nodes")
    done = ask_cluster(running, RekeyFleet(), FleetRekeyed)
    text = f"Secrets are sealed with the new key {done.key}. Nodes that have no other: {', '.join(done.nodes)}."
    if done.waiting:
        text += f" To follow, when they are back: {', '.join(done.waiting)}."
    out.done(asdict(done), f"{text} Back up the key in the data directory's keys/.")


@translated()
def status(out: Output, config: Path | None, data_dir: Path | None) -> None:
    """Say how this node stands to its fleet, by its files and the database alone."""
    data = data_of(config, data_dir)
    require_own_directory(data.path)
    found = state_of(data)
    if found is None:
        raise CommandError(cluster.NO_NODE, "`proxyfleet cluster init` makes a fleet of it")
    out.data(asdict(found), lambda: _show(out, found))
    if not found.connected:
        raise SystemExit(_CUT_OFF)
    if found.behind_seconds > BEHIND:
        raise SystemExit(_BEHIND)


def _show(out: Output, found: FleetState) -> None:
    out.details(
        [
            ("fleet", found.fleet),
            ("node", f"{found.name} ({found.node}), {found.role}"),
            ("database", found.database if found.connected else f"cut off: {found.error}"),
            ("revision", found.revision if found.head is None else f"{found.revision} of {found.head}"),
            ("behind", f"{found.behind_seconds:.1f} s"),
            ("doorbell", found.doorbell),
            ("waiting for the database", ", ".join(f"{count} {name}" for name, count in found.pending.items())),
            ("free disk", size_text(found.disk_free)),
        ]
    )


@translated()
def migrate(out: Output, config: Path | None, data_dir: Path | None, dsn: str | None, dry_run: bool) -> None:
    """Bring the schema of the fleet's database forward."""
    data = data_of(config, data_dir)
    require_own_directory(data.path)
    done, seconds = migrations_of(data, dsn, dry_run)
    names = ", ".join(done)
    how_long = "more than 2 s" if seconds is None else f"about {seconds:.1f} s"
    planned = (
        f"Would be done: {names}. That is one transaction, which waits at most 5 s for a lock. It takes {how_long},"
        " in which changes wait."
    )
    text = "The schema is that of this release." if not done else planned if dry_run else f"Done: {names}."
    out.done({"migrations": done, "done": not dry_run}, text)
