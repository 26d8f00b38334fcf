"""The client addresses from which accounts and credentials are in use, over all processes of the machine.

Each has a line of a table (`actors.state.table`), under the key of the account or credential, which belongs to no
process: all write into it when the address was in use last, and about the same at that. So an address that is known
costs no lock. Another one takes a line while its bucket is locked, and what is there is counted again. So a limit is
exact, however many processes admit clients at the same moment; what is only asked or refused writes nothing.

A line counts for as long after its last use as the window says that is asked with. The window may be another each time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from actors.net.client_key import client_key
from actors.state.processes import NO_PROCESSES, UNOWNED
from actors.state.table import KEY, NO_LINE, NUMBERS, OWNER, RELEASED, UNTIL, Table, TableKind, make_table

CLIENT: Final = NUMBERS
"""The word with a digest of the address (with IPv6 of its /64)."""
SEEN: Final = NUMBERS + 1
"""The word with the milliseconds of the monotonic clock when it was in use last."""
KIND: Final = TableKind("clients", pages=128, lines=2**20, line=NUMBERS + 2)
"""Fifty megabytes for a million addresses; half a megabyte while there are few."""

REMEMBERED: Final = 4096
"""Lines that a process knows the places of."""
_MARGIN: Final = 1000
"""Milliseconds before a line's end from which on it is written under the lock alone: it may be another's soon."""
_ATTEMPTS: Final = 100
"""To get the lock of a bucket, each for about a millisecond; one in the second after these have failed."""


class _Use(NamedTuple):
    """An address, and when it was in use last, by milliseconds of the monotonic clock."""

    line: int
    client: int
    seen: int


class AccountClients:
    """`clock` is the monotonic one, in seconds. Windows are seconds, too."""

    def __init__(self, table: Table, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._clock = clock
        self._places: dict[tuple[int, int], int] = {}
        self._patient_from = 0

    def admit(self, owner: str, address: str, limit: int, window: int) -> int:
        """A client at this address uses the account or credential with the id `owner`, if at most `limit` do then.

        Returns 0; or that it can't be, as the seconds until one of the others will have been silent for the window.
        Where the lock of the bucket can't be had, or there is no line left, the address is not counted.
        """
        key, client = _digest(owner), _digest(client_key(address))
        line = self._known(key, client, window)
        if line:
            self._write(line, window)
            return 0
        wait = self._wait(self._uses(key), client, limit, window)
        return wait or self._take_place(key, client, limit, window)

    def include(self, owner: str, addresses: Iterable[str], window: int) -> None:
        """Clients at these addresses use it, however many do then."""
        key, clients = _digest(owner), {_digest(client_key(each)) for each in addresses}
        with self._table.exclusive(key) as alone:
            if alone:
                own = {each.client: each.line for each in self._uses(key) if each.client in clients}
                for line in own.values():  # first, lest one is taken as spent
                    self._write(line, window)
                new = clients - own.keys()
                for client, line in zip(new, self._table.take_all(key, RELEASED, len(new)), strict=False):
                    self._table.words[line + CLIENT] = client
                    self._write(line, window)

    def wait(self, owner: str, address: str, limit: int, window: int) -> int:
        """What `admit` would return; nothing is counted."""
        key, client = _digest(owner), _digest(client_key(address))
        if self._known(key, client, window):
            return 0
        return self._wait(self._uses(key), client, limit, window)

    def in_use(self, owner: str, window: int) -> int:
        """How many addresses use the account or credential with the id `owner`."""
        return len(self._counted(self._uses(_digest(owner)), window))

    # --- without a lock ---

    def _known(self, key: int, client: int, window: int) -> int:
        """The line of an address that counts, and does for long enough to be written; `NO_LINE` if it isn't known."""
        line, now, words = self._places.get((key, client), NO_LINE), self._now(), self._table.words
        if not line or words[line + UNTIL] <= now + _MARGIN or words[line + SEEN] <= now - 1000 * window:
            return NO_LINE
        return line if words[line + CLIENT] == client and words[line + KEY] == key else NO_LINE

    def _uses(self, key: int) -> list[_Use]:
        words = self._table.words
        found = [_Use(line, words[line + CLIENT], words[line + SEEN]) for line in self._table.all_lines(key)]
        return [
            each
            for each in found
            if each.seen and words[each.line + OWNER] == RELEASED and words[each.line + KEY] == key
        ]

    def _counted(self, uses: list[_Use], window: int) -> dict[int, int]:
        """When each address was in use last, of those that count."""
        since = self._now() - 1000 * window
        return {each.client: each.seen for each in sorted(uses, key=lambda each: each.seen) if each.seen > since}

    def _wait(self, uses: list[_Use], client: int, limit: int, window: int) -> int:
        counted = self._counted(uses, window)
        if client in counted or len(counted) < limit:
            return 0
        ends = sorted(counted.values())[len(counted) - limit] + 1000 * window
        return max(1, math.ceil((ends - self._now()) / 1000))

    def _write(self, line: int, window: int) -> None:
        words, now = self._table.words, self._now()
        words[line + SEEN] = now
        words[line + UNTIL] = now + 1000 * window

    # --- with the lock of the bucket ---

    def _take_place(self, key: int, client: int, limit: int, window: int) -> int:
        """See `admit`."""
        for _ in range(_ATTEMPTS if self._now() >= self._patient_from else 1):
            with self._table.exclusive(key) as alone:
                if alone:
                    uses = self._uses(key)
                    wait = self._wait(uses, client, limit, window)
                    if not wait:
                        self._place(uses, key, client, window)
                    return wait
        self._patient_from = self._now() + 1000
        return 0

    def _place(self, uses: list[_Use], key: int, client: int, window: int) -> None:
        """Count it in its own line, in one of an address that counts no more, or in another one."""
        since = self._now() - 1000 * window
        own = next((each.line for each in uses if each.client == client), NO_LINE)
        silent = next((each.line for each in uses if each.seen <= since), NO_LINE)
        line = own or silent or self._table.take(key, RELEASED)
        if line:
            self._table.words[line + CLIENT] = client
            self._write(line, window)
            if len(self._places) >= REMEMBERED:
                self._places.clear()
            self._places[key, client] = line

    def _now(self) -> int:
        return int(1000 * self._clock())

    def __repr__(self) -> str:
        return f"<AccountClients in {self._table!r}>"


def open_clients(path: Path, clock: Callable[[], float] = time.monotonic) -> AccountClients:
    """Those in this file, which is made if it isn't there. Raises `OSError`."""
    return AccountClients(make_table(path, KIND, NO_PROCESSES, UNOWNED, clock), clock)


@lru_cache(maxsize=2 * REMEMBERED)
def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") or 1
