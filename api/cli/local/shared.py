"""What local commands share: the configuration, the directories and their locks, errors that are for people.

`serve` becomes the supervisor, so nothing here loads models or the store.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from api.backup.atomic_swap import RESTORING, finish
from api.cli.errors import CommandError
from config import OperatorError
from config.files.durable import NAME, mark_new, require_own_format
from config.files.paths import DataDir, LockedError, default_data_dir, lock, open_data_dir
from config.settings.loading import load
from config.settings.settings import Settings

STOPPED = "Stop the product first: systemctl stop proxyfleet, or Ctrl-C where it runs, or SIGTERM to that process"


@contextlib.contextmanager
def translated(*kinds: type[Exception]) -> Iterator[None]:
    """Make a `CommandError` of the same text of an exception that is for people, or of one of these kinds."""
    wanted: tuple[type[Exception], ...] = (OperatorError, *kinds)
    try:
        yield
    except wanted as error:
        raise CommandError(str(error)) from error


def settings_of(config: Path | None, **overrides: Any) -> Settings:
    """The configuration of file, environment and `overrides` that are given. Raises `ConfigError` with all errors."""
    return load(config, {name: value for name, value in overrides.items() if value is not None})


def data_of(config: Path | None, data_dir: Path | None) -> DataDir:
    """The data directory by configuration; it need not exist. Raises `ConfigError`."""
    return DataDir(settings_of(config, data_dir=data_dir).data_dir or default_data_dir())


@contextlib.contextmanager
def locked_data(config: Path | None, data_dir: Path | None, may_be_new: bool = False) -> Iterator[DataDir]:
    """The data directory of a stopped product, locked until the end of the block. It `may_be_new`, and is made then.

    Raises `CommandError`.
    """
    found = data_of(config, data_dir)
    require_own_format(found.path)
    was_used = found.fleet.is_file() or (found.path / NAME).is_file() or (found.path / RESTORING).is_dir()
    if not (was_used or may_be_new):
        raise CommandError(f"{found.path}: there is no configuration here", "Name its directory with --data-dir")
    data = open_own(found.path)
    held = take_lock(data.lock, "data directory", STOPPED)
    try:
        finish_restore(data)
        mark_new(data.path)
        yield data
    finally:
        os.close(held)


def open_own(folder: Path) -> DataDir:
    """The data directory, made if it is missing. Raises `PathError`, and `CommandError` if another user owns it."""
    require_own_directory(folder)
    return open_data_dir(folder)


def require_own_directory(folder: Path) -> None:
    """Raise `CommandError` if another user owns it, also for root: new files would belong to the wrong user."""
    owner = folder.stat().st_uid if folder.is_dir() else os.geteuid()
    if owner == os.geteuid():
        return
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = f"'#{owner}'"
    command = f"runuser -u {name} -- proxyfleet …" if os.geteuid() == 0 else f"sudo -u {name} proxyfleet …"
    raise CommandError(f"{folder}: belongs to user {name}", f"Run the command as the user of the product: {command}")


def finish_restore(data: DataDir) -> None:
    """Complete a restore that was killed after its decision. The caller holds the lock. Raises `CommandError`."""
    try:
        done = finish(data)
    except OSError as error:
        raise CommandError(f"{data.path}: an interrupted restore can't be completed: {error}") from error
    if done is not None:
        earlier = f"; the earlier data are in {done.kept}" if done.kept else ""
        typer.echo(f"note: an interrupted restore has been completed{earlier}", err=True)


def take_lock(file: Path, what: str, hint: str | None = None) -> int:
    """Lock a file until this process ends. Raises `CommandError` with the process that holds it."""
    try:
        return lock(file, what)
    except (LockedError, OSError) as error:
        raise CommandError(str(error), hint) from error
