"""Options and help of the commands that work on the product's machine.

What they do is loaded when they are called: it needs the modules of the product, which take time to import.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.commands import (
    RECOVER,
    RUN,
    TOP,
    YES,
    FlagsCommand,
    Given,
    Session,
    command,
    guarded,
    local_command,
    new_group,
)
from api.cli.options import argument, flag, number, option, text, texts
from api.cli.quantities import span_option
from api.cli.terminal import CHANGED, PASSPHRASE_FILE, PASSWORD_STDIN, Output
from config.settings.env import ENV_PREFIX

DATA_OPTIONS = {
    "config": option(Path | None, "--config", "A TOML file.", envvar=f"{ENV_PREFIX}CONFIG"),
    "data_dir": option(Path | None, "--data-dir", "The directory of all lasting data."),
}
_BACKUP = {
    "target": argument(
        "TARGET", "A directory, for a name with the time in it; or a file (.tar.gz, .tgz).", Path, default=Path()
    ),
    **DATA_OPTIONS,
    "passphrase_file": PASSPHRASE_FILE,
    "without_keys": flag("--without-keys", "Leave the key files out: usable only where they still are."),
    "unattended": flag("--unattended", "Never ask: without a passphrase leave the key files out."),
    "with_logs": flag("--with-logs", "Include the access records."),
    "keep": number("--keep", "Keep so many archives that have the time in their name.", min=1),
}
_WITHOUT = "Restore without the keys of the archive; remove the secrets that need them, and list them."
_RESTORE = {
    "file": argument("FILE", "An archive of backup.", Path),
    **DATA_OPTIONS,
    "passphrase_file": PASSPHRASE_FILE,
    "dry_run": flag("--dry-run", "Read and check the archive, and list the differences."),
    "without_secrets": flag("--without-secrets", _WITHOUT),
    "to_fleet": flag("--to-fleet", "Import its configuration into the running fleet; nothing is deleted there."),
    "force": flag("--force", "Restore although nothing differs, for audit trail, metrics and records."),
    "yes": YES,
}
_UPGRADE = {
    **DATA_OPTIONS,
    "run_dir": option(Path | None, "--run-dir", "The product's directory of sockets and locks."),
    "timeout": span_option("--timeout", "How long to wait for the new program.", "2m", least=1),
}
_RESET_PASSWORD = {
    "user": argument("USER", "The user name."),
    **DATA_OPTIONS,
    "run_dir": option(Path | None, "--run-dir", "The running product's directory of sockets and locks."),
    "ask": flag("--ask", "Ask for the new password instead of a random one."),
    "password_stdin": PASSWORD_STDIN,
}
_ROTATE_KEY = {
    **DATA_OPTIONS,
    "revoke_previous": flag("--revoke-previous", "End all access tokens at once, as for a key that may be known."),
}


_CLUSTER = new_group("cluster", "Several nodes with one configuration, in a PostgreSQL database.", RUN)
_DSN = (
    "The database, postgresql://USER:PASSWORD@HOST/NAME; - reads it from standard input. By default that of"
    " PROXYFLEET_CLUSTER__DSN or of the configuration, else you are asked. Others on this machine see arguments."
)
_RUN_DIR = option(Path | None, "--run-dir", "The running product's directory of sockets and locks.")
_INIT = {
    "dsn": text("--dsn", _DSN),
    "name": text("--name", "The name of this node; by default that of the machine."),
    "address": text("--address", "Where other nodes reach this one: HOST or HOST:PORT."),
    "listen_dsn": text("--listen-dsn", "A direct connection, where --dsn leads through a pooler."),
    "shared_role": flag("--shared-role", "One role for all nodes, where the DSN's may make none; no edge nodes then."),
    "move": text("--move", "On a node: give its fleet this database, which has a dump of the present one; or -."),
    "force": flag("--force", "With --move: this node alone follows, and the present database is not asked."),
    **DATA_OPTIONS,
    "run_dir": _RUN_DIR,
}
_LEAVE = {
    **DATA_OPTIONS,
    "run_dir": _RUN_DIR,
    "force": flag("--force", "Also when the database can't be reached; the fleet isn't informed then."),
}
_MIGRATE = {
    **DATA_OPTIONS,
    "dsn": text("--dsn", "The database; by default that of this node. - reads it from standard input."),
    "dry_run": flag("--dry-run", "Only say what would be done."),
}


@local_command(_CLUSTER, "init", _INIT, module="cluster")
def init() -> None:
    """Make this installation the first node of a fleet, also while it runs: changes wait for a moment, traffic doesn't.

    Configuration, accounts, users, history and audit trail go to the database, whole or not at all.
    """


_JOIN = {
    "line": argument("TOKEN", "The line of `proxyfleet nodes token`; - reads it from standard input."),
    "name": text("--name", "The name of this node, unless the token has one; by default that of the machine."),
    "address": text("--address", "Where other nodes reach this one: HOST or HOST:PORT."),
    "discard": flag("--discard", "Also if this installation has proxies, accounts or users, which are lost then."),
    **DATA_OPTIONS,
    "run_dir": _RUN_DIR,
}


@local_command(_CLUSTER, "join", _JOIN, module="cluster")
def join() -> None:
    """Make this installation a node of a fleet, by a token: at once if it runs, else from its next start on.

    It gets everything that the fleet has. What it had is refused or, with --discard, lost.
    """


@local_command(_CLUSTER, "leave", _LEAVE, module="cluster")
def leave() -> None:
    """Go on alone with everything this node has, also while it runs; no connection is lost."""


@local_command(_CLUSTER, "rekey", {**DATA_OPTIONS, "run_dir": _RUN_DIR}, module="cluster")
def rekey() -> None:
    """Replace the key that seals secrets on all nodes, and seal each secret anew.

    Each node that is connected has to take the new key, or nothing is changed. One that is away asks for it later.
    """


@local_command(_CLUSTER, "status", DATA_OPTIONS, module="cluster_status")
def status() -> None:
    """Say how this node stands to its fleet, also without the API.

    Ends with 0 if it is connected and current, 3 cut off from the database, 4 more than 10 s behind, 1 no fleet.
    """


@local_command(_CLUSTER, "migrate", _MIGRATE, module="cluster")
def migrate() -> None:
    """Bring the schema of the fleet's database forward to this release."""


_LOST = {"which": argument("FILE|TIME", "A file lost-TIME.json, or its time; by default the last one.", default=None)}


@local_command(_CLUSTER, "show-lost", {**_LOST, **DATA_OPTIONS}, module="cluster_status")
def show_lost() -> None:
    """List what was undone when the database was restored or failed over: who had changed what, when, at which node."""


_REAPPLY = {
    **_LOST,
    "overwrite": flag("--overwrite", "Also what was changed again since then: it gets the lost state."),
    "object_id": texts("--object", "Only the object with this id. May be repeated."),
    "dry_run": flag("--dry-run", "List the changes, and make none."),
    "yes": YES,
}


@command(_CLUSTER, "reapply", _REAPPLY)
def reapply(session: Session, which: str | None, fields: Given) -> None:
    """Make the lost changes again, all of them or none; lists them and asks first.

    What was changed again since then is named and stays. It is the state of this node's file that comes back.
    """
    from api.cli.remote import history

    history.reapply(session, which, fields)


@local_command(TOP, "backup", _BACKUP, module="backup", rich_help_panel=RECOVER)
def backup() -> None:
    """Back up all data into one archive, also while the product runs; keys are sealed under a passphrase."""


@command(TOP, "restore", _RESTORE, rich_help_panel=RECOVER)
def restore(session: Session, to_fleet: bool, fields: Given) -> None:
    """Replace the data by those of a backup, while the product is stopped; the present data are kept beside.

    The archive is read and checked, and the differences are listed, before anything is changed. A restore that is
    killed leaves the old state or the new one. What is restored stands alone; with --to-fleet the running fleet gets
    the configuration of the archive, over the API, as by import.
    """
    from api.cli.local import backup

    if to_fleet:
        backup.restore_to_fleet(session, fields)
    else:
        backup.restore(session.out, fields)


@local_command(TOP, "upgrade", _UPGRADE, module="offline", rich_help_panel=RUN)
def upgrade() -> None:
    """Replace the running product by the installed release, without refusing a connection; open ones drain."""


@local_command(TOP, "reset-settings", DATA_OPTIONS, module="offline", rich_help_panel=RECOVER)
def reset_settings() -> None:
    """Remove all settings that the API has changed, while the product is stopped; the configuration applies again."""


@command(TOP, "rotate-signing-key", _ROTATE_KEY, rich_help_panel=RECOVER)
def rotate_signing_key(session: Session, config: Path | None, data_dir: Path | None, revoke_previous: bool) -> None:
    """Sign access tokens with a new key, over the API or in the data of a stopped product; sign-ins stay valid."""
    from api.cli.local import offline

    offline.rotate_signing_key(session, config, data_dir, revoke_previous)


@local_command(TOP, "reset-password", _RESET_PASSWORD, module="offline", rich_help_panel=RECOVER)
def reset_password() -> None:
    """Set a new password of a user, also while the product runs: a random one, or PROXYFLEET_NEW_PASSWORD."""


_CONFIG = new_group("config", "The configuration as a whole.", RUN)
_CHECK = {
    **DATA_OPTIONS,
    "probe": flag("--probe", "Also try whether ports are free and the upstreams of proxies can be reached."),
}


@TOP.command("serve", cls=FlagsCommand, rich_help_panel=RUN)
def serve(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option("--config", envvar=f"{ENV_PREFIX}CONFIG", help="A TOML file.")] = None,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="The directory of all lasting data.")] = None,
    run_dir: Annotated[Path | None, typer.Option("--run-dir", help="Sockets and locks; a short path.")] = None,
    host: Annotated[str | None, typer.Option(metavar="HOST", help="Where the management API listens: address.")] = None,
    port: Annotated[int | None, typer.Option(help="Where the management API listens: port.")] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning, error or critical.")
    ] = None,
    lab: Annotated[
        bool, typer.Option("--lab", help="Run an origin on loopback to try proxies with, and let them reach loopback.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Only say whether it would start, whatever runs now.")] = False,
) -> None:
    """Run the product in the foreground until SIGTERM or Ctrl-C."""
    given = {
        "data_dir": data_dir,
        "run_dir": run_dir,
        "server": _given({"host": host, "port": port}),
        "logging": _given({"level": log_level}),
    }

    def start() -> None:
        from api.cli.local.serve import check_or_serve

        check_or_serve(config, _given(given), context.obj, lab, check)

    guarded(Output(), start)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that the command line has."""
    return {name: value for name, value in options.items() if value is not None and value != {}}


@local_command(TOP, "check-config", _CHECK, module="check", rich_help_panel=RUN)
def check_config() -> None:
    """Print all errors of the configuration with file and line, and the keys that the API overrides.

    Checks certificates, also those of stored proxies. Ends with 1 if the product or a proxy could not start.
    """


@local_command(_CONFIG, "show", {**DATA_OPTIONS, "changed": CHANGED}, module="check")
def show_config() -> None:
    """Show the whole configuration with the source of each value: a line of the file, a variable, the API.

    CHANGE is what a change needs: at once (proxyfleet settings set), reload or restart. Secrets are masked. Options of
    a running `serve` are not included.
    """
