"""The table of accounts behind the store: what is committed here is there before the caller learns of it.

The table is made with the first document, and anew after each boot of the machine, since it is written without syncs
(`config.files.accounts_table`). Where it can't be written the commit stands all the same, since it is durable already:
the error says so, and the next commit, or the retry of a moment later, writes what is missing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from actors.accounts.records import AccountRecord, CredentialRecord, PlanRecord, Rules
from actors.accounts.table import TableDamaged, TableError
from actors.accounts.table_writer import PutAccount, PutCredential, PutPlan, Remove, TableChange, TableWriter, discard
from api.store.accounts.schema import ACCOUNTS, CREDENTIALS, PLANS
from api.store.interface import Change, HistoryPruned, StoreError
from config.files.accounts_table import announce, announcement, former_tables
from config.files.paths import DataDir
from config.model.schedules import schedule_data

log = logging.getLogger(__name__)

RETRY = 1.0
"""Seconds after which a table that could not be written is tried again."""


Missing = Callable[[int], AbstractContextManager[Iterable[TableChange]]]
"""What changed after a step of the store, to be read within a block. Raises `HistoryPruned`."""


class NotPublished(Exception):
    """The table could not be written; the text says why."""


class Published:
    """The table of one data directory. The owner of the store calls it, one call at a time."""

    def __init__(self, data: DataDir, store: str) -> None:
        """`store` is the id of the store."""
        self._path = data.accounts_table
        self._store = store
        self._former = former_tables(self._path)
        self._table: TableWriter | None = None

    @property
    def exists(self) -> bool:
        """Whether there is a table, or one of before."""
        return bool(self._former) or self._path.exists()

    def catch_up(self, revision: int, changes: Missing, everything: Callable[[], Iterable[Change]]) -> None:
        """Bring the table to `revision` of the store. Raises `NotPublished`.

        `changes` has what the table lacks; `everything` gives all documents of the store, for a table that is new,
        damaged or of another store.
        """
        if revision == 0 and not self.exists:
            return
        self._replace_former()
        try:
            try:
                self._bring_to(revision, changes, everything)
            except TableDamaged as error:
                log.warning("the table of accounts is damaged: %s", error)
                self.close()
                discard(self._path)
                self._bring_to(revision, changes, everything)
        except (TableError, OSError) as error:
            raise NotPublished(str(error)) from error
        self._remove_former()

    def _replace_former(self) -> None:
        """Put an empty file in the place of former tables: the disk may have no room for another one."""
        marker = announcement(self._path.parent)
        if self._former in ([], [marker]):
            return
        try:
            announce(self._path.parent)
        except OSError as error:
            log.warning("a former table of accounts stays until there is another one: %s", error)
            return
        self._remove_former()
        self._former = [marker]

    def _remove_former(self) -> None:
        """One that stays does no harm: the next start tries again."""
        former, self._former = self._former, []
        for each in former:
            try:
                discard(each)
            except OSError as error:
                log.warning("%s, a former table of accounts, cannot be removed: %s", each, error)

    def _bring_to(self, revision: int, changes: Missing, everything: Callable[[], Iterable[Change]]) -> None:
        table = self._opened()
        meta = table.meta()
        if meta is not None and meta.store == self._store and meta.revision <= revision:
            try:
                with changes(meta.revision) as missing:
                    if meta.revision < revision:
                        table.apply(missing, self._store, revision)
                return
            except HistoryPruned:
                log.info("the table of accounts is too old to be brought up to date")
        log.info("making the table of accounts anew")
        table.rebuild(map(table_change, everything()), self._store, revision)

    def close(self) -> None:
        """Close the file."""
        if self._table is not None:
            self._table.close()
            self._table = None

    def _opened(self) -> TableWriter:
        if self._table is not None and self._table.replaced:
            log.warning("%s was removed or replaced by another file", self._path)
            self.close()
            discard(self._path)
        if self._table is None:
            self._table = TableWriter.open(self._path)
        return self._table


class Retry:
    """Calls `attempt` each second in a thread of its own until it raises nothing."""

    def __init__(self, attempt: Callable[[], None]) -> None:
        self._attempt = attempt
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def under_way(self) -> bool:
        """Whether it has not succeeded yet."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin, unless it is under way."""
        if not self.under_way:
            self._thread = threading.Thread(target=self._run, name="publish-accounts", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """End it, whether it was successful or not."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(RETRY):
            try:
                self._attempt()
            except (NotPublished, StoreError):
                continue  # it was logged when it happened first
            log.info("the table of accounts is up to date again")
            return


def table_change(change: Change) -> TableChange:
    """What a change of a document is in the table."""
    if change.body is None:
        return Remove(_KINDS[change.collection], change.id)
    return _MAKERS[change.collection](change.body)


def _account(body: Mapping[str, Any]) -> TableChange:
    proxies = body["proxies"]
    record = AccountRecord(
        id=body["id"],
        username=body["username"],
        password_hash=body["password_hash"],
        enabled=body["enabled"],
        expires_at=body["expires_at"] or 0.0,
        allow_clients=tuple(body["allow_clients"]),
        all_proxies=proxies["all"],
        proxy_ids=tuple(proxies["ids"]),
        proxy_tags=tuple(proxies["tags"]),
        plan=body["plan"],
        socks4_by_name=body["socks4_by_name"],
        tags=tuple(body["tags"]),
        rules=_rules(body),
        certificates=tuple(body.get("certificates", ())),
        renewal=body.get("renewal_hash", ""),
    )
    return PutAccount(record)


def _plan(body: Mapping[str, Any]) -> TableChange:
    own, disclose = body["self_service"], body.get("disclose", True)
    return PutPlan(PlanRecord(body["id"], body["name"], _rules(body), own["password"], own["credentials"], disclose))


def _credential(body: Mapping[str, Any]) -> TableChange:
    record = CredentialRecord(
        id=body["id"],
        account_id=body["account_id"],
        name=body["name"],
        prefix=body["prefix"],
        expires_at=body["expires_at"],
        allow_clients=tuple(body["allow_clients"]),
        allow_destinations=_texts(body["allow_destinations"]),
        quota=body["quota"],
        max_connections=body["max_connections"],
    )
    return PutCredential(record, bytes.fromhex(body["secret_hash"]))


def _rules(body: Mapping[str, Any]) -> Rules:
    quota, schedule = body["quota"], body["schedule"]
    return Rules(
        **body["limits"],
        quota=None if quota is None else (quota["bytes"], quota["period"]),
        allow_destinations=_texts(body["allow_destinations"]),
        deny_destinations=_texts(body["deny_destinations"]),
        schedule=None if schedule is None else schedule_data(schedule),
        policy=body.get("policy"),
        egress=_texts(body.get("egress")),
    )


def _texts(given: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(given)


_KINDS: Mapping[str, Any] = {ACCOUNTS: "account", PLANS: "plan", CREDENTIALS: "credential"}
_MAKERS: Mapping[str, Callable[[Mapping[str, Any]], TableChange]] = {
    ACCOUNTS: _account,
    PLANS: _plan,
    CREDENTIALS: _credential,
}
