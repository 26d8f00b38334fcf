"""`proxyfleet reset-password`: in the data of a stopped product, or by a request to the running one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.commands import RECOVER, local_command
from api.cli.errors import CommandError, Status
from api.cli.local.offline import (
    ConfigOption,
    DataOption,
    data_of,
    locked_data,
    require_own_directory,
    settings_of,
    translated,
)
from api.cli.terminal.output import Output
from api.cli.terminal.secret_input import StdinOption
from api.cli.terminal.secret_input import password as ask_password
from config.settings.env import ENV_PREFIX

if TYPE_CHECKING:  # these take time to import, and only this command needs them
    from config.files.paths import RunDir

RunOption = Annotated[
    Path | None, typer.Option("--run-dir", help="The running product's directory of sockets and locks.")
]


def add_commands(app: typer.Typer) -> None:
    """Add the command to `app`."""
    local_command(app, "reset-password", rich_help_panel=RECOVER)(reset_password)


def reset_password(
    out: Output,
    user: Annotated[str, typer.Argument(help="The user name.")],
    config: ConfigOption = None,
    data_dir: DataOption = None,
    run_dir: RunOption = None,
    ask: Annotated[bool, typer.Option("--ask", help="Ask for the new password instead of a random one.")] = False,
    password_stdin: StdinOption = False,
) -> None:
    """Set a new password of a user, also while the product runs: a random one, or PROXYFLEET_NEW_PASSWORD."""
    from api.services.password_reset import UnknownUser

    chosen = os.environ.get(f"{ENV_PREFIX}NEW_PASSWORD")
    if ask or password_stdin:
        chosen = ask_password(f"New password of {user}", password_stdin, twice=True)
    try:
        running = _running(config, data_dir, run_dir)
        fresh, disabled = (
            _in_data(config, data_dir, user, chosen) if running is None else _in_running(running, user, chosen)
        )
    except UnknownUser as error:
        raise CommandError(str(error), status=Status.NOT_FOUND) from error
    if disabled:
        out.note(f"note: {user} is disabled, and can't sign in until an administrator activates the account")
    data = {"username": user, "password": fresh if chosen is None else None}
    text = f"The password of {user} is now: {fresh}" if chosen is None else f"The password of {user} is changed."
    out.done(data, text)


def _running(config: Path | None, data_dir: Path | None, run_dir: Path | None) -> RunDir | None:
    """The run directory of the product that holds the data directory; None if it is stopped. Raises `CommandError`."""
    from actors.supervision.locks import holder
    from api.operator.run_dir import run_dir_of
    from config.files.paths import PathError

    data = data_of(config, data_dir)
    require_own_directory(data.path)
    pid = holder(data.lock)
    if pid is None:
        return None
    given = {"data_dir": data_dir, "run_dir": run_dir}
    settings = settings_of(config, {name: value for name, value in given.items() if value is not None})
    found = translated(PathError, lambda: run_dir_of(settings, pid))
    if found is None:
        raise CommandError(
            f"{data.path} is in use by process {pid}, and its run directory is not the default one",
            "If that is the product, name its run directory with --run-dir; if it is a command, wait until it ends",
        )
    return found


def _in_running(run: RunDir, user: str, chosen: str | None) -> tuple[str, bool]:
    """The new password, and whether the account is disabled. Raises `UnknownUser`, `CommandError`."""
    from api.operator.password_reset import NotReset, ask_reset

    done = translated(NotReset, lambda: ask_reset(run, user, chosen))
    return done.password, done.disabled


def _in_data(config: Path | None, data_dir: Path | None, user: str, chosen: str | None) -> tuple[str, bool]:
    """As `_in_running`, in the data of a stopped product."""
    from api.operator.offline import is_disabled, reset_password
    from api.security.new_passwords import WeakPassword
    from api.store import StoreError

    with locked_data(config, data_dir) as data:
        fresh = translated((StoreError, WeakPassword), lambda: reset_password(data, user, chosen))
        return fresh, translated(StoreError, lambda: is_disabled(data, user))
