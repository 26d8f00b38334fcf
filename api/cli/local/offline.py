"""Changes to the data directory of a stopped product and to the running one, and what local commands share.

The user that runs the product runs them on its machine. `api/operator` changes the data.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from actors.supervision.effective_settings import with_overrides
from actors.supervision.locks import LockedError, holder, lock
from api.audit.trail import Broken, Head, verify
from api.backup.atomic_swap import RESTORING, finish
from api.cli.commands import Given
from api.cli.errors import CommandError, Status
from api.cli.terminal import Output
from api.cli.terminal import password as ask_password
from api.objects.users.password_reset import UnknownUser
from api.operator import offline
from api.operator.running import NotReset, NotUpgraded, ask_reset, run_dir_of
from api.operator.running import upgrade as upgrade_running
from api.security.users import WeakPassword
from api.store import StoreError
from config.files.data_format import NAME, DataFormatError, mark_new, require_own_format
from config.files.paths import DataDir, PathError, RunDir, default_data_dir, open_data_dir
from config.settings.env import ENV_PREFIX
from config.settings.loading import load
from config.settings.runtime import InvalidOverride, Stored
from config.settings.settings import ConfigError, Settings
from config.text.formatting import timestamp_text

STOPPED = "Stop the product first: systemctl stop proxyfleet, or Ctrl-C where it runs, or SIGTERM to that process"

_FOR_PEOPLE = (ConfigError, DataFormatError, InvalidOverride, LockedError, NotReset, NotUpgraded, PathError, StoreError)
"""Exceptions whose texts are written for the user."""


@contextlib.contextmanager
def translated(*kinds: type[Exception]) -> Iterator[None]:
    """Make a `CommandError` of the same text of an exception that is for people, or of one of these kinds."""
    wanted: tuple[type[Exception], ...] = (*_FOR_PEOPLE, *kinds)
    try:
        yield
    except wanted as error:
        raise CommandError(str(error)) from error


@translated()
def reset_settings(out: Output, config: Path | None, data_dir: Path | None) -> None:
    """Remove all settings that the API has changed."""
    with locked_data(config, data_dir) as data:
        removed = offline.reset_settings(data)
    text = f"Forgotten: {', '.join(removed)}." if removed else "Nothing was set through the API."
    out.done({"forgotten": removed}, text)


@translated()
def rotate_signing_key(out: Output, config: Path | None, data_dir: Path | None) -> None:
    """Sign access tokens with a new key."""
    with locked_data(config, data_dir) as data:
        key_id, end = offline.rotate_signing_key(data)
    until = timestamp_text(end)
    text = f"Tokens are signed with the key {key_id}; those of the older key are valid until {until}."
    out.done({"key_id": key_id, "previous_accepted_until": until}, text)


@translated()
def verify_audit(out: Output, config: Path | None, data_dir: Path | None, head: str | None) -> None:
    """Verify the hash chain of the audit trail."""
    expected = _parsed_head(head)
    data = data_of(config, data_dir)
    require_own_format(data.path)
    if not data.fleet.is_file():
        raise CommandError(f"{data.path}: there is no audit trail here", "Name its directory with --data-dir")
    found = verify(data, expected)
    if isinstance(found, Broken):
        raise CommandError(f"row {found.seq} {found.error}")
    text = f"The audit trail is intact: {found.seq} rows.\nhead {found.seq}:{found.hash}"
    out.data({"seq": found.seq, "hash": found.hash}, lambda: out.line(text))


def _parsed_head(text: str | None) -> Head | None:
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,18}):([0-9a-f]{64})", text, re.ASCII)
    if match is None:
        raise CommandError("--head: must be a number, a colon and 64 hex digits", status=Status.USAGE)
    return Head(int(match[1]), match[2])


@translated()
def upgrade(out: Output, config: Path | None, data_dir: Path | None, run_dir: Path | None, timeout: float) -> None:
    """Replace the running product by the installed release."""
    settings = settings_of(config, data_dir=data_dir, run_dir=run_dir)
    before, after = upgrade_running(settings, timeout)
    text = (
        f"Upgraded from {before} to {after}; older connections drain for up to {settings.server.upgrade_drain:g} s, "
        "proxyfleet status counts them."
    )
    out.done({"before": before, "after": after}, text)


@translated(WeakPassword)
def reset_password(out: Output, user: str, config: Path | None, data_dir: Path | None, fields: Given) -> None:
    """Set a new password of a user, in the data of a stopped product, or by a request to the running one."""
    chosen = os.environ.get(f"{ENV_PREFIX}NEW_PASSWORD")
    if fields["ask"] or fields["password_stdin"]:
        chosen = ask_password(f"New password of {user}", fields["password_stdin"], twice=True)
    running = _running(config, data_dir, fields["run_dir"])
    try:
        if running is None:
            with locked_data(config, data_dir) as data:
                fresh = offline.reset_password(data, user, chosen)
                disabled = offline.is_disabled(data, user)
        else:
            done = ask_reset(running, user, chosen)
            fresh, disabled = done.password, done.disabled
    except UnknownUser as error:
        raise CommandError(str(error), status=Status.NOT_FOUND) from error
    if disabled:
        out.note(f"note: {user} is disabled, and can't sign in until an administrator activates the account")
    text = f"The password of {user} is now: {fresh}" if chosen is None else f"The password of {user} is changed."
    out.done({"username": user, "password": fresh if chosen is None else None}, text)


def _running(config: Path | None, data_dir: Path | None, run_dir: Path | None) -> RunDir | None:
    """The run directory of the product that holds the data directory; None if it is stopped. Raises `CommandError`."""
    data = data_of(config, data_dir)
    require_own_directory(data.path)
    pid = holder(data.lock)
    if pid is None:
        return None
    found = run_dir_of(settings_of(config, data_dir=data_dir, run_dir=run_dir), pid)
    if found is None:
        raise CommandError(
            f"{data.path} is in use by process {pid}, and its run directory is not the default one",
            "If that is the product, name its run directory with --run-dir; if it is a command, wait until it ends",
        )
    return found


# --- shared by local commands ---


def settings_of(config: Path | None, **overrides: Any) -> Settings:
    """The configuration of file, environment and `overrides` that are given. Raises `ConfigError` with all errors."""
    return load(config, {name: value for name, value in overrides.items() if value is not None})


def data_of(config: Path | None, data_dir: Path | None) -> DataDir:
    """The data directory by configuration; it need not exist. Raises `ConfigError`."""
    return DataDir(settings_of(config, data_dir=data_dir).data_dir or default_data_dir())


def peek(config: Path | None, data_dir: Path | None) -> tuple[Settings, DataDir, Stored, Settings]:
    """The configuration, its data directory, what the API overrides, and the effective settings. Only reads.

    Raises `CommandError`, and what is for people. Other users, who can't read the data, get the configuration alone.
    """
    settings = settings_of(config, data_dir=data_dir)
    data = DataDir(settings.data_dir or default_data_dir())
    if os.access(data.path, os.R_OK | os.X_OK):
        require_own_format(data.path)
    with translated(ValueError):
        stored = offline.peek_settings(data)
    return settings, data, stored, with_overrides(settings, stored)


@contextlib.contextmanager
def locked_data(config: Path | None, data_dir: Path | None) -> Iterator[DataDir]:
    """The data directory of a stopped product, locked until the end of the block. Raises `CommandError`."""
    found = data_of(config, data_dir)
    require_own_format(found.path)
    if not (found.fleet.is_file() or (found.path / NAME).is_file() or (found.path / RESTORING).is_dir()):
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
