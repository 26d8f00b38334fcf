"""The views of accounts of the fleet in the API."""

from __future__ import annotations

import time
from typing import Any

from actors.bus.messages.accounts import AccountActivity
from api.engine.records import view_of
from api.objects.plans.plans import Plans
from api.services.fleet_accounts import StoredAccount, status_of
from config.model.accounts import Quota
from config.model.quotas import period_at
from config.text.formatting import timestamp_text


def account_view(
    account: StoredAccount, plans: Plans, quota: Quota, activity: AccountActivity | None
) -> dict[str, Any]:
    """Every field of an account that a response has; there is no password in it.

    `quota` is the one that holds for it. Without `activity` its usage is not known at this moment.
    """
    record = account.record
    plan = plans.known(record.plan)
    return {
        **view_of(record),
        "proxies": record.proxies.view(),
        "inline": account.inline,
        "plan": None if plan is None else plan.name,
        "status": status_of(record, time.time(), 0 < quota.bytes <= used_bytes(activity)),
        "usage": None if activity is None else usage_view(activity, quota),
        "last_seen_at": None if activity is None else _moment(activity.last_seen or None),
        "last_client_ip": None if activity is None else activity.client_ip or None,
        "active_connections": None if activity is None else activity.connections,
    }


def usage_view(activity: AccountActivity, quota: Quota) -> dict[str, Any]:
    """The usage in the present period of the quota."""
    usage, used = activity.usage, used_bytes(activity)
    until = period_at(usage.period, usage.since)[1]
    return {
        "period": usage.period,
        "period_start": None if until is None else timestamp_text(usage.since),
        "period_end": _moment(until),
        "bytes": used,
        "bytes_in": usage.bytes_in,
        "bytes_out": usage.bytes_out,
        "quota": quota.bytes or None,
        "remaining": max(0, quota.bytes - used) if quota.bytes else None,
        "active_connections": activity.connections,
    }


def used_bytes(activity: AccountActivity | None) -> int:
    """Bytes in both directions, 0 where it is not known."""
    return 0 if activity is None else activity.usage.bytes_in + activity.usage.bytes_out


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else timestamp_text(seconds)
