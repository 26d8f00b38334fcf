"""Upgrades of the data that are killed before each change of the disk: `python -m tests.kit.killed_store DIR SEED`.

For each point a copy of DIR is brought forward by a child that dies there; then it is checked: the data of the mark
must be whole. After that a second child is killed somewhere in the recovery, and a third may end. Prints how many
points found the `old` data, how many had been `decided`, and what was `wrong`.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from api.store import open_store
from api.store.migration import bring_up_to_date
from config.files.data_format import DataFormatError, read_mark
from config.files.paths import DataDir
from tests.kit.folders import FOLDERS
from tests.kit.later_release import STEPS

CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.chmod", "os.utime", "sqlite3.connect"}
OLD = {"a": ["z", "b"], "b": []}
NEW = {"a": ["b", "z", "tomorrow"], "b": ["tomorrow"]}


def die_before(points: int) -> Callable[[], None]:
    """This process dies before its change of the disk number `points` (syncs count, too); returns what counts one."""
    left = points
    sync: Callable[[int], None] = os.fsync

    def step() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if writes or event in CHANGES:
            step()

    def counted_sync(descriptor: int) -> None:
        step()
        sync(descriptor)

    os.fsync = counted_sync  # type: ignore[assignment]
    sys.addaudithook(watch)
    return step


def upgrade(data: DataDir, points: int | None) -> bool:
    """In a child; False when it was killed."""
    child = os.fork()
    if child == 0:
        if points is not None:
            die_before(points)
        bring_up_to_date(data, STEPS)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, -signal.SIGKILL):
        raise RuntimeError(f"the child ended with {status}")
    return status == 0


def proxies(folder: Path) -> dict[str, list[str]]:
    """As today's program reads them; from a copy, since opening may repair."""
    with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        store = open_store(DataDir(Path(copy)))
        try:
            return {each.id: each.body["tags"] for each in store.find("proxies")}
        finally:
            store.close()


def today(data: DataDir) -> str:
    """What today's program makes of it: `old` data that are whole, or `decided`: it is refused."""
    mark = read_mark(data.path)
    if mark is None or mark.format == 1:
        return "old" if proxies(data.path) == OLD else "damaged"
    try:
        bring_up_to_date(data, ())
    except DataFormatError:
        return "decided"
    return "taken for old"


def complete(data: DataDir) -> bool:
    """Is all of the new data there, and the old ones kept?"""
    with sqlite3.connect(data.audit / "audit.sqlite") as database:
        rows = database.execute("SELECT name FROM day").fetchall()
    database.close()
    left = sorted(path.name for path in data.path.iterdir())
    kept = proxies(data.path / "before-1") == OLD
    return proxies(data.path) == NEW and rows == [("2",)] and kept and left == ["audit", "before-1", "format", "store"]


def main(pristine: Path, seed: int) -> None:
    """All points."""
    dice = random.Random(seed)
    counts: dict[str, int] = {"old": 0, "decided": 0}
    wrong: list[str] = []
    for point in itertools.count():
        with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as folder:
            data = DataDir(Path(folder) / "data")
            shutil.copytree(pristine, data.path)
            ended = upgrade(data, point)
            if ended:
                break
            found = today(data)
            counts[found] = counts.get(found, 0) + 1
            upgrade(data, dice.randrange(point + 20))
            again = today(data)
            upgrade(data, None)
            if found not in ("old", "decided") or again not in ("old", "decided") or not complete(data):
                wrong.append(f"{point}: {found}, {again}")
    print(json.dumps({**counts, "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
