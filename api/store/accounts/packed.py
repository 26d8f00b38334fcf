"""What forwarding actors read of an account, a plan or a credential, made of its document (`actors.accounts`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from actors.accounts.records import AccountRecord, CredentialRecord, InheritedRules, PlanRecord
from config.model.schedules import schedule_data


def account_record(body: Mapping[str, Any]) -> AccountRecord:
    """Of this account."""
    proxies = body["proxies"]
    return AccountRecord(
        id=body["id"],
        username=body["username"],
        password_hash=body["password_hash"],
        enabled=body["enabled"],
        expires_at=body["expires_at"] or 0.0,
        allow_clients=tuple(body["allow_clients"]),
        all_proxies=proxies["all"],
        proxy_ids=tuple(proxies["ids"]),
        proxy_tags=tuple(proxies["tags"]),
        plan=body["plan"],
        socks4_by_name=body["socks4_by_name"],
        tags=tuple(body["tags"]),
        rules=_rules(body),
        certificates=tuple(body.get("certificates", ())),
        renewal=body.get("renewal_hash", ""),
    )


def plan_record(body: Mapping[str, Any]) -> PlanRecord:
    """Of this plan."""
    own, disclose = body["self_service"], body.get("disclose", True)
    return PlanRecord(body["id"], body["name"], _rules(body), own["password"], own["credentials"], disclose)


def credential_record(body: Mapping[str, Any]) -> CredentialRecord:
    """Of this credential."""
    return CredentialRecord(
        id=body["id"],
        account_id=body["account_id"],
        name=body["name"],
        prefix=body["prefix"],
        expires_at=body["expires_at"],
        allow_clients=tuple(body["allow_clients"]),
        allow_destinations=_texts(body["allow_destinations"]),
        quota=body["quota"],
        max_connections=body["max_connections"],
    )


def _rules(body: Mapping[str, Any]) -> InheritedRules:
    quota, schedule = body["quota"], body["schedule"]
    return InheritedRules(
        **body["limits"],
        quota=None if quota is None else (quota["bytes"], quota["period"]),
        allow_destinations=_texts(body["allow_destinations"]),
        deny_destinations=_texts(body["deny_destinations"]),
        schedule=None if schedule is None else schedule_data(schedule),
        policy=body.get("policy"),
        egress=_texts(body.get("egress")),
    )


def _texts(given: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(given)
