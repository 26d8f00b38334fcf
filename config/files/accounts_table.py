"""Where the table of accounts is: a file of one boot of the machine and of one folder.

The table is written without syncs, which a power cut may tear, and LMDB may crash on such a file. So its name has a
digest of the boot and the folder. A table of another boot, or one that was copied along with its folder, has another
name: no process opens it, and the API makes the table anew. Until that is done the former one, or an empty file in its
place, shows that there are accounts.

Every forwarding actor calls this. Here `os` stands in for `pathlib`, whose reading and searching would cost each of
them half a megabyte of codecs, buffers and patterns.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""A text that is another one after each boot (random(4)); of the host in a container."""

_LONGEST_ID = 64


def boot_id() -> bytes | None:
    """The id of this boot; None where a sandbox hides it, and then the table has to be synced."""
    try:
        descriptor = os.open(BOOT_ID, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, _LONGEST_ID).strip() or None
    except OSError:
        return None
    finally:
        os.close(descriptor)


def table_path(folder: Path) -> Path:
    """The table in this data directory, for this boot. A folder that is moved within its file system keeps it."""
    try:
        found = os.stat(folder)
        place = b"%d:%d" % (found.st_dev, found.st_ino)
    except OSError:
        place = b""  # there is no table in a folder that is not there
    digest = hashlib.sha256(b"%b:%b" % (boot_id() or b"", place)).hexdigest()
    return folder / f"accounts-{digest[:16]}.mdb"


def former_tables(table: Path) -> list[Path]:
    """The tables beside this one, which nothing may open, and the file of `announce`."""
    try:
        names = os.listdir(table.parent)
    except OSError:
        return []
    tables = (each for each in names if each.startswith("accounts") and each.endswith(".mdb"))
    return [table.with_name(each) for each in tables if each != table.name]


def lock_of(table: Path) -> Path:
    """The file that LMDB makes beside a table."""
    return table.with_name(f"{table.name}-lock")


def announce(folder: Path) -> None:
    """Show that there are accounts, though their table is still to be made. Raises `OSError`."""
    announcement(folder).touch(mode=0o600)


def announcement(folder: Path) -> Path:
    """The file of `announce`."""
    return folder / "accounts-awaited.mdb"
