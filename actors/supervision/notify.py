"""Telling systemd how it goes: sd_notify(3) in a few lines. Without `$NOTIFY_SOCKET` nothing is sent."""

from __future__ import annotations

import logging
import os
import socket

log = logging.getLogger(__name__)


def notify(*lines: str) -> None:
    """Send `READY=1`, `STATUS=…`, `STOPPING=1`, `WATCHDOG=1` to the service manager, if there is one."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = f"\0{address[1:]}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as manager:
            manager.sendto("\n".join(lines).encode(), address)
    except OSError as error:
        log.warning("the service manager can't be told: %s", error)


def watchdog_period() -> float | None:
    """Seconds between two `WATCHDOG=1`: half of what the manager allows (sd_watchdog_enabled(3)); None for never."""
    allowed = os.environ.get("WATCHDOG_USEC", "")
    meant = os.environ.get("WATCHDOG_PID", str(os.getpid()))
    if not allowed.isascii() or not allowed.isdigit() or meant != str(os.getpid()):
        return None
    return int(allowed) / 2_000_000
