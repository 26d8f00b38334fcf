"""Changes of the configuration that are killed before each step: `python -m tests.kit.killed_history DIR`.

A child makes the changes of `CHANGES` on a copy of DIR, and dies before its change of the disk, or its statement of
SQL that reads nothing, number 0, 1, 2 and so on. After each, the engine is opened as at a start. Then it
must hold the state after some of the changes, all of it, the history as many revisions, and each of these the state
of then. Prints how often each number of changes was `made`, and what was `wrong`."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api.engine.commit import Engine
from api.history.reader import Reader, RevisionSelection
from api.history.recorder import Limits
from api.store import NotStored, Write
from config.files.paths import DataDir
from config.files.secret_box import secret_box_of
from config.model.fleet_accounts import FleetAccount
from tests.kit.folders import FOLDERS
from tests.kit.ledgers import opened_engine

CHANGES_OF_DISK = {
    *("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.chmod", "os.utime"),
    "sqlite3.connect",
}
"""Audited events."""

State = dict[str, Any]
"""Bodies by `collection/id`."""


@dataclass
class Opened:
    """The engine as a start opens it."""

    engine: Engine
    reader: Reader

    def state(self) -> State:
        """What is stored now."""
        found = {f"proxies/{each.id}": each.body for each in self.engine.find("proxies")}
        return found | {f"accounts/{each.id}": each.body for each in self.engine.find("accounts")}

    def state_after(self, number: int) -> State:
        """What was stored after a revision."""
        found, last = self.state(), self.reader.newest
        for key in self.reader.keys(number, last):
            before = self.reader.between(number, last, key).before
            found.pop("/".join(key), None)
            if before is not None:
                found["/".join(key)] = dict(before)
        return found


@contextmanager
def opened(data: DataDir) -> Iterator[Opened]:
    seal = secret_box_of(data)
    with closing(opened_engine(data, seal)) as engine, closing(Reader(data.fleet, seal)) as reader:
        yield Opened(engine, reader)


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
        if writes or event in CHANGES_OF_DISK:
            step()

    def counted_sync(descriptor: int) -> None:
        step()
        sync(descriptor)

    os.fsync = counted_sync  # type: ignore[assignment]
    sys.addaudithook(watch)
    return step


def proxy(identifier: str, text: str) -> dict[str, Any]:
    return {"id": identifier, "name": identifier, "description": text}


def account(identifier: str, text: str) -> dict[str, Any]:
    made = FleetAccount(id=identifier, username=identifier, created_at=1.0, updated_at=1.0, metadata={"text": text})
    return made.model_dump(mode="json")


def _together(stores: Opened) -> None:
    """As an import does it."""
    accounts = [Write("accounts", each, account(each, "together")) for each in ("a", "b", "c")]
    proxies = [Write("proxies", each, proxy(each, "together")) for each in ("p", "q")]
    stores.engine.commit([*accounts, *proxies, Write("webhooks", "w", {"id": "w", "name": "w"})])


CHANGES: tuple[Callable[[Opened], object], ...] = (
    lambda stores: stores.engine.put("proxies", proxy("p", "one")),
    lambda stores: stores.engine.commit([Write("accounts", each, account(each, "one")) for each in ("a", "b")]),
    lambda stores: stores.engine.commit([Write("proxies", "p", proxy("p", "two")), Write("webhooks", "absent", None)]),
    _together,
    lambda stores: stores.engine.delete("proxies", "p"),
    lambda stores: stores.engine.delete("accounts", "a"),
    lambda stores: stores.engine.put("proxies", proxy("p", "again")),
    lambda stores: stores.engine.history.prune(Limits(revisions=100), time.time()),
)

REFUSED = 2
"""The change that the store refuses, after it was recorded."""


def change(data: DataDir, point: int) -> bool:
    """In a child; False when it was killed."""
    child = os.fork()
    if child == 0:
        with opened(data) as stores:
            step = die_before(point)
            stores.engine.file.database.set_trace_callback(lambda sql: None if sql.startswith("SELECT") else step())
            _change_all(stores)
            os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, -signal.SIGKILL):
        raise RuntimeError(f"the child ended with {status}")
    return status == 0


def _change_all(stores: Opened, states: list[State] | None = None) -> None:
    for number, each in enumerate(CHANGES):
        if number == REFUSED:
            with suppress(NotStored):
                each(stores)
            continue
        each(stores)
        if states is not None and stores.reader.newest > len(states) - 1:
            states.append(stores.state())


def expected(pristine: DataDir) -> list[State]:
    """The states after each of the changes, without a kill."""
    with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as folder:
        data = DataDir(Path(folder) / "data")
        shutil.copytree(pristine.path, data.path)
        with opened(data) as stores:
            states = [stores.state()]
            _change_all(stores, states)
    return states


def problem(stores: Opened, states: list[State]) -> str | None:
    """What is wrong with the stores and the history, if anything is."""
    made = stores.reader.newest
    numbers = [each.number for each in stores.reader.page(RevisionSelection(), 100)[0]]
    if numbers != list(range(made, 0, -1)):
        return f"revisions {numbers}"
    if stores.state() != states[made]:
        return f"{made} revisions, but the state is that after {states.index(stores.state())}"
    for number in range(made + 1):
        if stores.state_after(number) != states[number]:
            return f"the state after {number} of {made} is wrong"
    return None


def main(pristine: DataDir) -> None:
    """All points."""
    states = expected(pristine)
    made: Counter[int] = Counter()
    wrong: list[str] = []
    for point in itertools.count():
        with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as folder:
            data = DataDir(Path(folder) / "data")
            shutil.copytree(pristine.path, data.path)
            if change(data, point):
                break
            with opened(data) as stores:
                found, last = problem(stores, states), stores.reader.newest
                made[last] += 1
                stores.engine.put("webhooks", {"id": "next", "name": "next"})
                if stores.reader.newest != last + 1:
                    found = f"the number after {last} is {stores.reader.newest}"
            if found is not None:
                wrong.append(f"{point}: {found}")
    print(json.dumps({"made": dict(sorted(made.items())), "all": len(states) - 1, "wrong": wrong}))


if __name__ == "__main__":
    main(DataDir(Path(sys.argv[1])))
