"""The document of the present state."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from api.engine.transfer import without_secrets
from api.errors import Invalid
from api.import_export.account_entries import names_of
from api.import_export.document import KIND, VERSION, PlacedSecrets, ProxySecrets, Secrets, UpstreamSecret, seal_secrets
from api.import_export.present_state import State
from api.objects.accounts.account_kind import ACCOUNTS
from api.objects.kinds import KINDS
from api.objects.webhooks.webhook_kind import WEBHOOKS
from api.store import StoreDamaged
from api.store.accounts import AccountSelection, AccountStore
from config.files.secret_box import SecretBox, sealing_as
from config.model.fleet_accounts import FleetAccount
from config.model.proxies import ProxyRecord
from config.model.proxy_parts import BACKEND_PURPOSE
from config.model.shared_objects.lists import DestinationList
from config.model.shared_objects.pools import Pool
from config.model.shared_objects.upstreams import PURPOSE, ProxyUpstream
from config.model.webhooks import SECRET_PURPOSE, WebhookRecord, opened_headers

MOST_ACCOUNTS = ACCOUNTS.in_document or 0
"""More of them are exported and imported as CSV."""


def read_accounts(store: AccountStore) -> list[FleetAccount]:
    """All accounts of the fleet. Raises `Invalid` if they are too many for a document."""
    count = store.count(ACCOUNTS.collection)
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
    sections: dict[str, Any] = {}
    for name, found in state.records.items():
        transfer = KINDS[name].transfer
        records = sorted((each.record for each in found), key=transfer.key)
        sections[name] = [without_secrets(transfer.entry(each)) for each in records]
        if name == WEBHOOKS.collection:
            sections["settings"] = {group: dict(values) for group, values in sorted(state.settings.items())}
    if accounts is not None:
        sections["accounts"] = list(map(without_secrets, _account_entries(state, accounts)))
    return {"kind": KIND, "version": VERSION, **sections}


def _account_entries(state: State, accounts: Sequence[FleetAccount]) -> list[dict[str, Any]]:
    entries = list(map(names_of(state, {}).entry, accounts))
    return sorted(entries, key=lambda each: (each["username"], json.dumps(each["proxies"])))


def export_with_secrets(
    state: State, accounts: Sequence[FleetAccount] | None, seal: SecretBox, passphrase: str
) -> dict[str, Any]:
    """The same with `secrets`, which only this passphrase opens. Raises `StoreDamaged`."""
    secrets = _secrets(state, accounts or (), seal)
    return {**export(state, accounts), "secrets": seal_secrets(secrets, passphrase)}


def _secrets(state: State, accounts: Sequence[FleetAccount], seal: SecretBox) -> Secrets:
    hashes: dict[str, list[str | None]] = {}
    for entry in _account_entries(state, accounts):
        hashes.setdefault(entry["username"], []).append(entry.get("password"))
    proxies, users, webhooks, pools, lists = (
        [each.record for each in state.records[name]] for name in ("proxies", "users", "webhooks", "pools", "lists")
    )
    with sealing_as(StoreDamaged):
        return Secrets(
            proxies={each.name: _of_proxy(each, seal) for each in proxies},
            users={each.username: each.password_hash for each in users},
            webhooks=[_of_webhook(each, seal) for each in webhooks],
            accounts=hashes,
            pools={each.name: _of_upstreams(each.upstreams, seal) for each in pools},
            lists=list(_of_sources(lists, seal)),
            pool_sources=list(_of_sources(pools, seal)),
        )


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


def _of_sources(records: Iterable[DestinationList | Pool], seal: SecretBox) -> Iterator[PlacedSecrets]:
    for record in records:
        source = record.source
        if source is not None and source.headers:
            yield PlacedSecrets(name=record.name, url=source.place, headers=opened_headers(source.headers, seal))


def _of_webhook(record: WebhookRecord, seal: SecretBox) -> PlacedSecrets:
    secret = seal.open(record.secret_sealed, SECRET_PURPOSE)
    return PlacedSecrets(name=record.name, url=record.url, headers=opened_headers(record.headers, seal), secret=secret)
