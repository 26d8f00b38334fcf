"""Free ports for tests, alone or in blocks, each reserved for one test.

A port is taken below the kernel's ephemeral range, so that no outgoing connection gets it meanwhile, and is locked by
a file for as long as this process lives, so that other workers and other runs on the same machine stay away from it.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
from pathlib import Path

from config.net.ports import Ports

LOWEST, RANGES, HIGHEST = 10_240, 24_000, 32_000
"""Single ports are below `RANGES`: with a thousand of them in use, few blocks between would be free."""
_LOCKS = Path("/tmp") / f"pf-ports-{os.getuid()}"
_held: dict[int, int] = {}


def free_port(host: str = "127.0.0.1") -> int:
    """A port without a listener, which no other test gets."""
    _LOCKS.mkdir(mode=0o700, exist_ok=True)
    for _ in range(2_000):
        port = random.randrange(LOWEST, RANGES)
        if port not in _held and _lock(port):
            if _is_free(host, port):
                return port
            _unlock(port)
    raise RuntimeError(f"no free port from {LOWEST} to {RANGES}")


def free_ports(count: int, host: str = "127.0.0.1") -> Ports:
    """Consecutive ports without a listener, which no other test gets."""
    _LOCKS.mkdir(mode=0o700, exist_ok=True)
    begin = random.randrange(RANGES, HIGHEST - count)
    for first in (*range(begin, HIGHEST - count, count), *range(RANGES, begin, count)):
        found = Ports.of(first, first + count - 1)
        if _take(found, host):
            return found
    raise RuntimeError(f"no {count} consecutive free ports from {RANGES} to {HIGHEST}")


def _take(ports: Ports, host: str) -> bool:
    taken: list[int] = []
    for port in ports:
        if port not in _held and _lock(port):
            taken.append(port)
            if _is_free(host, port):
                continue
        for each in taken:
            _unlock(each)
        return False
    return True


def _lock(port: int) -> bool:
    descriptor = os.open(_LOCKS / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    _held[port] = descriptor
    return True


def _unlock(port: int) -> None:
    os.close(_held.pop(port))


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
