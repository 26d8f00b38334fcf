"""What proxies refused to a credential: of a job that has ended, for those who may do no more than make such."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from actors.bus.messages.accounts import CREDENTIAL
from actors.bus.messages.records import CountLogs, QueryLogs
from actors.forwarding.protocols.failures import TLS_NAME_DENIED
from actors.forwarding.stats import DENIALS
from actors.logs.counting import host_of, port_of
from api.call import Call, Reply
from api.errors import NotFound
from api.http.query import Query, moment

HOUR = 3600.0
RECORDS_READ = 1000
"""Records of one reason that are read, the newest."""
REFUSALS_MAX = 500
"""Entries of one response."""
_REASONS_COUNTED = 100

Found = dict[tuple[str, int | None, str, str, str, str], dict[str, Any]]
"""Entries by host, port, reason, rule, proxy, and what was wrong with the name in the TLS handshake (`_kind`)."""


class CredentialRefusals(Query):
    """The time range."""

    start_time: float | None = moment("Not before; an hour ago by default")


def list_refusals(call: Call) -> Reply:
    """List what was refused to a credential.

    Returns the requests with this credential that proxies have refused, by target, reason and rule, those with most
    records first. It can still be asked when the credential is revoked. `complete` is false when there were more than
    could be read. For a key that only makes credentials `rule` and `detail` are empty where the plan of the account
    doesn't disclose them to clients.
    """
    query: CredentialRefusals = call.query
    account = call.services.fleet_accounts.get(call.params["account_id"]).record
    if not call.params["credential_id"].startswith(CREDENTIAL):  # an empty one would find the requests by password
        raise NotFound("The credential")
    now = time.time()
    start = now - HOUR if query.start_time is None else query.start_time
    search = QueryLogs(
        start,
        max(start, now),
        RECORDS_READ,
        0,
        level=None,
        search=None,
        proxy_ids=None,
        user=account.username,
        credential=call.params["credential_id"],
        count=False,
    )
    plan = call.services.plans.known(account.plan)
    disclosed = call.caller.account_scope is None or plan is None or plan.disclose
    reasons, complete = _reasons(call, search)
    found: Found = {}
    for reason in reasons:
        page = call.services.log_search.page(replace(search, reason=reason))
        complete = complete and page.next is None
        for row in page.rows if disclosed else map(_undisclosed, page.rows):
            _count(found, call, row)
    most = sorted(found.values(), key=lambda each: (-each["records"], each["host"], each["reason"]))
    return Reply({"refusals": most[:REFUSALS_MAX], "complete": complete and len(most) <= REFUSALS_MAX})


def _reasons(call: Call, search: QueryLogs) -> tuple[list[str], bool]:
    """The reasons of refusals that there are, and whether these are all."""
    counts = call.services.log_search.count(
        CountLogs(search, max(1, int(search.end - search.start) + 1), ("reason",), _REASONS_COUNTED),
        call.caller.user.id,
    )
    return [reason for reason, *_ in counts.values.get("reason", ()) if reason in DENIALS], counts.exact


def _undisclosed(row: dict[str, Any]) -> dict[str, Any]:
    """The record without what a plan keeps from clients: the output of a job is where they could read it."""
    return {**row, "rule": "", "detail": ""}


def _count(found: Found, call: Call, row: dict[str, Any]) -> None:
    """Add a record; rows come newest first."""
    host, port = host_of(row["target_url"]), port_of(row["target_url"])
    key = host, port, row["reason"], row["rule"], row["proxy_id"], _kind(row)
    entry = found.get(key)
    if entry is not None:
        entry["records"] += 1
        return
    view = call.services.log_search.view(row, with_addresses=False, upstreams=frozenset())
    taken = {name: view[name] for name in ("reason", "rule", "detail", "proxy_name")}
    new = {"host": host, "port": port, "records": 1, "last_at": view["timestamp"], **taken}
    found[key] = new


def _kind(row: dict[str, Any]) -> str:
    """`mismatch`, `not_tls`…, which is in front of a detail about the name; empty for other reasons."""
    return str(row["detail"]).partition(":")[0] if row["reason"] == TLS_NAME_DENIED else ""
