"""The outbox: events that wait for their delivery, in SQLite, so that they survive a crash."""

from __future__ import annotations

import json
from pathlib import Path

from actors.bus.messages import Event
from actors.sqlite import open_database

KEPT_EVENTS = 100_000
"""Events that may wait; the oldest go first. What nobody takes must not fill the disk."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    type TEXT NOT NULL,
    timestamp REAL NOT NULL,
    data TEXT NOT NULL
);
"""


class Outbox:
    """One file; raises `sqlite3.Error` when the disk doesn't take it."""

    def __init__(self, folder: Path) -> None:
        self._database = open_database(folder / "outbox.sqlite", _SCHEMA)

    def take(self, event: Event) -> bool:
        """Store an event; False when it is here already."""
        fields = (event.id, event.type, event.timestamp, json.dumps(event.data))
        stored = self._database.execute(
            "INSERT INTO events (id, type, timestamp, data) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING", fields
        )
        if stored.rowcount == 1 and stored.lastrowid is not None:
            self._database.execute("DELETE FROM events WHERE number <= ?", (stored.lastrowid - KEPT_EVENTS,))
        return stored.rowcount == 1

    def waiting(self) -> int:
        """How many events wait."""
        (count,) = self._database.execute("SELECT count(*) FROM events").fetchone()
        return int(count)

    def close(self) -> None:
        """Close the file."""
        self._database.close()
