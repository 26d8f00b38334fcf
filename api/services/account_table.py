"""The table of accounts that forwarding actors read stays there, whatever becomes of its file."""

from __future__ import annotations

from api.services.rounds import Rounds
from api.store.accounts import AccountStore

PERIOD = 2.0
"""Seconds between two checks."""


class TableChecks(Rounds):
    """Has the table made anew when its file was removed, replaced or damaged while nothing changes."""

    def __init__(self, store: AccountStore, period: float = PERIOD) -> None:
        super().__init__("table-checks", "check the table of accounts", period, first_after=period)
        self._store = store

    def act(self) -> None:
        """See `Rounds`."""
        self._store.check_table()
