"""The configuration store: documents with revisions behind a small protocol.

`interface` is what other packages see, `tiny` the embedded store on TinyDB, `storage` writes one collection to the
disk, `commit_journal` several of them atomically, `view` serves readers, `migration` brings data of older releases
forward.
"""

from __future__ import annotations

from api.store.commit_journal import check_files
from api.store.interface import (
    Change,
    Document,
    HistoryPruned,
    NotInEffect,
    NotStored,
    RevisionConflict,
    Store,
    StoreDamaged,
    StoreError,
    StoreTooNew,
    StoreWriteError,
    Write,
)
from api.store.tiny import COLLECTIONS, RECOVERY_STEP, TinyStore, open_store, start_over

__all__ = [
    "COLLECTIONS",
    "RECOVERY_STEP",
    "Change",
    "Document",
    "HistoryPruned",
    "NotInEffect",
    "NotStored",
    "RevisionConflict",
    "Store",
    "StoreDamaged",
    "StoreError",
    "StoreTooNew",
    "StoreWriteError",
    "TinyStore",
    "Write",
    "check_files",
    "open_store",
    "start_over",
]
