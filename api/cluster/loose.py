"""Brings loose objects (`api.engine.loose`) to the database and back: sign-ins, credentials, locks of sign-ins.

They take no lock of the fleet and are in no commit. Each node writes a stream of its own: its changes are numbered
under the lock of its own row, so that their numbers appear in their order, and a reader that knows the last number of
each node misses nothing, also when rows commit out of order, or a transaction goes on that was given up here. A
database that was restored has lower numbers: then all of it is read anew, and all that this node knows is sent again.

A request sends what it has changed itself, with what others have changed while it waited for its turn. So it waits for
no other thread; and a second at most. What it can't send, and all changes in an outage, a thread sends later: until
then they are in the file. That thread reads, too, each `POLL` without notifications, and what it reads never takes the
place of what was changed here meanwhile. Nothing is sent while it reads: else it would not know whether what it has
read came before that. Changes are announced at most each `QUIET`, since a notification takes a lock of the whole
instance.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from actors.cluster.database import REPORT, SIGN_IN, Database
from actors.cluster.errors import DatabaseError
from api.cluster.following.heartbeat import Beat
from api.engine.loose import CREDENTIALS, HOLDERS, SIGN_INS, LooseObject, LooseObjects, PendingChange
from api.store import StoreError
from api.store.accounts.columns import columns
from api.store.fleet_store import Key

log = logging.getLogger(__name__)

CHANNEL = "proxyfleet_loose"
"""Where changes are announced."""
QUIET = 0.2
"""Seconds between two announcements of one node."""
POLL = 1.0
"""Seconds between two reads; and until what has failed is tried again, unless the database is known to be away."""
LATER = 0.2
"""Seconds until it is tried again."""
AT_ONCE = 500
"""Objects of one statement."""
FORGETTING = 3600.0
"""Seconds between two removals of what is over."""

_WRITE = "SELECT * FROM proxyfleet.write_loose(%s, %s, %s)"
_READ = "SELECT * FROM proxyfleet.read_loose(%s, %s)"
_NOTIFY = f"SELECT pg_notify('{CHANNEL}', '')"
_FORGET = "SELECT proxyfleet.forget_ended()"

Locks = Mapping[str, float]
"""Seconds for which a pair of user name and address is locked, by its digest."""


class Loose:
    """The `LooseOutlet` of one node, with a thread from `start` until `close`. Thread-safe."""

    def __init__(
        self,
        database: Database,
        node: str,
        objects: LooseObjects,
        poll: Callable[[], float] = lambda: POLL,
        only_reads: bool = False,
    ) -> None:
        """`poll` says after how many seconds it is read at the latest. An edge node `only_reads`."""
        self._only_reads = only_reads
        self.node = node
        self._database = database
        self._objects = objects
        self._poll = poll
        self._on_locks: list[Callable[[Locks], object]] = []
        self._work: list[Callable[[], object]] = []
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._sent, self._reads, self._failures = 0, 0, 0
        self._wants_read, self._wants_work = True, False
        self._is_stuck, self._is_reading, self._is_announced = False, False, False
        self._announced, self._owes = 0.0, False
        self._forgot = time.monotonic()
        self._read_at = -POLL
        self._taken = 0
        self._locks: object = None
        """What the last heartbeat has learnt of locks."""
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="loose objects", daemon=True)

    def subscribe_locks(self, on_locks: Callable[[Locks], object]) -> None:
        """Before `start`: after each read `on_locks` gets the locks of sign-ins that the database has."""
        self._on_locks.append(on_locks)

    def add_work(self, work: Callable[[], object]) -> None:
        """Before `start`: do this each time. It may raise `DatabaseError`, and is done again then."""
        self._work.append(work)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End. What is pending is sent after the next start."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(SIGN_IN)

    def time(self) -> float:
        """See `LooseOutlet`."""
        return self._database.time()

    def ring(self) -> None:
        """See `LooseOutlet`."""
        with self._changed:
            self._wants_work = True
            self._changed.notify_all()

    def announced(self) -> None:
        """Another node has changed something: it is read, but not more often than each `QUIET`."""
        with self._changed:
            if not self._is_announced:
                self._is_announced = True
                self._changed.notify_all()

    def on_heartbeat(self, beat: Beat) -> None:
        """What a heartbeat has learnt: how many changes of all nodes the database has taken, and which locks there are.

        When that is what was read, it is as if it was read now.
        """
        locks, self._locks = self._locks, beat.reply.get("locks")
        if beat.reply["loose"] != self._taken or locks != self._locks:
            self.announced()
        elif locks is not None and not self._is_announced:  # the schema of a release before says nothing of locks
            self._read_at = time.monotonic()

    def send(self, step: int) -> None:
        """See `LooseOutlet`."""
        if not self._try_to_send(step):
            self.ring()

    def _try_to_send(self, step: int) -> bool:
        """Whether all up to this step is sent, after a second at most, and at once when others wait longer already."""
        if self._is_stuck or not self._database.is_available or not self._thread.is_alive():
            return False
        until = time.monotonic() + SIGN_IN
        if not self._sending.acquire(timeout=SIGN_IN):
            self._is_stuck = True
            return False
        try:
            while self._sent < step and time.monotonic() < until:
                self._send_some(max(until - time.monotonic(), LATER))
        except Exception as error:  # noqa: BLE001 - of an effect, maybe; the change itself is made, and sent later
            self._log_failure(error)
            return False
        finally:
            self._sending.release()
        return self._sent >= step

    @staticmethod
    def _log_failure(error: Exception) -> None:
        if not isinstance(error, DatabaseError | StoreError):
            log.error("what follows from a sign-in or a credential has failed", exc_info=error)
        log.debug("sign-ins and credentials wait for the database: %s", error)

    def ask(self) -> bool:
        """See `LooseOutlet`."""
        with self._changed:
            wanted = self._reads + (2 if self._is_reading else 1)  # one that is under way may be too old
            self._wants_read = True
            self._changed.notify_all()
        return self._wait_for(lambda: self._reads >= wanted)

    def pending(self) -> dict[str, int]:
        """How many sign-ins and credentials wait here for the database."""
        found = self._objects.counts()
        sign_ins = found.get(SIGN_INS, 0) + found.get(HOLDERS, 0)
        return {"sign_ins": sign_ins, "credentials": found.get(CREDENTIALS, 0)}

    def _wait_for(self, done: Callable[[], bool]) -> bool:
        """A second at most, and not at all when others wait longer already. Whether it is so then."""
        with self._changed:
            failures = self._failures
            if self._is_stuck or not self._database.is_available or not self._thread.is_alive():
                return False
            met = self._changed.wait_for(lambda: done() or self._failures != failures or self._ended, SIGN_IN)
            self._is_stuck = self._is_stuck or not met
            return done()

    # --- the thread ---

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._ended or self._wants_work or self._wants_read) and (pause := self._pause()) > 0:
                    self._changed.wait(pause)
                if self._ended:
                    return
                self._wants_work = False
            if not self._database.is_available:
                with self._changed:
                    self._wants_read = True
                    self._changed.wait_for(lambda: self._ended, LATER)
                continue
            try:
                self.exchange()
            except Exception as error:  # noqa: BLE001 - an effect may raise anything
                self._log_failure(error)
                with self._changed:
                    self._failures += 1
                    self._wants_work = self._wants_read = True
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._ended, LATER)

    def _pause(self) -> float:
        due = self._read_due
        return (min(due, self._announced + QUIET) if self._owes else due) - time.monotonic()

    @property
    def _read_due(self) -> float:
        return self._read_at + (QUIET if self._is_announced else self._poll())

    def exchange(self, reads: bool = False) -> None:
        """Send what is pending, and read what there is if it is time or if it `reads`.

        Raises `DatabaseError`, `StoreError`.
        """
        while self._send():
            pass
        for each in self._work:
            each()
        if self._owes and time.monotonic() >= self._announced + QUIET:
            self._announce()
        if reads or self._wants_read or time.monotonic() >= self._read_due:
            with self._changed:
                self._wants_read, self._is_announced, self._is_reading = False, False, True
            try:
                while self._read():
                    pass
            finally:
                self._is_reading = False
            with self._changed:
                self._reads += 1
                self._is_stuck = False
                self._changed.notify_all()
        if time.monotonic() >= self._forgot + FORGETTING:
            self._forgot = time.monotonic()
            self._objects.forget_ended()
            if self._only_reads:
                return
            self._database.transaction(_FORGET)

    def _send(self) -> bool:
        """Send what is pending; whether there may be more."""
        with self._sending:
            return self._send_some(REPORT)

    def _send_some(self, within: float) -> bool:
        changes, step = self._objects.pending(AT_ONCE)
        if changes:
            self._objects.sent(changes, self._bring(changes, within))
        self._sent, self._is_stuck = step, False
        return len(changes) == AT_ONCE

    def _bring(self, changes: Sequence[PendingChange], within: float) -> dict[Key, LooseObject]:
        """Those that are refused, as the database has them."""
        refused: list[Any] = []
        if not self._only_reads:
            now = time.monotonic()
            announces = now >= self._announced + QUIET
            rows = sorted([each.collection, each.id, each.until, each.was, each.text] for each in changes)
            refused = self._database.transaction(_WRITE, [self.node, json.dumps(rows), announces], within)
            if announces:
                self._announced, self._owes = now, False
            elif not self._owes:
                self._owes = True
                self.ring()  # the thread announces it
        return {each[:2]: found for each in refused if (found := _object(*each)) is not None}

    def _announce(self) -> None:
        self._database.transaction(_NOTIFY, (), SIGN_IN)
        self._announced, self._owes = time.monotonic(), False

    def _read(self) -> bool:
        """Take what others have changed; whether there may be more."""
        with self._sending:
            known, since = self._objects.heads(), self._objects.last_step()
            (first, *rows) = self._database.transaction(_READ, [json.dumps(known), AT_ONCE])
        heads: dict[str, int] = json.loads(first[0])
        for each in self._on_locks:
            each(json.loads(first[1]))
        if any(heads.get(node, 0) < seq for node, seq in known.items()):
            log.warning("the database was restored to an earlier state: what needs no order is sent and read anew")
            self._objects.begin_anew()
            return self._send() or True
        is_whole = len(rows) < AT_ONCE
        if not is_whole:
            heads = {node: seq for _, _, node, seq, *_ in rows}
        if heads != {node: known.get(node, 0) for node in heads}:
            found = [_object(*row) for _, _, _, _, *row in rows]
            self._objects.read([each for each in found if each is not None], heads, since)
        self._read_at, self._taken = time.monotonic(), sum(self._objects.heads().values())
        return not is_whole


def _object(collection: str, identifier: str, until: float, content: str | None) -> LooseObject | None:
    """As the database has it; None for what no node has written."""
    try:
        body: Any = None if content is None else json.loads(content)
        if body is not None and (not isinstance(body, dict) or body["id"] != identifier):
            raise ValueError("is no object")
        if body is not None and collection == CREDENTIALS:
            columns(collection, body)
    except (ValueError, KeyError, TypeError) as error:
        log.error("%s/%s in the fleet's database can't be used: %s", collection, identifier, error)
        return None
    return LooseObject(collection, identifier, until, body)
