"""A plugin of pytest by which TinyDB's own tests get databases on rows, with TinyDB's numbers for ids."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
import tinydb

from api.store.rows import SCHEMA, RowDatabase, RowStorage, RowTable


class NumberedTable(RowTable):
    document_id_class = int  # type: ignore[assignment]

    def __init__(self, storage: RowStorage, name: str, cache_size: int = 10, persist_empty: bool = False) -> None:
        super().__init__(storage, name, cache_size, persist_empty)


class NumberedDatabase(RowDatabase):
    table_class = NumberedTable

    def __init__(self, *_arguments: Any, storage: Any = None, **_more: Any) -> None:
        of_tinydb = storage is None or getattr(storage, "__module__", "").startswith("tinydb.")
        super().__init__(storage=rows if of_tinydb else storage)


def rows(*_arguments: Any, **_more: Any) -> RowStorage:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(SCHEMA)
    return RowStorage(connection)


@pytest.fixture
def db() -> NumberedDatabase:
    """As in TinyDB's conftest, whose place this module takes."""
    made = NumberedDatabase()
    made.insert_multiple({"int": 1, "char": each} for each in "abc")
    return made


def pytest_configure() -> None:
    tinydb.TinyDB = NumberedDatabase  # type: ignore[misc]
