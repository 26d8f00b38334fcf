"""Notifying the service manager: sd_notify(3) and its store of descriptors. Without `$NOTIFY_SOCKET` nothing is sent.

A message is a datagram of lines. A descriptor sent with `FDSTORE=1` is kept by the manager until it is removed or the
unit is stopped for good, and is passed to the next start of the service, however this one ended.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import time

from actors.log_lines import ThrottledLog

log = logging.getLogger(__name__)

_errors = ThrottledLog(log, "cannot notify the service manager", period=math.inf)
"""An unreachable manager is logged once, not again for each ping of the watchdog."""

DELIVERED_WITHIN = 2.0
"""Seconds that what must arrive waits for a busy manager: its queue may hold no more than ten messages."""


def notify(*lines: str) -> None:
    """Send `READY=1`, `STATUS=…`, `STOPPING=1`, `WATCHDOG=1` to the service manager, if there is one.

    What repeats (a status, the watchdog's) is left out when the manager is busy; the rest waits for it.
    """
    may_be_lost = all(line.startswith(("STATUS=", "WATCHDOG=")) for line in lines)
    _send("\n".join(lines), (), 0.0 if may_be_lost else DELIVERED_WITHIN)


def notify_reloading() -> None:
    """A reload has begun (with its time, as Type=notify-reload wants it); it ends with `READY=1`."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1_000}")


def store(name: str, descriptor: int, patience: float = DELIVERED_WITHIN) -> bool:
    """Have the manager keep a copy of the descriptor under this name; it keeps one that it has already once.

    Without `patience` it is False, and nothing was sent, when the manager is busy.
    """
    return _send(f"FDSTORE=1\nFDNAME={name}\nFDPOLL=0", (descriptor,), patience)


def unstore(name: str, patience: float = DELIVERED_WITHIN) -> bool:
    """The manager closes its copies of this name. `patience` is as for `store`."""
    return _send(f"FDSTOREREMOVE=1\nFDNAME={name}", (), patience)


def managed() -> bool:
    """True if a service manager receives notifications."""
    return bool(os.environ.get("NOTIFY_SOCKET"))


def _send(text: str, descriptors: tuple[int, ...], patience: float) -> bool:
    """Send one notification; a failure is logged and has no other consequence. False: the manager is busy."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return True
    if address.startswith("@"):
        address = f"\0{address[1:]}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.settimeout(patience)
            manager.connect(address)
            socket.send_fds(manager, [text.encode()], descriptors)
    except BlockingIOError:
        return False
    except OSError as error:
        _errors.error(error, logging.WARNING)
    else:
        _errors.recovered()
    return True


def watchdog_period() -> float | None:
    """Seconds between two `WATCHDOG=1`: half of what the manager allows (sd_watchdog_enabled(3)); None for never."""
    allowed = os.environ.get("WATCHDOG_USEC", "")
    meant = os.environ.get("WATCHDOG_PID", str(os.getpid()))
    if not allowed.isascii() or not allowed.isdigit() or meant != str(os.getpid()):
        return None
    return int(allowed) / 2_000_000
