"""The client addresses from which accounts and credentials are in use, over all processes of the machine.

Each has a line of a table (`actors.state.table`), under the key of the account or credential, which belongs to no
process: all write into it when the address was in use last, and about the same at that. So an address that is known
costs no lock. Another one takes a line while its bucket is locked, and what is there is counted again. So a limit is
exact, however many processes admit clients at the same moment; what is only asked or refused writes nothing.

A process remembers which lines an account has while the word of their bucket is the same. So it walks over them once
for each address that comes to count, wherever, and not for one that is refused.

Where an address can't be counted, since no line is left or a process hangs within its bucket, it is admitted, as all
are without the file: a limit that does not hold for a while, which is a problem of the proxy, does less harm than
clients that are locked out of all accounts, which a customer who uses up the lines could reach otherwise.

A line counts for as long after its last use as the window says that is asked with. The window may be another each time.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

from actors.bounded import keep
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
"""Addresses that a process knows the lines of without a search, and accounts whose lines it knows."""
_MARGIN: Final = 1000
"""Milliseconds before a line's end from which on it is written under the lock alone: it may be another's soon."""
_FRESH: Final = 1000
"""Milliseconds for which an account that refuses addresses does so without looking when the others were in use."""
_ATTEMPTS: Final = 100
"""To get the lock of a bucket, each for about a millisecond; one in the second after these have failed."""
_FULL: Final = "no room is left for more client addresses"
_HANGS: Final = "another process that counts client addresses hangs"


class _Lines:
    """The lines of an account or credential, and whose they are, as of one word of their bucket."""

    __slots__ = ("clients", "ends", "limited", "lines", "most", "until", "word")

    def __init__(self, word: int) -> None:
        self.word = word
        self.lines: array[int] = array("Q")
        self.clients: array[int] = array("Q")
        self.limited = 0, 0
        """The limit and the window that the following is of."""
        self.most = 0
        """So many addresses count, at most."""
        self.ends = 0
        """The millisecond from which on fewer than the limit may count, if it is reached."""
        self.until = 0
        """The millisecond from which on this is to be found anew."""

    def of(self, client: int) -> int:
        """The line of an address; `NO_LINE` if it has none."""
        try:
            return self.lines[self.clients.index(client)]
        except ValueError:
            return NO_LINE

    def put(self, line: int, client: int) -> None:
        """The line is of this address from now on, which did not count."""
        try:
            self.clients[self.lines.index(line)] = client
        except ValueError:
            self.lines.append(line)
            self.clients.append(client)
        self.most += 1
        if self.most >= self.limited[0]:
            self.until = 0


class AccountClients:
    """`clock` is the monotonic one, in seconds. Windows are seconds, too. `on_failure` is called with why an address
    is not counted."""

    def __init__(self, table: Table, clock: Callable[[], float], on_failure: Callable[[str], None]) -> None:
        self._table = table
        self._clock = clock
        self._on_failure = on_failure
        self._places: dict[tuple[int, int], int] = {}
        self._accounts: dict[int, _Lines] = {}
        self._patient_from = 0

    def admit(self, owner: str, address: str, limit: int, window: int) -> int:
        """A client at this address uses the account or credential with the id `owner`, if at most `limit` do then.

        Returns 0; or that it can't be, as the seconds until one of the others will have been silent for the window.
        An address that can't be counted is admitted.
        """
        key, client = _digest(owner), _digest(client_key(address))
        line = self._line(key, client)
        if line and self._holds(line, window):
            self._write(line, window)
            return 0
        return self._wait(key, line, limit, window) or self._take_place(key, client, limit, window)

    def include(self, owner: str, addresses: Iterable[str], window: int) -> None:
        """Clients at these addresses use it, however many do then."""
        key, clients = _digest(owner), {_digest(client_key(each)) for each in addresses}
        with self._table.exclusive(key) as alone:
            if not alone:
                self._on_failure(_HANGS)
            else:
                known = self._lines(key)
                own = {client: line for client in clients if (line := known.of(client))}
                for line in own.values():  # first, lest one is taken as spent
                    self._write(line, window)
                new = clients - own.keys()
                lines = self._table.take_all(key, RELEASED, len(new))
                if len(lines) < len(new):
                    self._on_failure(_FULL)
                for client, line in zip(new, lines, strict=False):
                    self._table.words[line + CLIENT] = client
                    self._write(line, window)
                self._table.changed(key)

    def wait(self, owner: str, address: str, limit: int, window: int) -> int:
        """What `admit` would return; nothing is counted."""
        key, client = _digest(owner), _digest(client_key(address))
        return self._wait(key, self._line(key, client), limit, window)

    def in_use(self, owner: str, window: int) -> int:
        """How many addresses use the account or credential with the id `owner`."""
        return len(self._counted(self._lines(_digest(owner)), window))

    # --- without a lock ---

    def _holds(self, line: int, window: int) -> bool:
        """Whether an address counts, and does for long enough to be written without a lock."""
        words, now = self._table.words, self._now()
        return words[line + UNTIL] > now + _MARGIN and words[line + SEEN] > now - 1000 * window

    def _line(self, key: int, client: int) -> int:
        """The line of an address; `NO_LINE` if it has none."""
        line = self._places.get((key, client), NO_LINE)
        if not self._is_of(line, key, client):
            line = self._lines(key).of(client)
            if not self._is_of(line, key, client):
                return NO_LINE
            keep(self._places, (key, client), line, REMEMBERED)
        return line

    def _is_of(self, line: int, key: int, client: int) -> bool:
        words = self._table.words
        return line != NO_LINE and words[line + CLIENT] == client and words[line + KEY] == key

    def _lines(self, key: int) -> _Lines:
        words = self._table.words
        word = words[self._table.bucket(key)]
        known = self._accounts.get(key)
        if known is None or known.word != word:
            known = _Lines(word)
            for line in self._table.all_lines(key):
                if words[line + OWNER] == RELEASED:
                    known.lines.append(line)
                    known.clients.append(words[line + CLIENT])
            keep(self._accounts, key, known, REMEMBERED)
        return known

    def _counted(self, known: _Lines, window: int) -> list[int]:
        """When each address was in use last, of those that count; the first is the longest ago."""
        words, since = self._table.words, max(0, self._now() - 1000 * window)
        return sorted(seen for line in known.lines if (seen := words[line + SEEN]) > since)

    def _wait(self, key: int, line: int, limit: int, window: int) -> int:
        """What `admit` returns for an address with this line, or none."""
        now, known = self._now(), self._lines(key)
        if line and self._table.words[line + SEEN] > now - 1000 * window:
            return 0
        if known.limited != (limit, window) or known.until <= now:
            self._recount(known, limit, window, now)
        return 0 if known.most < limit else max(1, math.ceil((known.ends - now) / 1000))

    def _recount(self, known: _Lines, limit: int, window: int, now: int) -> None:
        counted = self._counted(known, window)
        known.limited, known.most = (limit, window), len(counted)
        if known.most >= limit:
            known.ends = counted[known.most - limit] + 1000 * window
            known.until = min(known.ends, now + _FRESH)
        else:
            known.until = (counted[0] if counted else now) + 1000 * window

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
                    wait = self._wait(key, self._line(key, client), limit, window)
                    if not wait:
                        self._place(key, client, window)
                    return wait
        self._patient_from = self._now() + 1000
        self._on_failure(_HANGS)
        return 0

    def _place(self, key: int, client: int, window: int) -> None:
        """Count it in its own line, in one of an address that counts no more, or in another one."""
        words, known, since = self._table.words, self._lines(key), self._now() - 1000 * window
        silent = (each for each in known.lines if words[each + SEEN] <= since)
        reused = known.of(client) or (next(silent, NO_LINE) if len(known.lines) > known.most else NO_LINE)
        line = reused or self._table.take(key, RELEASED)
        if line:
            words[line + CLIENT] = client
            self._write(line, window)
            known.put(line, client)
            known.word = self._table.changed(key)
            keep(self._places, (key, client), line, REMEMBERED)
        else:
            self._on_failure(_FULL)

    def _now(self) -> int:
        return int(1000 * self._clock())

    def __repr__(self) -> str:
        return f"<AccountClients in {self._table!r}>"


def _ignore(_detail: str) -> None:
    """Of one that only reads."""


def open_clients(
    path: Path, clock: Callable[[], float] = time.monotonic, on_failure: Callable[[str], None] = _ignore
) -> AccountClients:
    """Those in this file, which is made if it isn't there. Raises `OSError`."""
    return AccountClients(make_table(path, KIND, NO_PROCESSES, UNOWNED, clock), clock, on_failure)


@lru_cache(maxsize=2 * REMEMBERED)
def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") or 1
