"""A node follows the ledger: what is committed anywhere is in its replica soon, and its effects are made.

A doorbell says that there is a commit (`actors.cluster.doorbell`). What came while the replica took others is taken
with them in one step. The doorbell is proven, not assumed: each heartbeat rings at the node's own, and one that was
silent is connected anew; meanwhile the ledger is asked each second. So a pooler in transaction mode, where listening
never works, costs a second. The heartbeat has the head, too.

A node *serves* a commit when its effects are made: then the supervisor and the actors have it.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from actors.cluster.doorbell import Doorbell
from actors.cluster.errors import DatabaseError
from api.cluster.following.heartbeat import Beat
from api.cluster.following.rereading import AwaitsFullNode
from api.cluster.shared_ledger import LedgerUnavailable, Rewound
from api.engine.commit import Engine
from api.engine.ledger import TooFarBehind
from api.engine.levels import FIRST, LEVELS
from api.periodic_work import LoopThread
from api.store import HistoryPruned, StoreError
from api.store.fleet_file import translated
from config.files.durable import replace_file

log = logging.getLogger(__name__)

CHANNEL = "proxyfleet"
"""Where commits announce their numbers."""
SILENCE = 5.0
"""Seconds after which a doorbell that doesn't ring is not relied on."""
POLL = 1.0
"""Seconds between two looks at the ledger meanwhile, and between two tries to connect the doorbell."""


END = 0.5
"""Seconds that the end waits for a thread, which may wait for the database."""


class ReplicaLevel:
    """The level of a replica. A program with a later one reads anew what the program before it could not read."""

    def __init__(self, file: Path, level: int = LEVELS.level) -> None:
        """`file` has that of the program that has read it last. Raises `StoreError`."""
        self._file, self._level = file, level
        with translated(file):
            known = int(file.read_text()) if file.exists() else FIRST
        self.is_behind = known < level

    def note(self) -> None:
        """Everything was read anew. Raises `StoreError`."""
        with translated(self._file):
            replace_file(self._file, str(self._level).encode())
        self.is_behind = False


def own_channel(node: str) -> str:
    """Where the heartbeat of a node rings."""
    return f"{CHANNEL}_{node}"


class Follower:
    """Thread-safe. Two threads from `start` until `close`: one listens, one takes what there is."""

    def __init__(
        self,
        engine: Engine,
        doorbell: Doorbell,
        own: str,
        prove: Callable[[], object],
        reread: Callable[[], object],
        level: ReplicaLevel,
        others: Mapping[str, Callable[[], object]] | None = None,
    ) -> None:
        """`own` is the channel of this node's heartbeat, and `prove` has it ring.

        `reread` reads everything anew, and raises `StoreError`. `others` are called when their channels ring.
        """
        self._others = dict(others or {})
        self._engine = engine
        self._doorbell = doorbell
        self._own = own
        self._prove = prove
        self._reread = reread
        self._level = level
        self._changed = threading.Condition()
        self._wanted: int | None = None
        """The commit that is known to be there; None for all there are, which are to be asked for."""
        self._rung = True
        self._served = 0
        """The last commit whose effects are made here."""
        self._expected: float | None = time.monotonic()
        """Since when the own doorbell should have rung."""
        self._rings: bool | None = None
        self._problem = ""
        """Why this node does not follow; empty while it does."""
        self._threads = LoopThread("doorbell", self._listen, END), LoopThread("follower", self._follow, END)

    @property
    def doorbell(self) -> Literal["heard", "polling"]:
        """Whether it rings, or the ledger is asked."""
        return "heard" if self._rings else "polling"

    def ring(self, number: int | None = None) -> None:
        """There is this commit; None: there may be any."""
        with self._changed:
            if number is None or self._wanted is None:
                self._wanted = None
            else:
                self._wanted = max(self._wanted, number)
            self._rung = True
            self._changed.notify_all()

    def wait_for(self, number: int, seconds: float) -> bool:
        """Wait until this node serves the commit with this number; whether it does."""
        if self._served < number:
            self.ring(number)
        with self._changed:
            return self._changed.wait_for(lambda: self._served >= number, seconds)

    def heartbeat_fields(self) -> dict[str, object]:
        """The heartbeat is about to ring."""
        if self._expected is None:
            self._expected = time.monotonic()
        return {}

    def on_heartbeat(self, beat: Beat) -> None:
        """What the heartbeat has learnt."""
        if not beat.followed:
            self.ring()
        elif beat.head > self._served:
            self.ring(beat.head)

    def start(self) -> None:
        """Begin."""
        for each in self._threads:
            each.start()

    def close(self) -> None:
        """End, after the step that is under way, unless that takes long."""
        for each in self._threads:
            each.end()
        self._doorbell.wake()
        self.ring()
        for each in self._threads:
            each.close()
        if not self._threads[0].is_alive:  # else it waits for the database, and ends after that
            self._doorbell.close()

    # --- listening ---

    def _listen(self) -> float:
        try:
            found = self._doorbell.wait(POLL if self._expected else SILENCE, self._connected)
        except DatabaseError as error:
            self._set_ringing(False, str(error))
            return POLL * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
        if self._own in found:
            self._expected = None
            self._set_ringing(True)
        if CHANNEL in found:
            self.ring(_number(found[CHANNEL]))
        for channel in self._others.keys() & found.keys():
            self._others[channel]()
        expected = self._expected
        if expected is not None and time.monotonic() - expected > SILENCE:
            self._set_ringing(False, f"silent for {SILENCE:g} s")
            self._doorbell.disconnect()
            self._expected = None
        return 0.0

    def _connected(self) -> None:
        """What was announced before is asked for."""
        self.ring()
        for each in self._others.values():
            each()
        self._prove()

    def _set_ringing(self, rings: bool, why: str = "") -> None:
        if rings == self._rings:
            return
        self._rings = rings
        if rings:
            log.info("the database announces commits")
        else:
            log.warning("the database does not announce commits: it is asked each second; %s", why)
            self.ring()

    # --- following ---

    def _follow(self) -> float:
        with self._changed:
            if not self._changed.wait_for(lambda: self._rung, None if self._rings else POLL):
                self._wanted = None
            wanted, self._wanted, self._rung = self._wanted, 0, False
        if not self._threads[1].has_ended:
            self._catch_up(wanted)
        return 0.0

    def _catch_up(self, wanted: int | None) -> None:
        try:
            try:
                if self._level.is_behind:
                    self._reread()
                    self._level.note()
                self._engine.catch_up(wanted)
            except (Rewound, HistoryPruned, TooFarBehind) as error:
                log.warning("everything is read anew: %s", error)
                self._reread()
        except StoreError as error:
            self._note(error)
        except Exception:  # of an effect; what it belongs to is said by who made it
            log.exception("what follows from a commit of another node has failed")
        else:
            self._note(None)
        if self._threads[1].has_ended:  # then the store may be closed
            return
        number = self._engine.settled_number()
        with self._changed:
            self._served = number
            self._changed.notify_all()

    def _note(self, error: StoreError | None) -> None:
        """Log it once. An outage is not this node's problem."""
        text = "" if error is None or isinstance(error, LedgerUnavailable) else str(error)
        if text and text != self._problem:
            level = logging.INFO if isinstance(error, AwaitsFullNode) else logging.ERROR
            log.log(level, "this node can't follow the ledger: %s", text)
        self._problem = text


def _number(payload: str) -> int | None:
    """Anyone with a role in the database can announce anything: as many digits as a number has, or it is none."""
    return int(payload) if payload.isdecimal() and len(payload) < 19 else None
