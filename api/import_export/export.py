"""The document of the present state."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from api.errors import Invalid
from api.import_export import sealed_secrets
from api.import_export.document import KIND, MOST_ACCOUNTS, VERSION
from api.import_export.entries import (
    account_entry,
    object_entry,
    plan_entry,
    proxy_entry,
    user_entry,
    webhook_entry,
    without_secrets,
)
from api.import_export.sealed_secrets import ProxySecrets, Secrets, SourceSecrets, UpstreamSecret, WebhookSecrets
from api.import_export.state import State, StoredRecord
from api.store import StoreDamaged
from api.store.accounts import ACCOUNTS, AccountSelection, AccountStore
from config.files.secret_box import SecretBox, SecretBoxError
from config.model.auth_backend import PURPOSE as BACKEND_PURPOSE
from config.model.fleet_accounts import FleetAccount
from config.model.lists import DestinationList
from config.model.pools import Pool
from config.model.proxies import ProxyRecord
from config.model.upstreams import PURPOSE, ProxyUpstream
from config.model.webhooks import SECRET_PURPOSE, WebhookRecord, opened_headers


def read_accounts(store: AccountStore) -> list[FleetAccount]:
    """All accounts of the fleet. Raises `Invalid` if they are too many for a document."""
    count = store.count(ACCOUNTS)
    if count > MOST_ACCOUNTS:
        text = (
            f"there are {count} accounts, and a document has {MOST_ACCOUNTS} at most: omit them, and export them as CSV"
        )
        raise Invalid("accounts", text)
    found, _ = store.account_page(AccountSelection(), None, MOST_ACCOUNTS)
    return [FleetAccount.model_validate(each.body) for each in found]


def export(state: State, accounts: Sequence[FleetAccount] | None) -> dict[str, Any]:
    """Everything but secrets, in an order that depends on names alone: unchanged data give an equal document.

    Without `accounts` of the fleet that section is left out.
    """
    hooks = sorted(state.webhooks, key=lambda each: (each.record.name, each.record.url))
    return {
        "kind": KIND,
        "version": VERSION,
        "proxies": [without_secrets(proxy_entry(state.proxies[name].record)) for name in sorted(state.proxies)],
        "users": [without_secrets(user_entry(state.users[name].record)) for name in sorted(state.users)],
        "webhooks": [without_secrets(webhook_entry(each.record)) for each in hooks],
        "settings": {group: dict(values) for group, values in sorted(state.settings.items())},
        "plans": [plan_entry(state.plans[name].record) for name in sorted(state.plans)],
        **{name: _object_entries(found) for name, found in state.objects.items()},
        **({} if accounts is None else {"accounts": list(map(without_secrets, _account_entries(state, accounts)))}),
    }


def _object_entries(stored: Mapping[str, StoredRecord[Any]]) -> list[Any]:
    return [without_secrets(object_entry(stored[name].record)) for name in sorted(stored)]


def _account_entries(state: State, accounts: Sequence[FleetAccount]) -> list[dict[str, Any]]:
    plans = {each.record.id: name for name, each in state.plans.items()}
    proxies = {each.record.id: name for name, each in state.proxies.items()}
    entries = [account_entry(each, plans, proxies) for each in accounts]
    return sorted(entries, key=lambda each: (each["username"], json.dumps(each["proxies"])))


def export_with_secrets(
    state: State, accounts: Sequence[FleetAccount] | None, seal: SecretBox, passphrase: str
) -> dict[str, Any]:
    """The same with `secrets`, which only this passphrase opens. Raises `StoreDamaged`."""
    secrets = _secrets(state, accounts or (), seal)
    return {**export(state, accounts), "secrets": sealed_secrets.seal(secrets, passphrase)}


def _secrets(state: State, accounts: Sequence[FleetAccount], seal: SecretBox) -> Secrets:
    hashes: dict[str, list[str | None]] = {}
    for entry in _account_entries(state, accounts):
        hashes.setdefault(entry["username"], []).append(entry.get("password"))
    try:
        return Secrets(
            proxies={name: _of_proxy(stored.record, seal) for name, stored in state.proxies.items()},
            users={each.record.username: each.record.password_hash for each in state.users.values()},
            webhooks=[_of_webhook(each.record, seal) for each in state.webhooks],
            accounts=hashes,
            pools={name: _of_upstreams(each.record.upstreams, seal) for name, each in state.objects["pools"].items()},
            lists=list(_of_sources((each.record for each in state.objects["lists"].values()), seal)),
            pool_sources=list(_of_sources((each.record for each in state.objects["pools"].values()), seal)),
        )
    except SecretBoxError as error:
        raise StoreDamaged(str(error)) from error


def _of_proxy(record: ProxyRecord, seal: SecretBox) -> ProxySecrets:
    backend = record.auth.backend
    return ProxySecrets(
        auth=record.auth.password_hash,
        accounts={each.username: each.password_hash for each in record.accounts if each.password_hash is not None},
        upstreams=_of_upstreams(record.upstreams, seal),
        backend=None if backend is None else seal.open(backend.secret_sealed, BACKEND_PURPOSE),
    )


def _of_upstreams(upstreams: Iterable[ProxyUpstream], seal: SecretBox) -> list[UpstreamSecret]:
    return [
        UpstreamSecret(
            **each.model_dump(include={"protocol", "host", "port", "username"}),
            password=seal.open(each.password, PURPOSE),
        )
        for each in upstreams
        if each.password is not None
    ]


def _of_sources(records: Iterable[DestinationList | Pool], seal: SecretBox) -> Iterator[SourceSecrets]:
    for record in records:
        source = record.source
        if source is not None and source.headers:
            yield SourceSecrets(name=record.name, url=source.place, headers=opened_headers(source.headers, seal))


def _of_webhook(record: WebhookRecord, seal: SecretBox) -> WebhookSecrets:
    return WebhookSecrets(
        name=record.name,
        url=record.url,
        secret=seal.open(record.secret_sealed, SECRET_PURPOSE),
        headers=opened_headers(record.headers, seal),
    )
