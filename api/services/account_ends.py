"""The events of accounts of the fleet whose time is over: once for each end, also through restarts.

An end is published first and marked as announced when the event has left the process. One that was published right
before the API died is published again with its id, by which receivers know it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

from actors.bus.events import event_topic
from actors.bus.messages.events import Event
from api.bus_bridge import Bridge
from api.services.rounds import Rounds
from api.store.accounts import AccountEnd, AccountStore
from config.model.subscriptions import checked
from config.text.formatting import timestamp_text

EXPIRED = "account.expired"
PERIOD = 2.0
"""Seconds between two rounds, and from the start to the first one: before, the connection may not be there."""
SENT_AFTER = 0.2
"""Seconds after which a published event has left the process."""
BATCH = 500
"""Events of one round at most, so that receivers keep up."""


class AccountEnds:
    """Announces ends, in rounds of one thread."""

    def __init__(self, store: AccountStore, bridge: Bridge, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._bridge = bridge
        self._clock = clock
        self._published: list[AccountEnd] = []

    def announce(self) -> int:
        """Publish the events of ends that have come and were not announced yet; how many. Raises `StoreError`."""
        self.settle()
        self._published = self._store.due_ends(self._clock(), BATCH)
        for each in self._published:
            event = self._event(each)
            self._bridge.publish(event_topic(event), event)
        return len(self._published)

    def settle(self) -> None:
        """Mark what was published as announced. Raises `StoreError`; nothing is published again before it is marked."""
        if self._published:
            self._store.ends_announced(self._published)
        self._published = []

    def _event(self, end: AccountEnd) -> Event:
        text = timestamp_text(end.expires_at)
        data = {"account_id": end.account_id, "username": end.username, "expires_at": text}
        digest = hashlib.sha256(f"{end.account_id} {end.expires_at}".encode()).hexdigest()
        return Event(f"evt_{digest[:24]}", EXPIRED, self._clock(), checked(EXPIRED, data))


class ExpiredAccounts(Rounds):
    """Announces the ends of accounts, those that came while the API was down among them."""

    def __init__(self, ends: AccountEnds, period: float = PERIOD) -> None:
        super().__init__("expired-accounts", "announce accounts that have expired", period, first_after=period)
        self._ends = ends

    def act(self) -> None:
        """See `Rounds`."""
        if self._ends.announce() and self.pause(SENT_AFTER):
            self._ends.settle()
