"""The accounts of the fleet as one proxy sees them. Only the zygote loads this before it forks: it opens nothing.

What can't be opened or read, or not at once, is a problem of the proxy, and is opened again every `RETRY` seconds.
Meanwhile accounts of the fleet can't authenticate; connections that are open go on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

from actors.accounts.records import AccountRecord, CredentialRecord, effective
from actors.accounts.table import AccountTable, Changed, TableError, digest_of
from actors.bus.loop import Loop
from actors.bus.messages.common import ACCOUNTS_TABLE
from actors.forwarding.limits.held_accounts import FoundAccount, UnreadableError
from actors.problems import ActiveProblems

RETRY = 0.5
"""Seconds."""
REPLACED_CHECKED = 0.2
"""Seconds between two checks whether another file has taken the place: so few that each poll of the accounts that are
held makes one."""

T = TypeVar("T")

_FAULTS = (TableError, ValueError, TypeError)
"""The last two: what is in it is no record of this release."""


class Fleet:
    """The table. Everything that reads raises `UnreadableError` while it can't be read."""

    def __init__(self, loop: Loop, problems: ActiveProblems, path: Path) -> None:
        self._loop = loop
        self._problems = problems
        self._path = path
        self._table: AccountTable | None = None
        self._failed = False
        self._checked = 0.0
        self.opened = 0
        """How many times a file was opened: the revisions of two have nothing to do with each other."""
        self._open()

    # --- look-ups ---

    def state(self) -> tuple[int, int]:
        """Which file it is and its last revision; another value means that something may have changed."""
        if self._loop.now - self._checked >= REPLACED_CHECKED:
            self._checked = self._loop.now
            if self._table is not None and self._table.replaced:
                self._close()
                self._open()
        return self.opened, self._read(lambda table: table.revision)

    def changes(self, since: int) -> set[Changed] | None:
        """As `AccountTable.changes`."""
        return self._read(lambda table: table.changes(since))

    def named(self, username: str, proxy_id: str, tags: Collection[str]) -> FoundAccount | None:
        """The account with this user name that may use the proxy."""

        def find(table: AccountTable) -> FoundAccount | None:
            accounts = table.accounts_named(username)
            return next((_found(table, each) for each in accounts if each.may_use(proxy_id, tags)), None)

        return self._read(find)

    def certified(self, entries: Collection[str], proxy_id: str, tags: Collection[str]) -> list[FoundAccount]:
        """The accounts with any of these entries for certificates that may use the proxy."""

        def find(table: AccountTable) -> list[FoundAccount]:
            accounts = {each.id: each for entry in entries for each in table.accounts_certified(entry)}
            return [_found(table, each) for each in accounts.values() if each.may_use(proxy_id, tags)]

        return self._read(find)

    def most_rounds(self) -> int:
        """As `AccountTable.most_rounds`."""
        return self._read(AccountTable.most_rounds)

    def account(self, identifier: str, proxy_id: str, tags: Collection[str]) -> FoundAccount | None:
        """The account with this id, if it may use the proxy."""

        def find(table: AccountTable) -> FoundAccount | None:
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

    def _read(self, look_up: Callable[[AccountTable], T]) -> T:
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
            self._table = AccountTable(self._path)
        except TableError as error:
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


def _found(table: AccountTable, account: AccountRecord) -> FoundAccount:
    plan = table.plan(account.plan) if account.plan else None
    return FoundAccount(effective(account, plan), account.plan)
