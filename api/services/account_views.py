"""The views of accounts of the fleet and of plans in the API."""

from __future__ import annotations

import time
from typing import Any

from actors.bus.messages.accounts import AccountActivity
from api.services.fleet_accounts import StoredAccount, status_of
from api.services.plans import Plans, StoredPlan
from config.model.account_rules import StoredRules
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
        "id": record.id,
        "username": record.username,
        "proxies": record.proxies.view(),
        "inline": account.inline,
        "plan": None if plan is None else plan.name,
        "enabled": record.enabled,
        "expires_at": _moment(record.expires_at),
        "allow_clients": record.allow_clients,
        "certificates": record.certificates,
        "socks4_by_name": record.socks4_by_name,
        **rules_view(record),
        "tags": record.tags,
        "metadata": record.metadata,
        "status": status_of(record, time.time(), 0 < quota.bytes <= used_bytes(activity)),
        "usage": None if activity is None else usage_view(activity, quota),
        "last_seen_at": None if activity is None else _moment(activity.last_seen or None),
        "last_client_ip": None if activity is None else activity.client_ip or None,
        "active_connections": None if activity is None else activity.connections,
        "created_at": timestamp_text(record.created_at),
        "updated_at": timestamp_text(record.updated_at),
    }


def plan_view(plan: StoredPlan) -> dict[str, Any]:
    """Every field of a plan."""
    record = plan.record
    return {
        "id": record.id,
        "name": record.name,
        "description": record.description,
        **rules_view(record),
        "self_service": record.self_service.model_dump(),
        "egress": record.egress,
        "disclose": record.disclose,
        "accounts": plan.accounts,
        "created_at": timestamp_text(record.created_at),
        "updated_at": timestamp_text(record.updated_at),
    }


def rules_view(record: StoredRules) -> dict[str, Any]:
    """The rules of an account or a plan; null where it says nothing."""
    return record.model_dump(include=set(StoredRules.model_fields))


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
