"""Where the files and sockets of one installation lie.

The data directory outlives the product, the run directory does not. Both are private (0700), and every file in
them is 0600: that is the only protection that the local sockets have, and the only one they need.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

IPC_PATH_MAX = 107
"""Bytes that a Unix socket path may have on Linux (`unix(7)`: 108 with the terminating NUL)."""

_LONGEST_SOCKET_NAME = len("/events.out")


class PathError(Exception):
    """A directory can't be used; the text says which one and why."""


@dataclass(frozen=True, slots=True)
class RunDir:
    """The run directory: sockets of the bus and the lock files. Its path is kept short enough for `ipc://`."""

    path: Path

    @property
    def mailbox(self) -> str:
        """ROUTER of the mailbox, bound by the supervisor."""
        return f"ipc://{self.path}/mailbox"

    @property
    def events_in(self) -> str:
        """XSUB where publishers connect, bound by the supervisor."""
        return f"ipc://{self.path}/events.in"

    @property
    def events_out(self) -> str:
        """XPUB where subscribers connect, bound by the supervisor."""
        return f"ipc://{self.path}/events.out"

    @property
    def records(self) -> str:
        """ROUTER of the records plane, bound by the log indexer."""
        return f"ipc://{self.path}/records"

    @property
    def lock(self) -> Path:
        """Locked by the supervisor for as long as it lives."""
        return self.path / "lock"


@dataclass(frozen=True, slots=True)
class DataDir:
    """The data directory: everything that must outlive the product."""

    path: Path

    @property
    def store(self) -> Path:
        """The folder of the configuration store, one file per collection."""
        return self.path / "store"

    @property
    def keys(self) -> Path:
        """The folder of key files: signing and sealing."""
        return self.path / "keys"

    @property
    def logs(self) -> Path:
        """The folder of the log indexer's day files."""
        return self.path / "logs"

    @property
    def metrics(self) -> Path:
        """The folder of the metrics collector."""
        return self.path / "metrics"

    @property
    def webhooks(self) -> Path:
        """The folder of the webhook sender's outbox."""
        return self.path / "webhooks"

    @property
    def lock(self) -> Path:
        """Locked by whoever may write here: the running product, or one offline command."""
        return self.path / "lock"

    @property
    def initial_password(self) -> Path:
        """Where the password of the first administrator is written."""
        return self.path / "initial-admin-password"


def private_directory(path: Path) -> Path:
    """Make `path` (and its parents) if need be and give it mode 0700.

    Raises `PathError` when that is impossible.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    except OSError as error:
        raise PathError(f"{path}: {error.strerror or error}") from error
    return path


def open_run_dir(path: Path) -> RunDir:
    """Make the run directory.

    Raises `PathError` when it can't be made or when its path is too long for the sockets in it.
    """
    absolute = path.absolute()
    length = len(os.fsencode(absolute)) + _LONGEST_SOCKET_NAME
    if length > IPC_PATH_MAX:
        raise PathError(f"{absolute}: the path is too long for sockets ({length} bytes of {IPC_PATH_MAX} allowed)")
    return RunDir(private_directory(absolute))


def open_data_dir(path: Path) -> DataDir:
    """Make the data directory. Raises `PathError` when it can't be made."""
    return DataDir(private_directory(path.absolute()))
