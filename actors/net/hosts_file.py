"""The names that this machine knows by itself: those of its hosts file (hosts(5)), and `localhost` (RFC 6761 6.3).

They are resolved without a thread, so that no silent name server keeps them waiting. The file is read again when it
has changed, which is checked at most once a second.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from actors.throttled_log import ThrottledLog
from config.net.ip import is_address

HOSTS_FILE = Path("/etc/hosts")
CHECKED_EVERY = 1.0
SIZE_MAX = 256 * 1024
"""Octets of a file that is read here; names of a larger one are left to the system's resolver."""
LOOPBACK = ("127.0.0.1", "::1")

log = logging.getLogger(__name__)

_Stamp = tuple[int, int, int]


class HostsFile:
    """`find` returns the addresses of a name. `now` is the loop's clock."""

    def __init__(self, path: Path = HOSTS_FILE) -> None:
        self._path = path
        self._names: dict[str, tuple[str, ...]] = {}
        self._stamp: _Stamp | None = None
        self._check_at = float("-inf")
        self._unreadable = ThrottledLog(log, f"cannot read {path}")

    def find(self, name: str, now: float) -> tuple[str, ...] | None:
        """The addresses of `name` in the order of the file, or None when it isn't in it."""
        if now >= self._check_at:
            self._check_at = now + CHECKED_EVERY
            self._refresh()
        return self._names.get(name.lower().rstrip("."))

    def _refresh(self) -> None:
        try:
            stamp = _stamp(self._path)
            if stamp != self._stamp:
                self._names = _read(self._path) if stamp is not None and stamp[1] <= SIZE_MAX else {}
                self._stamp = stamp
            self._unreadable.recovered()
        except OSError as error:
            self._unreadable.error(error.strerror or error, logging.WARNING)


def _stamp(path: Path) -> _Stamp | None:
    """What changes with the file; None when there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> dict[str, tuple[str, ...]]:
    names: dict[str, dict[str, None]] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        address, *known_as = line.partition("#")[0].split() or ("",)
        for name in known_as if is_address(address) else ():
            names.setdefault(name.lower().rstrip("."), {})[address] = None
    return {name: tuple(addresses) for name, addresses in names.items()}
