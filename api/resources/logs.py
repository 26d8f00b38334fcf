"""Access records, asked of the log indexer."""

from __future__ import annotations

import time
from typing import Any

from actors.bus.messages import LOGS, Failed, LogPage, QueryLogs
from api.http.call import Call, Reply
from api.http.errors import internal, invalid
from api.http.query import Query
from config.units import timestamp_text

LEVELS = ("debug", "info", "warning", "error", "critical")
HOUR = 3600.0
SEARCH_MAX = 500
WORDS_MAX = 20


def query_logs(call: Call) -> Reply:
    """Newest first. A key with a scope sees only the records of the proxies in it."""
    question = _question(call)
    page = call.services.bridge.ask(LOGS, question)
    if not isinstance(page, LogPage):
        failed = isinstance(page, Failed)
        raise internal(call.request_id, "The log can't be read" if failed else "The log indexer does not answer")
    more = question.offset + len(page.rows) < page.total
    return Reply({"logs": [_entry(row) for row in page.rows], "total": page.total, "has_more": more})


def _question(call: Call) -> QueryLogs:
    now = time.time()
    query = call.query
    query.refuse_others()
    return QueryLogs(
        start=query.moment("start_time", now - HOUR),
        end=query.moment("end_time", now),
        limit=query.integer("limit", 100, 1, 1000),
        offset=query.integer("offset", 0, 0, 1_000_000_000),
        level=query.one_of("level", LEVELS),
        min_level=query.one_of("min_level", LEVELS),
        client_ip=query.address("client_ip"),
        status_code=query.integer("status_code", 0, 100, 599) or None,
        search=_words(query),
        proxy_ids=_proxy_ids(call, query.text("proxy_id")),
    )


def _words(query: Query) -> str | None:
    search = query.text("search") or None
    if search is not None and (len(search) > SEARCH_MAX or len(search.split()) > WORDS_MAX):
        raise invalid("search", f"must have at most {SEARCH_MAX} characters and {WORDS_MAX} words")
    return search


def _proxy_ids(call: Call, wanted: str | None) -> tuple[str, ...] | None:
    scope = call.caller.scope
    if scope is None:
        return None if wanted is None else (wanted,)
    return tuple(sorted(scope)) if wanted is None else tuple(scope & {wanted})


def _entry(row: dict[str, Any]) -> dict[str, Any]:
    reason = f" ({row['reason']})" if row.get("reason") else ""
    message = f"{row.get('method', '')} {row.get('target_url', '')} {row.get('status_code', '')}{reason}"
    return {
        **row,
        "timestamp": timestamp_text(row["timestamp"]),
        "response_time": round(row["response_time"]),
        "message": row.get("message") or message.strip(),
    }
