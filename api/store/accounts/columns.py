"""What of an account, a plan or a credential is in columns beside its body, so that it is found, and read by actors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from actors.accounts.records import AccountRecord, CredentialRecord, InheritedRules, PlanRecord, packed
from config.model.plans import schedule_data
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
    """What forwarding actors read of this account."""
    proxies = body["proxies"]
    fields = {
        **_same(AccountRecord._fields, body),
        "expires_at": body["expires_at"] or 0.0,
        "all_proxies": proxies["all"],
        "proxy_ids": tuple(proxies["ids"]),
        "proxy_tags": tuple(proxies["tags"]),
        "rules": _rules(body),
        "renewal": body.get("renewal_hash", ""),
    }
    return AccountRecord(**fields)


def plan_record(body: Mapping[str, Any]) -> PlanRecord:
    """Of this plan."""
    permitted = {f"self_service_{name}": value for name, value in body["self_service"].items()}
    return PlanRecord(**_same(PlanRecord._fields, body), **permitted, rules=_rules(body))


def credential_record(body: Mapping[str, Any]) -> CredentialRecord:
    """Of this credential."""
    limits = {name: value for name, value in body.get("limits", {}).items() if value is not None}
    return CredentialRecord(**_same(CredentialRecord._fields, body), **limits)


_INHERITED = ("allow_destinations", "deny_destinations", "policy", "egress")


def _rules(body: Mapping[str, Any]) -> InheritedRules:
    quota, schedule = body["quota"], body["schedule"]
    return InheritedRules(
        **body["limits"],
        **_same(_INHERITED, body),
        quota=None if quota is None else (quota["bytes"], quota["period"]),
        schedule=None if schedule is None else schedule_data(schedule),
    )


def _same(names: Iterable[str], body: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that records have as documents do; a list is a tuple there."""
    found = ((name, body[name]) for name in names if name in body)
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found}
