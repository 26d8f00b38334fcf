"""The views of accounts of the fleet and of plans in the API."""

from __future__ import annotations

import time
from typing import Any

from api.services.fleet_accounts import StoredAccount, status_of
from api.services.plans import Plans, StoredPlan
from config.model.account_rules import StoredRules
from config.text.formatting import timestamp_text


def account_view(account: StoredAccount, plans: Plans) -> dict[str, Any]:
    """Every field of an account that a response has; there is no password in it."""
    record = account.record
    plan = plans.known(record.plan)
    return {
        "id": record.id,
        "username": record.username,
        "proxies": record.proxies.view(),
        "plan": None if plan is None else plan.name,
        "enabled": record.enabled,
        "expires_at": _moment(record.expires_at),
        "allow_clients": record.allow_clients,
        "socks4_by_name": record.socks4_by_name,
        **rules_view(record),
        "tags": record.tags,
        "metadata": record.metadata,
        "status": status_of(record, time.time()),
        "usage": None,
        "last_seen_at": None,
        "last_client_ip": None,
        "active_connections": None,
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
        "accounts": plan.accounts,
        "created_at": timestamp_text(record.created_at),
        "updated_at": timestamp_text(record.updated_at),
    }


def rules_view(record: StoredRules) -> dict[str, Any]:
    """The rules of an account or a plan; null where it says nothing."""
    return record.model_dump(include=set(StoredRules.model_fields))


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else timestamp_text(seconds)
