"""Access records for tests, the noon at which they happened, and an index that can be searched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from actors.bus.messages.records import CountLogs, LogCounts, LogPage, LogTailPage, QueryLogs
from actors.logs.index import LogIndex
from actors.logs.record_schema import empty_record
from actors.logs.search import Searcher
from config.text.access_fields import ACCESS_FIELDS

NOON = 1_800_000_000.0 - 1_800_000_000 % 86_400 + 43_200


def row(number: int, **fields: object) -> tuple[object, ...]:
    """One access record whose port is its number."""
    values: dict[str, object] = empty_record()
    values |= {"timestamp": NOON, "level": "info", "proxy_id": "p", "target_url": f"host:{number}", "status_code": 200}
    return tuple({**values, **fields}.values())


class SearchedIndex(LogIndex):
    """An index and a searcher in its folder. Its clock stands still: no search ends early on a slow machine."""

    def __init__(self, folder: Path, *more: Any) -> None:
        super().__init__(folder, *more)
        self._searcher = Searcher(folder, lambda: 0.0)

    def find(self, query: QueryLogs) -> LogPage:
        return self._searcher.find(query)

    def count(self, message: CountLogs) -> LogCounts:
        return self._searcher.count(message)

    def tail(self, query: QueryLogs, after: int) -> LogTailPage:
        return self._searcher.tail(query, after)

    def pack(self) -> None:
        """Put all records into blocks."""
        self._file.pack()

    def close(self) -> None:
        self._searcher.close()
        super().close()


def records(count: int, **fields: object) -> tuple[dict[str, Any], ...]:
    """So many access records, as a query returns them."""
    return tuple(dict(zip(ACCESS_FIELDS, row(number, **fields), strict=True)) for number in range(count))
