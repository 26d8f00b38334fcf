"""Access records: pages, a tail and an export (`api.services.log_search`)."""

from __future__ import annotations

from functools import partial

from api.call import Call, Document, Reply
from api.errors import Invalid, NotFound
from api.resources.log_queries import ExportLogs, FollowLogs, LogFilters, SearchLogs, Whose, next_cursor
from api.services.account_names import may_use
from api.services.log_cursors import tail_text
from api.services.log_search import View

NDJSON = "application/x-ndjson"


def query_logs(call: Call) -> Reply:
    """Search access records.

    Returns the access records that match, newest first. Follow `next_cursor` for older ones; a search that exceeds its
    time limit returns what it found so far.
    """
    query: SearchLogs = call.query
    search = query.page(whose_records(call))
    page = call.services.log_search.page(search)
    following = next_cursor(search, page)
    data = {
        "logs": list(map(_view(call), page.rows)),
        "total": page.total,
        "total_is_lower_bound": page.at_least,
        "has_more": following is not None,
        "next_cursor": following,
        "tail_cursor": tail_text(page.upto),
    }
    return Reply(data)


def tail_logs(call: Call) -> Reply:
    """Wait for new access records.

    Waits until records arrive that match, or until `timeout` seconds have passed. Pass `next_cursor` of the response
    as `cursor` of the next request, so that no record is missed.
    """
    query: FollowLogs = call.query
    search = query.filtered(whose_records(call), limit=query.limit)
    tail = call.services.log_search.tail(search, query.cursor, query.timeout, call.caller.user.id)
    return Reply({"logs": list(map(_view(call), tail.rows)), "next_cursor": tail_text(tail.last)})


def export_logs(call: Call) -> Reply:
    """Export access records.

    Streams all matching access records, newest first, as one JSON object per line. A response that cannot be completed
    breaks off without its last chunk.
    """
    query: ExportLogs = call.query
    search = query.filtered(whose_records(call), *query.times())
    lines = call.services.log_search.export(search, _view(call), call.caller.user.id)
    headers = {"Content-Disposition": 'attachment; filename="access.ndjson"'}
    return Reply({}, headers=headers, document=Document(lines, NDJSON))


def whose_records(call: Call) -> Whose:
    """Whose records the query asks for. Raises `Invalid`."""
    query: LogFilters = call.query
    if query.account is None:
        return Whose(call.proxy_ids, query.user)
    if query.user is not None:
        raise Invalid("user", "must be left out where an account is given")
    try:
        account = call.services.fleet_accounts.get(query.account).record
    except NotFound as error:
        raise Invalid("account", "there is no such account") from error
    if account.proxies.all:
        return Whose(call.proxy_ids, account.username)
    used = (each.record for each in call.services.proxies.all() if may_use(account.proxies, each.record))
    found = (each.id for each in used if call.proxy_ids is None or each.id in call.proxy_ids)
    return Whose(tuple(found), account.username)


def _view(call: Call) -> View:
    addresses = call.caller.may("proxy.write")
    return partial(call.services.log_search.view, with_addresses=addresses, upstreams=call.upstreams)
