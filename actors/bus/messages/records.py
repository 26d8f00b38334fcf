"""Questions for the log indexer."""

from __future__ import annotations

from typing import Any

from actors.bus.codec import message


@message
class QueryLogs:
    """API → log indexer. Newest first; `search` is words that must all occur. Answered by `LogPage`.

    `level` is exact, `min_level` at least; the others are exact too; None means all.
    `start` and `end` are Unix seconds; `proxy_ids` None means all.
    """

    start: float
    end: float
    limit: int
    offset: int
    level: str | None
    search: str | None
    proxy_ids: tuple[str, ...] | None
    min_level: str | None = None
    client_ip: str | None = None
    status_code: int | None = None


@message
class LogPage:
    """Log indexer → API: the rows as maps with the names of `records.ACCESS_FIELDS`, and how many there are in all."""

    rows: tuple[dict[str, Any], ...]
    total: int
