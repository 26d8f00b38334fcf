"""Where the table of accounts is: a file of one boot of the machine and of one folder.

The table is written without syncs, which a power cut may tear, and LMDB may crash on such a file. So its name has a
digest of the boot and the folder. A table of another boot, or one that was copied along with its folder, has another
name: no process opens it, and the API makes the table anew. Until that is done the former one, or an empty file in its
place, shows that there are accounts.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""A text that is another one after each boot (random(4)); of the host in a container."""

_TABLES = "accounts*.mdb"


def boot_id() -> str | None:
    """The id of this boot; None where a sandbox hides it, and then the table has to be synced."""
    try:
        return BOOT_ID.read_text("ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def table_path(folder: Path) -> Path:
    """The table in this data directory, for this boot. A folder that is moved within its file system keeps it."""
    try:
        found = folder.stat()
        place = f"{found.st_dev}:{found.st_ino}"
    except OSError:
        place = ""  # there is no table in a folder that is not there
    digest = hashlib.sha256(f"{boot_id()}:{place}".encode()).hexdigest()
    return folder / f"accounts-{digest[:16]}.mdb"


def former_tables(table: Path) -> list[Path]:
    """The tables beside this one, which nothing may open, and the file of `announce`."""
    return [each for each in table.parent.glob(_TABLES) if each != table]


def lock_of(table: Path) -> Path:
    """The file that LMDB makes beside a table."""
    return table.with_name(f"{table.name}-lock")


def announce(folder: Path) -> None:
    """Show that there are accounts, though their table is still to be made. Raises `OSError`."""
    announcement(folder).touch(mode=0o600)


def announcement(folder: Path) -> Path:
    """The file of `announce`."""
    return folder / "accounts-awaited.mdb"
