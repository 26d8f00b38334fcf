"""The file of the fleet: its documents with revisions behind a small protocol.

`interface` is what other packages see, `fleet_store` all documents of the file, `tiny` most of them, on TinyDB, `rows`
TinyDB's tables in SQLite, `accounts` those of hundreds of thousands, `schema` the tables, `fleet_file` the file as a
whole.
"""

from __future__ import annotations

from api.store.fleet_file import check_fleet_file
from api.store.fleet_store import RECOVERY_STEP, FleetStore, open_store, peek, start_over
from api.store.interface import (
    ATTEMPTS,
    Change,
    CommitRefused,
    Document,
    FleetLevel,
    HistoryPruned,
    LedgerError,
    NotStored,
    OutcomeUnknown,
    RevisionConflict,
    SignInEnded,
    Store,
    StoreDamaged,
    StoreError,
    StoreTooNew,
    StoreWriteError,
    Write,
    repeated,
)

__all__ = [
    "ATTEMPTS",
    "RECOVERY_STEP",
    "Change",
    "CommitRefused",
    "Document",
    "FleetLevel",
    "FleetStore",
    "HistoryPruned",
    "LedgerError",
    "NotStored",
    "OutcomeUnknown",
    "RevisionConflict",
    "SignInEnded",
    "Store",
    "StoreDamaged",
    "StoreError",
    "StoreTooNew",
    "StoreWriteError",
    "Write",
    "check_fleet_file",
    "open_store",
    "peek",
    "repeated",
    "start_over",
]
