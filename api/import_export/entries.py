"""Records as entries of the document: without what belongs to one installation, with secrets as `SecretValue`.

A `SecretValue` is only compared: `without_secrets` replaces it by null in an export.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.security.users import User
from api.services.account_views import rules_view
from api.services.object_kinds import KINDS, Record
from api.services.proxy_views import account_view, backend_view, configuration
from config.model.fleet_accounts import FleetAccount
from config.model.lists import DestinationList
from config.model.plans import Plan
from config.model.pools import Pool
from config.model.proxies import ProxyRecord
from config.model.upstreams import ProxyUpstream, upstream_view
from config.model.webhooks import WebhookRecord
from config.text.formatting import timestamp_text


class SecretValue(str):
    """A secret, as it is stored."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "SecretValue"


def without_secrets(value: Any) -> Any:
    """The same without secrets: null where there is one."""
    if isinstance(value, SecretValue):
        return None
    if isinstance(value, Mapping):
        return {name: without_secrets(item) for name, item in value.items()}
    return [without_secrets(item) for item in value] if isinstance(value, list) else value


def proxy_entry(record: ProxyRecord) -> dict[str, Any]:
    """An entry of `proxies`."""
    accounts = [
        {**_without(account_view(each), "created_at"), **_password(each.password_hash)} for each in record.accounts
    ]
    entry = {
        **_without(configuration(record), "id", "created_at", "updated_at"),
        "auth": _auth(record),
        "upstreams": [_upstream(upstream) for upstream in record.upstreams],
        "accounts": accounts,
        "tags": list(record.tags),
    }
    return entry if record.tls is not None else _without(entry, "tls")


def _auth(record: ProxyRecord) -> dict[str, Any]:
    auth = record.auth
    username = {} if auth.username is None else {"username": auth.username}
    form = {"enabled": auth.enabled, **username, **_password(auth.password_hash)}
    if auth.backend is not None:
        form["backend"] = {**backend_view(auth.backend), "secret": SecretValue(auth.backend.secret_sealed)}
    return form


def _upstream(upstream: ProxyUpstream) -> dict[str, Any]:
    return _with_password(upstream_view(upstream), upstream)


def user_entry(user: User) -> dict[str, Any]:
    """An entry of `users`, with every field: an import keeps what an entry leaves out."""
    return {
        "username": user.username,
        "email": user.email,
        "role": user.role,
        "permissions": user.permissions,
        "status": user.status,
        **_password(user.password_hash),
        "email_claimed": user.email_claimed,
        "oauth": None if user.oauth is None else user.oauth.model_dump(),
    }


def webhook_entry(record: WebhookRecord) -> dict[str, Any]:
    """An entry of `webhooks`."""
    return {
        "name": record.name,
        "url": record.url,
        "events": list(record.events),
        "headers": {name: SecretValue(value) for name, value in record.headers.items()},
        "enabled": record.enabled,
        "secret": SecretValue(record.secret_sealed),
    }


def plan_entry(plan: Plan) -> dict[str, Any]:
    """An entry of `plans`."""
    return {
        "name": plan.name,
        "description": plan.description,
        **rules_view(plan),
        "self_service": plan.self_service.model_dump(),
        "egress": plan.egress,
        "disclose": plan.disclose,
    }


def account_entry(
    account: FleetAccount, plan_names: Mapping[str, str], proxy_names: Mapping[str, str]
) -> dict[str, Any]:
    """An entry of `accounts`. Names are by ids; proxies that are deleted have none, and are left out."""
    named = account.proxies
    proxies: dict[str, Any] = {"all": True} if named.all else {}
    if named.ids or not (named.all or named.tags):
        proxies["names"] = sorted(proxy_names[each] for each in named.ids if each in proxy_names)
    if named.tags:
        proxies["tags"] = list(named.tags)
    return {
        "username": account.username,
        **_password(account.password_hash),
        "proxies": proxies,
        "plan": plan_names.get(account.plan),
        "enabled": account.enabled,
        "expires_at": None if account.expires_at is None else timestamp_text(account.expires_at),
        "allow_clients": list(account.allow_clients),
        "certificates": list(account.certificates),
        "socks4_by_name": account.socks4_by_name,
        **rules_view(account),
        "tags": list(account.tags),
        "metadata": dict(account.metadata),
    }


def object_entry(record: Record) -> dict[str, Any]:
    """An entry of `lists`, `pools` or `policies`."""
    kind = next(each for each in KINDS.values() if isinstance(record, each.model))
    entry = _without(kind.view(record), "id", kind.count, "created_at", "updated_at")
    if isinstance(record, DestinationList | Pool):
        if record.source is not None and record.source.headers is not None:
            entry["source"]["headers"] = {name: SecretValue(value) for name, value in record.source.headers.items()}
        entry = _without(entry, "source" if record.source is None else kind.entries)
    if isinstance(record, Pool) and record.source is None:
        entry["upstreams"] = [
            _with_password(each, stored) for each, stored in zip(entry["upstreams"], record.upstreams, strict=True)
        ]
    return entry


def _with_password(form: dict[str, Any], upstream: ProxyUpstream) -> dict[str, Any]:
    if "auth" in form:
        form["auth"] |= _password(upstream.password)
    return form


def _password(stored: str | None) -> dict[str, SecretValue]:
    return {} if stored is None else {"password": SecretValue(stored)}


def _without(form: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in form.items() if key not in names}
