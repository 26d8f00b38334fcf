"""What of an account, a plan or a credential is in columns beside its body, so that it is found, and read by actors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from actors.accounts.records import AccountRecord, CredentialRecord, InheritedRules, PlanRecord, packed
from config.model.schedules import schedule_data
from config.passwords import COST, rounds_of

ACCOUNTS, PLANS, CREDENTIALS = "accounts", "plans", "credentials"

NAMED_POLICIES = """
SELECT json_extract(body, '$.policy') FROM plans WHERE json_extract(body, '$.policy') IS NOT NULL UNION
SELECT DISTINCT json_extract(body, '$.policy') FROM accounts WHERE json_extract(body, '$.policy') IS NOT NULL
"""
"""The policies that plans and accounts name; those of accounts are found in an index of theirs."""

TABLES = (PLANS, ACCOUNTS, CREDENTIALS)

MarkKind = Literal["all", "id", "tag", "label"]
"""A proxy that the account may use by its id or its tag, or all of them; a label is a tag of the account's own."""

_SEPARATOR = "\x1f"
"""No tag has a control character in it."""


def mark(kind: MarkKind, value: str = "") -> str:
    """A text that is in `marks` of an account with this mark, and of no other."""
    return f"{_SEPARATOR}{kind}={value}{_SEPARATOR}"


def columns(collection: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """What a document is found by, and what forwarding actors read of it."""
    if collection == PLANS:
        return {"name": body["name"], "packed": packed(plan_record(body))}
    if collection == CREDENTIALS:
        found = {name: body[name] for name in ("account_id", "secret_hash", "created_at", "expires_at")}
        return {**found, "packed": packed(credential_record(body))}
    rounds = rounds_of(body["password_hash"])
    return {
        "username": body["username"],
        "created_at": body["created_at"],
        "plan": body["plan"],
        "enabled": int(body["enabled"]),
        "expires_at": body["expires_at"] or 0.0,
        "search": "\n".join((body["username"], *body["metadata"].values())).lower(),
        "marks": _marks(body),
        "rounds": rounds if rounds > 1 << COST else 0,
        "packed": packed(account_record(body)),
    }


def _marks(body: Mapping[str, Any]) -> str:
    proxies = body["proxies"]
    return "".join(
        (
            mark("all") if proxies["all"] else "",
            *(mark("id", each) for each in proxies["ids"]),
            *(mark("tag", each) for each in proxies["tags"]),
            *(mark("label", each) for each in body["tags"]),
        )
    )


def known(collection: str) -> str:
    """The name of a table, for a statement. Raises `KeyError` for any other text."""
    if collection not in TABLES:
        raise KeyError(collection)
    return collection


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
