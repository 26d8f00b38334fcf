"""Commands that make this installation a node of a fleet, and ask about it; they work while the API does not."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

from actors.bus.messages.cluster import (
    FleetFounded,
    FleetJoined,
    FleetLeft,
    FleetMoved,
    FleetRekeyed,
    FoundFleet,
    JoinFleet,
    LeaveFleet,
    MoveFleet,
    RekeyFleet,
)
from api.cli.commands import Given
from api.cli.errors import CommandError, Status
from api.cli.local.offline import running_at
from api.cli.local.shared import data_of, locked_data, require_own_directory, settings_of, translated
from api.cli.terminal import Output, hidden
from api.operator import cluster, joining
from api.operator.fleet_state import NO_NODE, migrations_of
from api.operator.offline import has_users
from api.operator.running import ask_cluster
from config.model.nodes import pending_text
from config.settings.env import ENV_PREFIX

DSN_VARIABLE = f"{ENV_PREFIX}CLUSTER__DSN"


@translated()
def init(out: Output, config: Path | None, data_dir: Path | None, run_dir: Path | None, fields: Given) -> None:
    """Make this installation the first node of a fleet."""
    settings = settings_of(config).cluster
    known = {name: getattr(settings, name).get_secret_value() for name in ("dsn", "listen_dsn")}
    to, force = fields.pop("move"), fields.pop("force")
    if force and to is None:
        raise CommandError("--force is for --move alone", "Without --move this makes a new fleet", Status.USAGE)
    note_password(out, fields["listen_dsn"])
    if to is not None:
        asked = MoveFleet(dsn_of(out, to, "", "--move"), fields["listen_dsn"] or "", force)
        _move(out, config, data_dir, run_dir, asked)
        return
    fields["dsn"] = dsn_of(out, fields["dsn"], known["dsn"])
    to_found = FoundFleet(**{**known, **{name: value for name, value in fields.items() if value}})
    running = running_at(config, data_dir, run_dir)
    if running is None:
        with locked_data(config, data_dir) as data:
            done = cluster.found_offline(data, to_found, settings.listen)
    else:
        done = ask_cluster(running, to_found, FleetFounded)
    text = f"This is the node {done.name} of the new fleet {done.fleet}. Back up the key in the data directory's keys/."
    out.done(asdict(done), text)


def _move(out: Output, config: Path | None, data_dir: Path | None, run_dir: Path | None, asked: MoveFleet) -> None:
    running = running_at(config, data_dir, run_dir)
    if running is None:
        with locked_data(config, data_dir) as data:
            done = cluster.move_offline(data, asked)
    else:
        done = ask_cluster(running, asked, FleetMoved)
    others = "This node alone" if asked.force else "Other nodes follow within seconds: `proxyfleet nodes`. This one"
    out.done({"database": done.database}, f"The fleet's database is {done.database}. {others} uses it now.")


def note_password(out: Output, given: str | None) -> None:
    """Say so, if an argument of the command has the password of a database in it."""
    if given and ("password" in given or ":" in given.partition("//")[2].rpartition("@")[0]):
        out.note(f"note: the list of processes has had this password; {DSN_VARIABLE} or - keep it out of there")


def dsn_of(out: Output, given: str | None, known: str, option: str = "--dsn") -> str:
    """The DSN of a database: `given` by the option, where `-` is the first line of standard input, or `known` by the
    configuration, or typed in. Raises `CommandError`."""
    if given == "-":
        if found := sys.stdin.readline().strip():
            return found
        raise CommandError(f"{option}: the first line of standard input is empty", status=Status.USAGE)
    note_password(out, given)
    otherwise = f"Give it by {DSN_VARIABLE}; or --dsn - reads it from standard input"
    return given or known or hidden("The DSN of the database", otherwise)


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
            done = cluster.leave_offline(data, force)
    else:
        done = ask_cluster(running, LeaveFleet(force), FleetLeft)
    unsent = pending_text(done.unsent)
    only_here = f" The fleet did not get {unsent}: this machine alone has that." if unsent else ""
    text = f"This installation stands alone, with everything that it had as a node.{only_here}"
    data = data_of(config, data_dir)
    if not has_users(data):
        text += (
            " An edge node has no users: the next start makes the administrator `admin`, with the password of"
            f" {ENV_PREFIX}ADMIN_PASSWORD if that is set, else with one in {data.initial_password}."
        )
    out.done({"left": True, "unsent": done.unsent}, text)


@translated()
def rekey(out: Output, config: Path | None, data_dir: Path | None, run_dir: Path | None) -> None:
    """Replace the key that seals secrets, on all nodes."""
    running = running_at(config, data_dir, run_dir)
    if running is None and not data_of(config, data_dir).node.exists():
        raise CommandError(NO_NODE, "`proxyfleet cluster init` makes a fleet of it")
    if running is None:
        raise CommandError("the product is stopped", "Start it: it hands the new key to the other nodes")
    done = ask_cluster(running, RekeyFleet(), FleetRekeyed)
    text = f"Secrets are sealed with the new key {done.key}. Nodes that have it alone: {', '.join(done.nodes)}."
    if done.waiting:
        text += f" To follow, when they are back: {', '.join(done.waiting)}."
    out.done(asdict(done), f"{text} Back up the key in the data directory's keys/.")


@translated()
def migrate(out: Output, config: Path | None, data_dir: Path | None, dsn: str | None, dry_run: bool) -> None:
    """Bring the schema of the fleet's database forward."""
    data = data_of(config, data_dir)
    require_own_directory(data.path)
    done, seconds = migrations_of(data, dsn and dsn_of(out, dsn, ""), dry_run)
    names = ", ".join(done)
    how_long = "more than 2 s" if seconds is None else f"about {seconds:.1f} s"
    planned = (
        f"Would be done: {names}. That is one transaction, which waits at most 5 s for a lock. It takes {how_long},"
        " in which changes wait."
    )
    text = "The schema is that of this release." if not done else planned if dry_run else f"Done: {names}."
    out.done({"migrations": done, "done": not dry_run}, text)
