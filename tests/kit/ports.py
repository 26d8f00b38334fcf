"""Free ports for tests, alone or in blocks, each reserved for one test.

A port is taken below the kernel's ephemeral range, so that no outgoing connection gets it meanwhile, and is locked in
a file for as long as this process lives, so that other workers and other runs on the same machine stay away from it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import socket
from functools import cache
from pathlib import Path

from config.net.names import Ports

LOWEST, RANGES, LARGE_RANGES, HIGHEST = 10_240, 21_000, 24_000, 32_000
"""Single ports are below `RANGES`, blocks of `LARGE` ports and more from `LARGE_RANGES` on: with a thousand of the
smaller ones in use, few blocks between would be free."""
LARGE = 100
_LOCKS = Path("/tmp") / f"pf-ports-{os.getuid()}.locks"
_locked: set[int] = set()
"""The locks of a file are those of a process (fcntl_locking(2)), which would get each of its own again."""


def free_port(host: str = "127.0.0.1") -> int:
    """A port without a listener, which no other test gets."""
    for _ in range(2_000):
        port = random.randrange(LOWEST, RANGES)
        if port not in _locked and _lock(port):
            if _is_free(host, port):
                return port
            _unlock(port)
    raise RuntimeError(f"no free port from {LOWEST} to {RANGES}")


def free_ports(count: int, host: str = "127.0.0.1") -> Ports:
    """Consecutive ports without a listener, which no other test gets."""
    lowest, highest = (RANGES, LARGE_RANGES) if count < LARGE else (LARGE_RANGES, HIGHEST)
    first = lowest
    while first + count <= highest:
        found = Ports.of(first, first + count - 1)
        taken = _first_taken(found, host)
        if taken is None:
            return found
        first = taken + 1
    raise RuntimeError(f"no {count} consecutive free ports from {lowest} to {highest}")


def _first_taken(ports: Ports, host: str) -> int | None:
    """The first of them that is in use; when none is, they are reserved."""
    reserved: list[int] = []
    for port in ports:
        if port not in _locked and _lock(port):
            reserved.append(port)
            if _is_free(host, port):
                continue
        for each in reserved:
            _unlock(each)
        return port
    return None


def _lock(port: int) -> bool:
    try:
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        return False
    _locked.add(port)
    return True


def _unlock(port: int) -> None:
    fcntl.lockf(_locks(), fcntl.LOCK_UN, 1, port)
    _locked.discard(port)


@cache
def _locks() -> int:
    """The file, once for the process: to close any descriptor of it gives up all locks."""
    return os.open(_LOCKS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
