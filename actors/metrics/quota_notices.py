"""The events of accounts that come near their quotas or reach them: once each in a period, also through restarts.

An event is stored in the same transaction as the usage that it is about, and deleted when it was published. One that
was published right before the collector died is published again with its id, by which receivers know it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from actors.bus.events import new_event
from actors.bus.messages.accounts import AccountUsage
from actors.bus.messages.events import Event
from config.model.quotas import period_at
from config.text.formatting import timestamp_text

WARNING, REACHED = "account.quota_warning", "account.quota_reached"


class QuotaNotices:
    """Writes within a transaction that is under way. `percent` of a quota is the warning; 0 for none."""

    def __init__(self, database: sqlite3.Connection, percent: float = 80.0) -> None:
        self.percent = percent
        self._database = database

    def note(self, number: int, account_id: str, username: str, quota: int, usage: AccountUsage) -> None:
        """Make the events that are due, now that an account has used so much of its quota."""
        used = usage.bytes_in + usage.bytes_out
        if not quota or used < min(quota, quota * (self.percent or 100) / 100):
            return
        warned, reached = self._database.execute(
            "SELECT warned, reached FROM accounts WHERE number = ?", (number,)
        ).fetchone()
        until = period_at(usage.period, usage.since)[1]
        data = {
            "account_id": account_id,
            "username": username,
            "used": used,
            "quota": quota,
            "period": usage.period,
            "period_end": None if until is None else timestamp_text(until),
        }
        if self.percent and warned != usage.since:
            self._add(WARNING, {**data, "percent": self.percent})
            self._database.execute("UPDATE accounts SET warned = ? WHERE number = ?", (usage.since, number))
        if used >= quota and reached != usage.since:
            self._add(REACHED, data)
            self._database.execute("UPDATE accounts SET reached = ? WHERE number = ?", (usage.since, number))

    def pending(self) -> list[Event]:
        """Those that are not published yet, oldest first."""
        rows = self._database.execute("SELECT id, kind, at, data FROM notices ORDER BY at, kind DESC").fetchall()
        return [Event(identifier, kind, at, json.loads(data)) for identifier, kind, at, data in rows]

    def published(self, events: Iterable[Event]) -> None:
        """These are published."""
        self._database.executemany("DELETE FROM notices WHERE id = ?", [(each.id,) for each in events])

    def _add(self, kind: str, data: dict[str, object]) -> None:
        event = new_event(kind, data)
        values = (event.id, kind, event.timestamp, json.dumps(data))
        self._database.execute("INSERT INTO notices VALUES (?, ?, ?, ?)", values)
