"""The outbox: events, their deliveries and the attempts at them, in SQLite, so that they survive a crash.

An event is stored when it is received and *fanned out* when the webhooks are known: from then on it is a delivery for
each webhook that subscribes to it. Both are one commit each, so a crash in between loses nothing and doubles nothing.

A delivery is `waiting` until it is `delivered` or `failed`. It is *unordered* when it has no place in the order
of its webhook: a test, a redelivery, or one that the target rejects while it accepts others.

Events that were received and could not be stored, until they are stored after all, or are known to be lost. The
supervisor remembers the last `REMEMBERED` events of all and replays them. Older ones are nowhere any more.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from actors.bus.events import REMEMBERED
from actors.bus.messages.events import Delivery, DeliveryAttempt, Event, WebhookStatus
from actors.log_lines import ThrottledLog
from actors.sqlite import open_database, transaction

log = logging.getLogger(__name__)

EVENTS_MAX = 100_000
"""Events that are kept, so that the disk doesn't fill; the oldest go first, and undelivered ones are counted."""

WAITING, DELIVERED, FAILED = "waiting", "delivered", "failed"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS happened (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    type TEXT NOT NULL,
    timestamp REAL NOT NULL,
    data TEXT NOT NULL,
    fanned_out INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS unfanned ON happened (number) WHERE fanned_out = 0;
CREATE TABLE IF NOT EXISTS deliveries (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    webhook_id TEXT NOT NULL,
    event INTEGER NOT NULL,
    status TEXT NOT NULL,
    unordered INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    created_at REAL NOT NULL,
    first_try REAL,
    pause REAL NOT NULL,
    next_at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS of_webhook ON deliveries (webhook_id, number);
CREATE INDEX IF NOT EXISTS of_event ON deliveries (event);
CREATE INDEX IF NOT EXISTS waiting ON deliveries (webhook_id, unordered, number) WHERE status = 'waiting';
CREATE TABLE IF NOT EXISTS attempts (
    delivery INTEGER NOT NULL, number INTEGER NOT NULL, told TEXT NOT NULL,
    PRIMARY KEY (delivery, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS statuses (
    webhook_id TEXT PRIMARY KEY, last_success REAL, last_failure REAL, last_error TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lost (which INTEGER PRIMARY KEY, events INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS given_up (webhook_id TEXT PRIMARY KEY, reason TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
"""


@dataclass(slots=True)
class Waiting:
    """A delivery as the sender works on it. `pause` is the time between the last attempt and the one at `next_at`."""

    number: int
    id: str
    webhook_id: str
    event: int
    status: str
    unordered: bool
    tries: int
    created_at: float
    first_try: float | None
    pause: float
    next_at: float


_COLUMNS = ", ".join(each.name for each in fields(Waiting))
_CHANGING = ("status", "unordered", "tries", "first_try", "pause", "next_at")


class Outbox:
    """One file; raises `sqlite3.Error` when the disk doesn't take it. Times are Unix seconds."""

    def __init__(self, folder: Path) -> None:
        self._database = open_database(folder / "outbox.sqlite", _SCHEMA)
        self._drops = ThrottledLog(log, "dropping the oldest undelivered events")

    # --- events ---

    def add(self, event: Event) -> int | None:
        """Store an event: its number, None when it is here already."""
        values = (event.id, event.type, event.timestamp, json.dumps(event.data))
        stored = self._database.execute(
            "INSERT INTO happened (id, type, timestamp, data) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING", values
        )
        if stored.rowcount != 1 or stored.lastrowid is None:
            return None
        self._make_room(stored.lastrowid - EVENTS_MAX)
        return stored.lastrowid

    def has(self, event_id: str) -> bool:
        """True if it was stored and is still here."""
        return self._database.execute("SELECT 1 FROM happened WHERE id = ?", (event_id,)).fetchone() is not None

    def unfanned(self) -> list[tuple[int, Event]]:
        """Events that have no deliveries yet, oldest first, with their numbers."""
        rows = self._database.execute(
            "SELECT number, id, type, timestamp, data FROM happened WHERE fanned_out = 0 ORDER BY number LIMIT 1000"
        )
        return [(int(number), _event(rest)) for number, *rest in rows]

    def fan_out(self, wanted: Iterable[tuple[int, Iterable[str]]], now: float) -> None:
        """Make deliveries: event numbers with the ids of the webhooks that subscribe to them."""
        with transaction(self._database):
            for event, webhook_ids in wanted:
                for webhook_id in webhook_ids:
                    self._add(webhook_id, event, False, now)
                self._database.execute("UPDATE happened SET fanned_out = 1 WHERE number = ?", (event,))

    def newest_event(self) -> float:
        """When the newest event happened; 0 when there is none."""
        row = self._database.execute("SELECT max(timestamp) FROM happened").fetchone()
        return float(row[0] or 0.0)

    def count_lost(self, events: int) -> None:
        """So many will never be delivered, though a webhook may subscribe to them."""
        self._database.execute(
            "INSERT INTO lost VALUES (1, ?) ON CONFLICT (which) DO UPDATE SET events = events + excluded.events",
            (events,),
        )

    def lost(self) -> int:
        """How many events were lost, ever."""
        (count,) = self._database.execute("SELECT coalesce(sum(events), 0) FROM lost").fetchone()
        return int(count)

    # --- deliveries under way ---

    def add_unordered(self, webhook_id: str, event: Event, now: float) -> Waiting:
        """Store an event for this webhook only, with its delivery beside the order."""
        with transaction(self._database):
            number = self.add(event)
            self._database.execute("UPDATE happened SET fanned_out = 1 WHERE number = ?", (number,))
            delivery = self._add(webhook_id, number or 0, True, now)
        return self._one("number = ?", delivery)

    def first(self, webhook_id: str) -> Waiting | None:
        """The next delivery in the order of a webhook."""
        return self._waiting(webhook_id, "unordered = 0 ORDER BY number")

    def first_unordered(self, webhook_id: str) -> Waiting | None:
        """The delivery beside the order that is due first."""
        return self._waiting(webhook_id, "unordered = 1 ORDER BY next_at, number")

    def event(self, number: int) -> Event:
        """The event of a delivery."""
        row = self._database.execute(
            "SELECT id, type, timestamp, data FROM happened WHERE number = ?", (number,)
        ).fetchone()
        return _event(row)

    def add_attempt(self, delivery: Waiting, attempt: DeliveryAttempt) -> None:
        """Store an attempt, under the next number, and the delivery as it stands after it."""
        delivered = delivery.status == DELIVERED
        with transaction(self._database):
            query = "SELECT coalesce(max(number), 0) + 1 FROM attempts WHERE delivery = ?"
            (number,) = self._database.execute(query, (delivery.number,)).fetchone()
            values = json.dumps([number, *(getattr(attempt, name) for name in _ATTEMPT_FIELDS)])
            self._database.execute("INSERT INTO attempts VALUES (?, ?, ?)", (delivery.number, number, values))
            self.update(delivery)
            self._database.execute(
                "INSERT INTO statuses (webhook_id) VALUES (?) ON CONFLICT DO NOTHING", (delivery.webhook_id,)
            )
            which = "last_success" if delivered else "last_failure"
            self._database.execute(
                f"UPDATE statuses SET {which} = ?, last_error = ? WHERE webhook_id = ?",  # noqa: S608 - of the two above
                (attempt.timestamp, None if delivered else attempt.error, delivery.webhook_id),
            )

    def update(self, delivery: Waiting) -> None:
        """Store the delivery as it stands now."""
        columns = ", ".join(f"{name} = ?" for name in _CHANGING)
        values = (*(getattr(delivery, name) for name in _CHANGING), delivery.number)
        self._database.execute(f"UPDATE deliveries SET {columns} WHERE number = ?", values)  # noqa: S608 - of the fields above

    def redeliver(self, webhook_id: str, delivery_id: str, now: float) -> Waiting | None:
        """Deliver once more, at once and beside the order; None when there is no such delivery."""
        changed = self._database.execute(
            "UPDATE deliveries SET status = 'waiting', unordered = 1, tries = 0, pause = 0, first_try = NULL,"
            " next_at = ? WHERE webhook_id = ? AND id = ?",
            (now, webhook_id, delivery_id),
        )
        return self._one("id = ?", delivery_id) if changed.rowcount else None

    def forget(self, webhook_id: str) -> None:
        """Delete all of a webhook that was deleted."""
        with transaction(self._database):
            self._drop("webhook_id = ?", webhook_id)
            for table in ("statuses", "given_up"):
                self._database.execute(f"DELETE FROM {table} WHERE webhook_id = ?", (webhook_id,))  # noqa: S608

    def known(self) -> set[str]:
        """The webhooks that have deliveries."""
        return {row[0] for row in self._database.execute("SELECT DISTINCT webhook_id FROM deliveries")}

    # --- webhooks that the sender disables ---

    def disable(self, webhook_id: str, reason: str, now: float) -> None:
        """Remember that the API is to disable it."""
        self._database.execute("INSERT OR IGNORE INTO given_up VALUES (?, ?, ?)", (webhook_id, reason, now))

    def disabled(self) -> list[tuple[str, str, float]]:
        """Webhook, reason and time of those that the API has not acknowledged yet."""
        return [(str(a), str(b), float(c)) for a, b, c in self._database.execute("SELECT * FROM given_up")]

    def disable_acknowledged(self, webhook_id: str) -> None:
        """The API has disabled it."""
        self._database.execute("DELETE FROM given_up WHERE webhook_id = ?", (webhook_id,))

    # --- views ---

    def deliveries(self, webhook_id: str, status: str, limit: int, offset: int) -> tuple[list[Delivery], int]:
        """A page of deliveries, newest first, and how many there are."""
        where, values = "webhook_id = ?", [webhook_id]
        if status:
            where, values = f"{where} AND status = ?", [webhook_id, status]
        (total,) = self._database.execute(f"SELECT count(*) FROM deliveries WHERE {where}", values).fetchone()  # noqa: S608
        rows = self._database.execute(
            f"SELECT {_COLUMNS} FROM deliveries WHERE {where} ORDER BY number DESC LIMIT ? OFFSET ?",  # noqa: S608
            (*values, limit, offset),
        ).fetchall()
        return [self.view(Waiting(*row)) for row in rows], int(total)

    def view(self, delivery: Waiting) -> Delivery:
        """A delivery with its event and its attempts."""
        rows = self._database.execute(
            "SELECT told FROM attempts WHERE delivery = ? ORDER BY number", (delivery.number,)
        )
        return Delivery(
            id=delivery.id,
            webhook_id=delivery.webhook_id,
            event=self.event(delivery.event),
            status=delivery.status,
            created_at=delivery.created_at,
            next_attempt_at=delivery.next_at if delivery.status == WAITING else None,
            attempts=tuple(DeliveryAttempt(*json.loads(values)) for (values,) in rows),
        )

    def statuses(self) -> dict[str, WebhookStatus]:
        """The status of each webhook that has one, by its id."""
        counts: dict[str, int] = dict(
            self._database.execute(
                "SELECT webhook_id, count(*) FROM deliveries WHERE status = 'waiting' GROUP BY webhook_id"
            )
        )
        rows = {row[0]: row[1:] for row in self._database.execute("SELECT * FROM statuses")}
        nothing = (None, None, None)
        return {each: WebhookStatus(counts.get(each, 0), *rows.get(each, nothing)) for each in {*counts, *rows}}

    def waiting(self) -> int:
        """The number of events and deliveries that wait."""
        (count,) = self._database.execute(
            "SELECT (SELECT count(*) FROM happened WHERE fanned_out = 0)"
            " + (SELECT count(*) FROM deliveries WHERE status = 'waiting')"
        ).fetchone()
        return int(count)

    # --- keeping it small ---

    def prune(self, before: float) -> None:
        """Delete deliveries from before that time, and events without a delivery."""
        with transaction(self._database):
            self._drop("created_at < ?", before)
            self._database.execute(
                "DELETE FROM happened WHERE timestamp < ? AND fanned_out = 1"
                " AND number NOT IN (SELECT event FROM deliveries)",
                (before,),
            )

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    # --- inside ---

    def _make_room(self, oldest: int) -> None:
        """Drop the events up to this one, and count those that are not delivered."""
        (undelivered,) = self._database.execute(
            "SELECT count(*) FROM happened WHERE number <= ? AND (fanned_out = 0 OR EXISTS"
            " (SELECT 1 FROM deliveries WHERE event = happened.number AND status = 'waiting'))",
            (oldest,),
        ).fetchone()
        if undelivered:
            self._drops.error(f"more than {EVENTS_MAX} events wait")
            self.count_lost(undelivered)
        if self._database.execute("DELETE FROM happened WHERE number <= ?", (oldest,)).rowcount:
            self._drop("event <= ?", oldest)

    def _add(self, webhook_id: str, event: int, unordered: bool, now: float) -> int:
        made = self._database.execute(
            "INSERT INTO deliveries (id, webhook_id, event, status, unordered, tries, created_at, pause, next_at)"
            " VALUES (?, ?, ?, 'waiting', ?, 0, ?, 0, ?)",
            (f"dlv_{secrets.token_hex(8)}", webhook_id, event, unordered, now, now),
        )
        return int(made.lastrowid or 0)

    def _drop(self, where: str, value: Any) -> None:
        chosen = f"SELECT number FROM deliveries WHERE {where}"  # noqa: S608 - of the texts in this module
        self._database.execute(f"DELETE FROM attempts WHERE delivery IN ({chosen})", (value,))  # noqa: S608
        self._database.execute(f"DELETE FROM deliveries WHERE {where}", (value,))  # noqa: S608

    def _waiting(self, webhook_id: str, rest: str) -> Waiting | None:
        row = self._database.execute(
            f"SELECT {_COLUMNS} FROM deliveries WHERE status = 'waiting' AND webhook_id = ? AND {rest} LIMIT 1",  # noqa: S608
            (webhook_id,),
        ).fetchone()
        return None if row is None else Waiting(*row)

    def _one(self, where: str, value: Any) -> Waiting:
        row = self._database.execute(f"SELECT {_COLUMNS} FROM deliveries WHERE {where}", (value,)).fetchone()  # noqa: S608
        return Waiting(*row)


_ATTEMPT_FIELDS = ("timestamp", "url", "request_headers", "status_code", "response_time", "response_body", "error")
"""Behind the number."""


def _event(row: Sequence[Any]) -> Event:
    identifier, kind, timestamp, data = row
    return Event(str(identifier), str(kind), float(timestamp), json.loads(data))


class MissedEvents:
    """The ids, in the order in which they were received."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}
        self.lost = 0
        """Events that no process has any more, and that the outbox has not counted yet."""

    def add(self, event_id: str) -> None:
        """It could not be stored. Of more than the supervisor remembers, the first is lost."""
        self._ids[event_id] = None
        if len(self._ids) > REMEMBERED:
            del self._ids[next(iter(self._ids))]
            self.lost += 1

    def stored(self, event_id: str) -> None:
        """It is stored now."""
        self._ids.pop(event_id, None)

    def missing(self) -> frozenset[str]:
        """Those that a replay requested now must contain; for `settle` after the replay."""
        return frozenset(self._ids)

    def settle(self, missing: frozenset[str]) -> None:
        """All that was replayed is stored; what is still missing of those before the replay is lost."""
        gone = self._ids.keys() & missing
        for event_id in gone:
            del self._ids[event_id]
        self.lost += len(gone)
