"""The counters of all accounts that a process uses, and which of them have something to report."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from actors.bus.loop import Loop
from actors.bus.messages.accounts import AccountTotal
from actors.forwarding.limits.usage import AccountCounter, do_nothing
from actors.usage_file import UsageFile, UsageSlot, private_slot

if TYPE_CHECKING:
    from actors.forwarding.limits.workers import ProxyWorkers

log = logging.getLogger(__name__)

WINDOW_OF_WORKER_MIN = 16 * 1024
"""Bytes that one of many workers has of a window at least."""


class UsageCounters:
    """The counters of all accounts in use, by id. Each is made once, since it counts for the whole process."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.by_id: dict[str, AccountCounter] = {}
        self.workers = 1
        """Processes that serve the proxy at the same time."""
        self.sharing: ProxyWorkers | None = None
        """All workers of the proxy; None with one."""
        self.open_file: Callable[[], UsageFile] | None = None
        """Opens the file in which they count; None: they count in memory."""
        self.on_changed: Callable[[], None] = do_nothing
        """Called when there is something to report, while there was nothing before."""
        self.on_urgent: Callable[[], None] = do_nothing
        """Called when a report is due at once."""
        self._changed: dict[str, AccountCounter] = {}
        self._urgent: dict[str, AccountCounter] = {}
        self._released: dict[str, AccountCounter] = {}
        self._file: UsageFile | None = None
        self._serials = itertools.count(1)

    def part_of_window(self, window: int) -> int:
        """What one of several workers has of a window, so that all have it together."""
        return window if self.workers == 1 else max(WINDOW_OF_WORKER_MIN, window // self.workers)

    def share(self, workers: ProxyWorkers) -> None:
        """Count together with other workers from now on."""
        self.sharing = workers
        for counter in self.by_id.values():
            counter.update_sharing()

    def acquire(self, account_id: str) -> AccountCounter:
        """The counter of this account. To be configured before it is used."""
        counter = self.by_id.get(account_id)
        if counter is None:
            serial = next(self._serials)
            counter = self.by_id[account_id] = AccountCounter(self, account_id, serial, self._slot(account_id, serial))
        self._released.pop(account_id, None)
        return counter

    def release(self, account_id: str) -> None:
        """The account is not in use any more: its counter goes once the collector has stored what it says."""
        counter = self.by_id.get(account_id)
        if counter is not None:
            self._released[account_id] = counter
            if counter.settled:
                self._remove(counter)

    def discard(self, account_id: str) -> None:
        """Forget a counter that is never reported, with what it has counted."""
        self._urgent.pop(account_id, None)
        counter = self.by_id.pop(account_id)
        counter.end_sharing()
        self._changed.pop(account_id, None)
        self._released.pop(account_id, None)
        if self._file is not None:
            self._file.release(counter.slot)

    def remove_settled(self) -> None:
        """Remove released counters whose figures the collector has stored."""
        for counter in [each for each in self._released.values() if each.settled]:
            self._remove(counter)

    def _remove(self, counter: AccountCounter) -> None:
        del self.by_id[counter.id], self._released[counter.id]
        self._urgent.pop(counter.id, None)
        counter.end_sharing()
        if self._file is not None:
            self._file.release(counter.slot)

    def changed(self, counter: AccountCounter) -> None:
        """There is something to report of this one."""
        first = not self._changed
        self._changed[counter.id] = counter
        if first:
            self.on_changed()

    def urgent(self, counter: AccountCounter) -> None:
        """What there is to report of this one is due at once."""
        self._urgent[counter.id] = counter
        self.on_urgent()

    @property
    def any_changed(self) -> bool:
        """Whether there is anything to report."""
        return bool(self._changed)

    def take_changed(self) -> dict[str, AccountCounter]:
        """Those with something to report, which is reported from now on."""
        changed, self._changed = self._changed, {}
        return changed

    def take_all(self) -> dict[str, AccountCounter]:
        """All of them, which are reported from now on."""
        self._changed = {}
        return self.by_id.copy()

    def take_urgent(self, waiting: dict[str, AccountCounter], most: int) -> list[AccountCounter]:
        """Those with something to report that is due at once, out of `waiting` as well."""
        urgent = [self._urgent.pop(account_id) for account_id in tuple(itertools.islice(self._urgent, most))]
        for counter in urgent:
            waiting.pop(counter.id, None)
            self._changed.pop(counter.id, None)
        return [each for each in urgent if each.is_changed]

    def put_back(self, counters: dict[str, AccountCounter]) -> None:
        """These were taken, and not reported."""
        first = not self._changed
        self._changed = {**counters, **self._changed}
        if first and counters:
            self.on_changed()

    def note_time(self) -> None:
        """Report those with open connections, whose time goes on."""
        for counter in self.by_id.values():
            if counter.connections:
                counter.changed()

    def apply_totals(self, totals: dict[str, AccountTotal]) -> None:
        """Take what the collector says."""
        for account_id, total in totals.items():
            counter = self.by_id.get(account_id)
            if counter is not None:
                counter.apply_total(total)

    def _slot(self, account_id: str, serial: int) -> UsageSlot:
        try:
            if self._file is None and self.open_file is not None:
                self._file = self.open_file()
            return private_slot() if self._file is None else self._file.slot(account_id, serial)
        except OSError as error:
            log.error("cannot keep the usage of accounts in a file; what this process counts may be lost: %s", error)
            return private_slot()
