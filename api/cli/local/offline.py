"""Commands that work on the data directory while the product is stopped, and what local commands share.

The user that runs the product runs them on its machine. `api/operator/offline.py` changes the data.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from api.cli.commands import RECOVER, local_command
from api.cli.errors import CommandError, Status
from api.cli.terminal.output import Output
from config.settings.env import ENV_PREFIX

if TYPE_CHECKING:  # the settings take time to import, and only these commands need them
    from config.files.paths import DataDir
    from config.settings.runtime import Stored
    from config.settings.settings import Settings

T = TypeVar("T")

STOPPED = "Stop the product first: systemctl stop proxyfleet, or Ctrl-C where it runs, or SIGTERM to that process"

ConfigOption = Annotated[Path | None, typer.Option("--config", envvar=f"{ENV_PREFIX}CONFIG", help="A TOML file.")]
DataOption = Annotated[Path | None, typer.Option("--data-dir", help="The directory of all lasting data.")]


def add_commands(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    local_command(app, "reset-settings", rich_help_panel=RECOVER)(reset_settings)
    local_command(app, "rotate-signing-key", rich_help_panel=RECOVER)(rotate_signing_key)


def reset_settings(out: Output, config: ConfigOption = None, data_dir: DataOption = None) -> None:
    """Remove all settings that the API has changed, while the product is stopped; the configuration applies again."""
    from api.operator.offline import reset_settings as reset
    from api.store import StoreError

    with locked_data(config, data_dir) as data:
        removed = translated(StoreError, lambda: reset(data))
    text = f"Forgotten: {', '.join(removed)}." if removed else "Nothing was set through the API."
    out.done({"forgotten": removed}, text)


def rotate_signing_key(out: Output, config: ConfigOption = None, data_dir: DataOption = None) -> None:
    """Sign access tokens with a new key, while the product is stopped; every sign-in stays valid."""
    from api.operator.offline import rotate_signing_key as rotate
    from api.store import StoreError
    from config.text.formatting import timestamp_text

    with locked_data(config, data_dir) as data:
        key_id, until = translated(StoreError, lambda: rotate(data))
    result = {"key_id": key_id, "previous_accepted_until": timestamp_text(until)}
    text = f"Tokens are signed with the key {key_id}; those of the older key are valid until {timestamp_text(until)}."
    out.done(result, text)


def verify_audit(
    out: Output,
    config: ConfigOption = None,
    data_dir: DataOption = None,
    head: Annotated[str | None, typer.Option(help="SEQ:HASH of an earlier verify, which must be in the chain.")] = None,
) -> None:
    """Verify the hash chain of the audit trail; ends with 1 and names the row where it is broken. Only reads."""
    from api.audit import Broken, verify
    from api.audit.trail import trail_file
    from api.store import StoreError

    expected = _parsed_head(head)
    data = data_of(config, data_dir)
    refuse_newer(data.path)
    if not trail_file(data).is_file():
        raise CommandError(f"{data.path}: there is no audit trail here", "Name its directory with --data-dir")
    found = translated(StoreError, lambda: verify(data, expected))
    if isinstance(found, Broken):
        raise CommandError(f"row {found.seq} {found.error}")
    text = f"The audit trail is intact: {found.seq} rows.\nhead {found.seq}:{found.hash}"
    out.data({"seq": found.seq, "hash": found.hash}, lambda: out.line(text))


def _parsed_head(text: str | None) -> Any:
    from api.audit import Head

    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,18}):([0-9a-f]{64})", text, re.ASCII)
    if match is None:
        raise CommandError("--head: must be a number, a colon and 64 hex digits", status=Status.USAGE)
    return Head(int(match[1]), match[2])


# --- shared by local commands ---


def settings_of(config: Path | None, overrides: dict[str, Any]) -> Settings:
    """The configuration of file, environment and `overrides`. Raises `CommandError` with all its errors."""
    from config.settings.loading import load
    from config.settings.settings import ConfigError

    return translated(ConfigError, lambda: load(config, overrides))


def data_of(config: Path | None, data_dir: Path | None) -> DataDir:
    """The data directory by configuration; it need not exist."""
    from config.files.paths import DataDir, default_data_dir

    settings = settings_of(config, {"data_dir": data_dir} if data_dir else {})
    return DataDir(settings.data_dir or default_data_dir())


def peek(config: Path | None, data_dir: Path | None) -> tuple[Settings, DataDir, Stored, Settings]:
    """The configuration, its data directory, what the API overrides, and the effective settings. Only reads.

    Raises `CommandError`. Other users, who can't read the data, get the configuration alone.
    """
    from actors.supervision.effective_settings import with_overrides
    from api.operator.offline import peek_settings
    from config.files.paths import DataDir, default_data_dir
    from config.settings.runtime import InvalidOverride

    settings = settings_of(config, {"data_dir": data_dir} if data_dir else {})
    data = DataDir(settings.data_dir or default_data_dir())
    if os.access(data.path, os.R_OK | os.X_OK):
        refuse_newer(data.path)
    stored = translated(ValueError, lambda: peek_settings(data))
    return settings, data, stored, translated(InvalidOverride, lambda: with_overrides(settings, stored))


@contextlib.contextmanager
def locked_data(config: Path | None, data_dir: Path | None) -> Iterator[DataDir]:
    """The data directory of a stopped product, locked until the end of the block. Raises `CommandError`."""
    from api.backup.atomic_swap import RESTORING
    from config.files.data_format import NAME

    found = data_of(config, data_dir)
    refuse_newer(found.path)
    if not (found.store.is_dir() or (found.path / NAME).is_file() or (found.path / RESTORING).is_dir()):
        raise CommandError(f"{found.path}: there is no configuration here", "Name its directory with --data-dir")
    data = open_own(found.path)
    held = take_lock(data.lock, "data directory", STOPPED)
    try:
        finish_restore(data)
        bring_up_to_date(data)
        yield data
    finally:
        os.close(held)


def open_own(folder: Path) -> DataDir:
    """The data directory, made if it is missing. Raises `CommandError` if another user owns it."""
    from config.files.paths import PathError, open_data_dir

    require_own_directory(folder)
    return translated(PathError, lambda: open_data_dir(folder))


def require_own_directory(folder: Path) -> None:
    """Raise `CommandError` if another user owns it, also for root: new files would belong to the wrong user."""
    owner = folder.stat().st_uid if folder.is_dir() else os.geteuid()
    if owner == os.geteuid():
        return
    name = _name_of(owner)
    command = f"runuser -u {name} -- proxyfleet …" if os.geteuid() == 0 else f"sudo -u {name} proxyfleet …"
    raise CommandError(f"{folder}: belongs to user {name}", f"Run the command as the user of the product: {command}")


def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"'#{user}'"


def finish_restore(data: DataDir) -> None:
    """Complete a restore that was killed after its decision. The caller holds the lock. Raises `CommandError`."""
    from api.backup.atomic_swap import finish

    try:
        done = finish(data)
    except OSError as error:
        raise CommandError(f"{data.path}: an interrupted restore can't be completed: {error}") from error
    if done is not None:
        earlier = f"; the earlier data are in {done.kept}" if done.kept else ""
        typer.echo(f"note: an interrupted restore has been completed{earlier}", err=True)


def refuse_newer(folder: Path) -> None:
    """Raise `CommandError` if a newer release has written the data in `folder`, which stay untouched."""
    from api.store.migrations import DATA_FORMAT
    from config.files import data_format
    from config.files.paths import PathError

    translated(PathError, lambda: data_format.refuse_newer(folder, DATA_FORMAT))


def bring_up_to_date(data: DataDir) -> None:
    """Migrate older data to the format of this release, under the lock and before any of them is read."""
    from api.store import migration, migrations
    from config.files.paths import PathError

    translated(PathError, lambda: migration.bring_up_to_date(data, migrations.STEPS))


def take_lock(file: Path, what: str, hint: str | None = None) -> int:
    """Lock a file until this process ends. Raises `CommandError` with the process that holds it."""
    from actors.supervision.locks import LockedError, lock

    try:
        return lock(file, what)
    except (LockedError, OSError) as error:
        raise CommandError(str(error), hint) from error


def translated(kind: type[Exception] | tuple[type[Exception], ...], call: Callable[[], T]) -> T:
    """The result of `call`; an exception of this kind becomes a `CommandError` of the same text."""
    try:
        return call()
    except kind as error:
        raise CommandError(str(error)) from error
