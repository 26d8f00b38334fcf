"""The time zone of this machine, which times of the other program are in."""

from __future__ import annotations

import os
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

UTC = "UTC"
_DATABASE = "zoneinfo/"


def local_zone() -> str:
    """The IANA name of the machine's time zone, UTC if it has none."""
    named = os.environ.get("TZ", "").removeprefix(":")
    link = str(Path("/etc/localtime").resolve())
    found = named or (link.partition(_DATABASE)[2] if _DATABASE in link else "")
    return found if found and good_zone(found) else UTC


def good_zone(name: str) -> bool:
    """Whether a time zone of this name exists."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
