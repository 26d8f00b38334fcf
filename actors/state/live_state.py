"""What one process shares, and how it reaches it: its tables, opened at first need, and the keys in them.

What can't be had now, a file or a line in it, is counted alone, and tried again a second later.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Final

from actors.bounded import keep
from actors.state.counts import LINE, Numbers, SharedKey
from actors.state.processes import NO_PROCESSES, UNOWNED, LivingProcesses, instance_of, open_processes
from actors.state.table import NO_LINE, Table, TableKind, make_table, open_table

PROXY_TABLE: Final = TableKind("proxy", pages=4, lines=1 << 18, line=LINE)
"""Of one proxy: clients, users of back ends, rules, wrong passwords, sessions."""
ACCOUNTS_TABLE: Final = TableKind("accounts", pages=128, lines=1 << 21, line=LINE)
"""Of the machine: accounts and credentials that have a limit."""

ACCOUNTS: Final = "accounts"
PROCESSES: Final = "processes"
"""Files of `RunDir.state` beside those of proxies, which have the name of their proxy, and `actors.state.usage`."""

RETRY: Final = 1.0
"""Seconds until a line that could not be had, or a file, is tried again."""
_CLAIMED_AT_ONCE: Final = 256
"""Lines in one turn of the loop, of those that could not be had before."""
CACHED_DIGESTS: Final = 4096


class Digests:
    """Numbers that stand for keys in all processes. `of_what` tells keys of several tables from each other."""

    def __init__(self, of_what: str) -> None:
        self._begun = hashlib.blake2b(digest_size=8, key=of_what.encode()[:64])
        self._known: dict[tuple[str, ...], int] = {}

    def of(self, *parts: str) -> int:
        """A number of 64 bits that isn't 0. Those of the keys that were needed last are remembered."""
        digest = self._known.get(parts)
        if digest is None:
            hashed = self._begun.copy()
            hashed.update("\0".join(parts).encode("utf-8", "surrogateescape"))
            digest = int.from_bytes(hashed.digest(), "little") or 1
            keep(self._known, parts, digest, CACHED_DIGESTS)
        return digest


Later = Callable[[float, Callable[[], None]], object]
"""Calls a function in so many seconds, as `Loop.call_later` does."""


def _ignore(_detail: str) -> None:
    """A process that counts alone in any case."""


def _never(_seconds: float, _call: Callable[[], None]) -> None:
    """A process that counts alone in any case."""


class LiveTable:
    """One table as one process uses it: opened at first need, and tried again a while after that couldn't be.

    Without it the process counts for itself alone; `on_failure` is called with the reason. `number` is that of the
    process (`actors.state.processes`), and `path` None for one that counts alone in any case.
    """

    def __init__(
        self,
        path: Path | None,
        kind: TableKind,
        processes: LivingProcesses,
        number: int,
        clock: Callable[[], float],
        on_failure: Callable[[str], None],
        later: Later,
    ) -> None:
        self._path = None if number == UNOWNED else path
        self._kind = kind
        self.processes = processes
        self._number = number
        self.clock = clock
        self.on_failure = on_failure
        self._later = later
        self._alone: dict[SharedKey, None] = {}
        """What is counted without a line, since none could be had."""
        self._timed = False
        self._table: Table | None = None
        self.numbers = Numbers(memoryview(b"").cast("B").cast("Q"))
        """Those of the table, once there is one."""
        self._retry_at = -math.inf

    def present(self) -> Table | None:
        """The table, if there is one."""
        return self._table or self._open(open_table)

    def made(self) -> Table | None:
        """The table; None when it can't be made now."""
        return self._table or self._open(make_table)

    def claim(self, key: int) -> int:
        """A line of this process for a key; `NO_LINE` when it can't have one now."""
        table = self.made()
        return NO_LINE if table is None else table.claim(key)

    def claim_later(self, counted: SharedKey) -> None:
        """It has no line: try again and again, until it has one or is released."""
        if self._path is not None:
            self._alone[counted] = None
            self._set_timer()

    def release(self, counted: SharedKey) -> None:
        """It needs no line any more."""
        self._alone.pop(counted, None)

    def _claim_again(self) -> None:
        """What fails costs a millisecond, so that the others wait then for the next time."""
        self._timed = False
        for counted in tuple(islice(self._alone, _CLAIMED_AT_ONCE)):
            del self._alone[counted]
            if not counted.claim():
                break
        self._set_timer()

    def _set_timer(self) -> None:
        if self._alone and not self._timed:
            self._timed = True
            self._later(RETRY, self._claim_again)

    def _open(self, opens: Callable[..., Table | None]) -> Table | None:
        now = self.clock()
        if self._path is None or now < self._retry_at:
            return None
        try:
            if opens is make_table:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._table = opens(self._path, self._kind, self.processes, self._number, self.clock)
        except OSError as error:
            self._retry_at = now + RETRY
            self.on_failure(str(error))
        if self._table is not None:
            self.numbers = Numbers(self._table.words)
        return self._table

    def __repr__(self) -> str:
        return f"<LiveTable {self._kind.name}: {self._table}>"


class LiveState:
    """What one process shares: of its proxy with all processes of that, of accounts with all of the machine.

    `folder` is `RunDir.state`; without it, or a number, the process counts for itself alone. What counts alone since a
    line could not be had gets one by a timer, which `later` sets.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        folder: Path | None = None,
        proxy_id: str = "",
        number: int = UNOWNED,
        on_failure: Callable[[str], None] = _ignore,
        later: Later = _never,
        worker: int = 0,
    ) -> None:
        """`worker` is the index of this process among the workers of its proxy."""
        self.number = number
        self.worker = worker
        self.instance = instance_of(number)
        self.proxy_id = proxy_id
        processes = None
        if folder is not None and number != UNOWNED:
            try:
                processes = open_processes(folder / PROCESSES)
            except OSError as error:
                on_failure(str(error))
            if processes is None:
                on_failure("the list of processes is not there, or of another release")
        if folder is None or processes is None:
            folder, processes = None, NO_PROCESSES
        self.shares = folder is not None
        """Whether it counts together with others, but for what fails for a while."""

        def table(name: str, kind: TableKind) -> LiveTable:
            path = None if folder is None else folder / name
            return LiveTable(path, kind, processes, number, clock, on_failure, later)

        self.table: Callable[[str, TableKind], LiveTable] = table
        """Returns the table in the file of this name."""
        self.proxy, self._accounts = table(proxy_id, PROXY_TABLE), table(ACCOUNTS, ACCOUNTS_TABLE)
        self.further: Callable[[TableKind], LiveTable] = lambda kind: table(f"{proxy_id}.{kind.name}", kind)
        """Returns a further table of this proxy, in a file of its own."""
        self.digests = Digests(proxy_id)
        """Of the proxy's keys."""
        self._account_digests = Digests(ACCOUNTS)

    def key(self, *parts: str) -> SharedKey:
        """A client, user of a back end or rule of this proxy, or what else is counted of it."""
        return SharedKey(self.proxy, self.digests.of(*parts))

    def account(self, *parts: str) -> SharedKey:
        """An account or a credential, on all proxies."""
        return SharedKey(self._accounts, self._account_digests.of(*parts))

    def __repr__(self) -> str:
        return f"<LiveState: process {self.number}, {self.proxy}, {self._accounts}>"
