"""Commands that work on the data directory itself, since the product must be stopped for them, or can't be asked.

They are for whoever runs the product on its machine. What they do to the configuration is in `api/operator/offline.py`.
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
    from config.settings.settings import Settings

T = TypeVar("T")

STOPPED = (
    "This works while the product is stopped: systemctl stop proxyfleet, or Ctrl-C where it runs, or SIGTERM to that "
    "process"
)

ConfigOption = Annotated[Path | None, typer.Option("--config", envvar=f"{ENV_PREFIX}CONFIG", help="A TOML file.")]
DataOption = Annotated[Path | None, typer.Option("--data-dir", help="What must outlive the product.")]


def add_commands(app: typer.Typer) -> None:
    """Put them into `app`."""
    local_command(app, "reset-settings", rich_help_panel=RECOVER)(reset_settings)
    local_command(app, "rotate-signing-key", rich_help_panel=RECOVER)(rotate_signing_key)


def reset_settings(out: Output, config: ConfigOption = None, data_dir: DataOption = None) -> None:
    """Forget what was set through the API, while the product doesn't run; the configuration alone counts again."""
    from api.operator.offline import reset_settings as reset
    from api.store import StoreError

    with locked_data(config, data_dir) as data:
        forgotten = translated(StoreError, lambda: reset(data))
    text = f"Forgotten: {', '.join(forgotten)}." if forgotten else "Nothing was set through the API."
    out.data({"forgotten": forgotten}, lambda: out.message(text))


def rotate_signing_key(out: Output, config: ConfigOption = None, data_dir: DataOption = None) -> None:
    """Sign access tokens with a new key, while the product doesn't run; nobody is signed out."""
    from api.operator.offline import rotate_signing_key as rotate
    from api.store import StoreError
    from config.text.formatting import timestamp_text

    with locked_data(config, data_dir) as data:
        key_id, until = translated(StoreError, lambda: rotate(data))
    told = {"key_id": key_id, "previous_accepted_until": timestamp_text(until)}
    text = f"Tokens are signed with the key {key_id}; those of the older one are taken until {timestamp_text(until)}."
    out.data(told, lambda: out.message(text))


def verify_audit(
    out: Output,
    config: ConfigOption = None,
    data_dir: DataOption = None,
    head: Annotated[
        str | None, typer.Option(help="SEQ:HASH as an earlier verify printed it; it must be in the chain.")
    ] = None,
) -> None:
    """Follow the hash chain of the audit trail; ends with 1 and names the row when it is broken. Only reads."""
    from api.audit import Broken, verify
    from api.audit.trail import trail_file
    from api.store import StoreError

    noted = _noted(head)
    data = data_of(config, data_dir)
    refuse_newer(data.path)
    if not trail_file(data).is_file():
        raise CommandError(f"{data.path}: there is no audit trail here", "Name its directory with --data-dir")
    found = translated(StoreError, lambda: verify(data, noted))
    if isinstance(found, Broken):
        raise CommandError(f"row {found.seq} {found.error}")
    text = f"The audit trail is whole: {found.seq} rows.\nhead {found.seq}:{found.hash}"
    out.data({"seq": found.seq, "hash": found.hash}, lambda: out.line(text))


def _noted(text: str | None) -> Any:
    from api.audit import Head

    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,18}):([0-9a-f]{64})", text, re.ASCII)
    if match is None:
        raise CommandError("--head: must be a number, a colon and 64 hex digits", status=Status.USAGE)
    return Head(int(match[1]), match[2])


# --- what they have in common ---


def settings_of(config: Path | None, overrides: dict[str, Any]) -> Settings:
    """The operator's configuration. Raises `CommandError` with all that is wrong with it."""
    from config.settings.settings import ConfigError, load

    return translated(ConfigError, lambda: load(config, overrides))


def data_of(config: Path | None, data_dir: Path | None) -> DataDir:
    """Where the data directory is; it isn't looked at."""
    from config.files.paths import DataDir, default_data_dir

    settings = settings_of(config, {"data_dir": data_dir} if data_dir else {})
    return DataDir(settings.data_dir or default_data_dir())


@contextlib.contextmanager
def locked_data(config: Path | None, data_dir: Path | None) -> Iterator[DataDir]:
    """The data directory of a product that doesn't run, locked until the end of the block."""
    from api.backup.atomic_swap import RESTORING
    from config.files.data_format import NAME

    found = data_of(config, data_dir)
    refuse_newer(found.path)
    if not (found.store.is_dir() or (found.path / NAME).is_file() or (found.path / RESTORING).is_dir()):
        raise CommandError(f"{found.path}: there is no configuration here", "Name its directory with --data-dir")
    data = open_ours(found.path)
    held = take_lock(data.lock, "data directory", STOPPED)
    try:
        finish_restore(data)
        bring_up_to_date(data)
        yield data
    finally:
        os.close(held)


def open_ours(folder: Path) -> DataDir:
    """The data directory, made if need be. Raises `CommandError`."""
    from config.files.paths import PathError, open_data_dir

    refuse_others(folder)
    return translated(PathError, lambda: open_data_dir(folder))


def refuse_others(folder: Path) -> None:
    """Raise `CommandError` when it is somebody else's, root's own tasks included: what is made there would be ours."""
    owner = folder.stat().st_uid if folder.is_dir() else os.geteuid()
    if owner == os.geteuid():
        return
    name = _name_of(owner)
    who = f"runuser -u {name} -- proxyfleet …" if os.geteuid() == 0 else f"sudo -u {name} proxyfleet …"
    raise CommandError(
        f"{folder}: belongs to user {name}, not to us", f"Run it as the user that the product runs as: {who}"
    )


def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"'#{user}'"


def finish_restore(data: DataDir) -> None:
    """Complete a restore that was killed when it was decided already. The caller holds the lock. Raises
    `CommandError`."""
    from api.backup.atomic_swap import finish

    try:
        done = finish(data)
    except OSError as error:
        raise CommandError(f"{data.path}: a restore that was begun can't be completed: {error}") from error
    if done is not None:
        there = f"; what was there is in {done.kept}" if done.kept else ""
        typer.echo(f"note: a restore that had been interrupted is completed{there}", err=True)


def refuse_newer(folder: Path) -> None:
    """Raise `CommandError` when a newer release has written the data in `folder`; nothing of it is touched."""
    from api.store.migrations import DATA_FORMAT
    from config.files import data_format
    from config.files.paths import PathError

    translated(PathError, lambda: data_format.refuse_newer(folder, DATA_FORMAT))


def bring_up_to_date(data: DataDir) -> None:
    """Bring older data to the format of this program, with the lock held and before anything of them is read."""
    from api.store import migration, migrations
    from config.files.paths import PathError

    translated(PathError, lambda: migration.bring_up_to_date(data, migrations.STEPS))


def take_lock(file: Path, what: str, hint: str | None = None) -> int:
    """Lock it until we end. Raises `CommandError` that says who holds it."""
    from actors.supervision.locks import LockedError, lock

    try:
        return lock(file, what)
    except (LockedError, OSError) as error:
        raise CommandError(str(error), hint) from error


def translated(kind: type[Exception] | tuple[type[Exception], ...], call: Callable[[], T]) -> T:
    """What `call` gives; an exception of this kind becomes a `CommandError` of the same text."""
    try:
        return call()
    except kind as error:
        raise CommandError(str(error)) from error
