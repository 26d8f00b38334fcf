"""The heartbeat of a node: each 4 s one statement says that it is there, and what it has, and learns what there is.

What else goes with it is not known here: `fields` add to what is said, `reports` to the problems of the node, which
others see, and `subscribers` get the reply. A later migration replaces the function `heartbeat` of the schema by one
that takes and returns more.
"""

from __future__ import annotations

import json
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

from actors.cluster.database import REPORT, Database
from actors.cluster.errors import DatabaseError, DatabaseUnusable
from api.engine.levels import LEVELS
from api.periodic_work import LoopThread
from config import VERSION
from config.files.paths import DataDir

log = logging.getLogger(__name__)

PERIOD = 4.0
"""Seconds between two."""
RETRY = 1.0
"""Seconds between two tries, which cost nothing while the database is known to be away."""
END = 0.5
"""Seconds that the end waits for one that is under way."""
_BEAT = "SELECT proxyfleet.heartbeat(%s, %s)"
_MACHINE = Path("/proc/sys/kernel/random/boot_id")

Fields = Callable[[], Mapping[str, Any]]
"""Called before each heartbeat: JSON-like values by their names."""


class OutdatedProgram(DatabaseUnusable):
    """The schema has lost something that this release may need."""


class SecondInstallation(DatabaseUnusable):
    """Another installation has the id of this node: one is a copy of the other."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The reply: the last commit, whether that of this node is in the ledger, and the database's time (Unix seconds).

    `reply` has all of it, also what later migrations have added.
    """

    head: int
    followed: bool
    now: float
    reply: Mapping[str, Any]


class Heartbeat(LoopThread):
    """That of one node. Thread-safe."""

    def __init__(
        self,
        database: Database,
        node: str,
        boot: str,
        replica: Callable[[], tuple[int, UUID | None]],
        level: int = LEVELS.level,
    ) -> None:
        """`boot` is which installation this is (`installation`), `replica` has this last commit and stamp.

        `level` is that of the program (`api.engine.levels`).
        """
        super().__init__("heartbeat", self._beat, END)
        self._level = level
        self._database = database
        self._node = node
        self._boot = boot
        self._replica = replica
        self._began = time.monotonic()
        self._beating = threading.Lock()
        self._problem = ""
        self.subscribers: list[Callable[[Beat], object]] = []
        self.fields: list[Fields] = []
        self.reports: list[Fields] = []
        self.refused: list[Callable[[str], object]] = []
        """Called with the reason when this installation is refused, and with an empty one when it no longer is."""
        self.unusable: list[Callable[[str], object]] = []
        """Called with the reason each time that the database takes nothing of this node until something is done."""

    def problems(self) -> dict[str, Any]:
        """What is wrong with this node, as the others see it."""
        return merged(self.reports)

    def beat_now(self) -> Beat:
        """Make one, and have the followers know. Raises `DatabaseError`."""
        with self._beating:
            commit, stamp = self._replica()  # `settings` is for a schema that was not brought forward yet
            beat = {
                "boot": self._boot, "up_for": time.monotonic() - self._began, "version": VERSION, "level": self._level,
                "commit": commit, "stamp": stamp and str(stamp), "clock_offset": self._database.clock_offset,
                "problems": self.problems(), "settings": {}, **merged(self.fields),
            }  # fmt: skip
            with self._database.session(even_if_refused=True) as session:
                began = time.monotonic()
                ((reply,),) = session.transaction(_BEAT, [self._node, json.dumps(beat)], REPORT)
                ended = time.monotonic()
            if reply is None:
                raise DatabaseUnusable("the database holds no fleet")
            self._database.note_time(reply["now"], began, ended)
            self._refuse_outdated(reply.get("outdated"))
            self._refuse(reply["refused"])
            found = Beat(reply["head"], reply["followed"], reply["now"], reply)
        for each in self.subscribers:
            each(found)
        return found

    def _refuse_outdated(self, version: str | None) -> None:
        text = "" if version is None else (
            f"the release {version} has removed from the database what this one, {VERSION}, may need: upgrade this node"
        )  # fmt: skip
        self._database.refuse(text)
        if text:
            raise OutdatedProgram(text)

    def _refuse(self, since: float | None) -> None:
        text = "" if since is None else (
            f"the id {self._node} is that of another installation, which runs since"
            f" {datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M:%S} UTC: one is a copy of the other"
        )  # fmt: skip
        for each in self.refused:
            each(text)
        if text:
            raise SecondInstallation(text)

    def _beat(self) -> float:
        pause = PERIOD
        try:
            self.beat_now()
        except DatabaseError as error:
            pause = PERIOD if isinstance(error, DatabaseUnusable) else RETRY
            self._note(str(error))
            for each in self.unusable if isinstance(error, DatabaseUnusable) else ():
                each(str(error))
        except Exception as error:  # noqa: BLE001 - of what goes with it; without a heartbeat the node is cut off
            self._note(f"{type(error).__name__}: {error}", error)
        else:
            self._note("")
        return pause * random.uniform(1.0, 1.05)  # noqa: S311 - no secret

    def _note(self, problem: str, cause: Exception | None = None) -> None:
        """Log it once. What the end interrupts is no problem."""
        if problem and problem != self._problem and not self.has_ended:
            log.error("the heartbeat of this node fails: %s", problem, exc_info=cause)
        elif self._problem and not problem:
            log.info("the database has the heartbeat of this node again")
        self._problem = problem


def installation(data: DataDir) -> str:
    """Which one this is: the same after a restart, another one for a copy of it, there or on another machine.

    One that is alone for 10 s in any case is the same after its machine was started again, too.
    """
    found = os.stat(data.cluster)
    return sha256(f"{_MACHINE.read_text()} {found.st_dev} {found.st_ino}".encode()).hexdigest()[:16]


def merged(sources: Sequence[Fields]) -> dict[str, Any]:
    """What all of them give."""
    return {name: value for each in sources for name, value in each().items()}
