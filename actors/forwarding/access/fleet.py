"""The table of accounts as one proxy sees it. Only the zygote loads it in advance, before it forks: it opens nothing.

What can't be opened or read is a problem of the proxy, and is opened again every `RETRY` seconds. Meanwhile accounts of
the table can't authenticate; connections that are open go on. A table whose file was removed is read as it was until
the API has made another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

from actors.accounts.records import AccountRecord, CredentialRecord, effective
from actors.accounts.table import VERSION, Changed, Table, TableError, TableReader, digest_of
from actors.bus.loop import Loop
from actors.bus.messages.problems import ACCOUNTS_TABLE
from actors.forwarding.limits.held_accounts import Found, UnreadableError
from actors.problems import Problems

RETRY = 0.5
"""Seconds."""
REPLACED_CHECKED = 0.2
"""Seconds between two checks whether another file has taken the table's place, or it was cut short: so few that each
poll of the accounts that are held makes one."""

T = TypeVar("T")

_FAULTS = (TableError, ValueError, TypeError)
"""The last two: what is in it is no record of this version."""


class Fleet:
    """The table. Everything that reads raises `UnreadableError` while it can't be read."""

    def __init__(self, loop: Loop, problems: Problems, path: Path, open_table: Callable[[Path], Table]) -> None:
        self._loop = loop
        self._problems = problems
        self._path = path
        self._open_table = open_table
        self._table: Table | None = None
        self._failed = False
        self._checked = 0.0
        self.opened = 0
        """How many times a table was opened: the revisions of two have nothing to do with each other."""
        self._open()

    # --- look-ups ---

    def state(self) -> tuple[int, str, int]:
        """Which table it is and its last revision; another value means that something may have changed."""
        if self._loop.now - self._checked >= REPLACED_CHECKED:
            self._checked = self._loop.now
            if isinstance(self._table, TableReader) and self._table.replaced and not self._table.removed:
                self._close()
                self._open()
        meta = self._read(Table.meta)
        return (self.opened, "", 0) if meta is None else (self.opened, meta.store, meta.revision)

    def changes(self, since: int) -> set[Changed] | None:
        """As `Table.changes`."""
        return self._read(lambda table: table.changes(since))

    def named(self, username: str, proxy_id: str, tags: Collection[str]) -> Found | None:
        """The account with this user name that may use the proxy."""

        def find(table: Table) -> Found | None:
            accounts = table.accounts_named(username)
            return next((_found(table, each) for each in accounts if each.may_use(proxy_id, tags)), None)

        return self._read(find)

    def certified(self, entries: Collection[str], proxy_id: str, tags: Collection[str]) -> list[Found]:
        """The accounts with any of these entries for certificates that may use the proxy."""

        def find(table: Table) -> list[Found]:
            accounts = {each.id: each for entry in entries for each in table.accounts_certified(entry)}
            return [_found(table, each) for each in accounts.values() if each.may_use(proxy_id, tags)]

        return self._read(find)

    def most_rounds(self) -> int:
        """As `Table.most_rounds`."""
        return self._read(Table.most_rounds)

    def account(self, identifier: str, proxy_id: str, tags: Collection[str]) -> Found | None:
        """The account with this id, if it may use the proxy."""

        def find(table: Table) -> Found | None:
            account = table.account(identifier)
            return _found(table, account) if account is not None and account.may_use(proxy_id, tags) else None

        return self._read(find)

    def credential(self, secret: str) -> CredentialRecord | None:
        """The credential with this secret."""
        return self._read(lambda table: table.credential(digest_of(secret)))

    def credential_by_id(self, identifier: str) -> CredentialRecord | None:
        """The credential with this id."""
        return self._read(lambda table: table.credential_by_id(identifier))

    # --- faults ---

    def _read(self, look_up: Callable[[Table], T]) -> T:
        if self._table is None:
            raise UnreadableError(f"{self._path} can't be read")
        try:
            return look_up(self._table)
        except _FAULTS as error:
            self._close()
            self._fail(error)
            raise UnreadableError(f"{self._path}: {error}") from error

    def _open(self) -> None:
        try:
            self._table = table = self._open_table(self._path)
            meta = table.meta()
            if meta is None:
                raise TableError(f"{self._path}: is being made")
            if meta.version != VERSION:
                raise TableError(f"{self._path}: it is of version {meta.version}, not {VERSION}")
        except _FAULTS as error:
            self._close()
            self._fail(error)
            return
        self.opened += 1
        if self._failed:
            self._failed = False
            self._problems.ends(ACCOUNTS_TABLE, "the table of accounts can be read again")

    def _close(self) -> None:
        table, self._table = self._table, None
        if table is not None:
            table.close()

    def _fail(self, error: Exception) -> None:
        self._failed = True
        self._problems.begins(ACCOUNTS_TABLE, f"the table of accounts can't be read: {error}")
        self._loop.call_later(RETRY, self._open)

    def __repr__(self) -> str:
        return f"<Fleet {self._path}, {'open' if self._table is not None else 'unreadable'}>"


def _found(table: Table, account: AccountRecord) -> Found:
    plan = table.plan(account.plan) if account.plan else None
    return Found(effective(account, plan), account.plan)
