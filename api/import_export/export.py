"""The document of the present state."""

from __future__ import annotations

from typing import Any

from api.import_export import sealed_secrets
from api.import_export.document import KIND, VERSION
from api.import_export.entries import proxy_entry, user_entry, webhook_entry, without_secrets
from api.import_export.sealed_secrets import ProxySecrets, Secrets, UpstreamSecret, WebhookSecrets
from api.import_export.state import State
from api.store import StoreDamaged
from config.files.secret_box import SecretBox, SecretBoxError
from config.model.proxies import ProxyRecord
from config.model.upstreams import PURPOSE
from config.model.webhooks import HEADER_PURPOSE, SECRET_PURPOSE, WebhookRecord


def export(state: State) -> dict[str, Any]:
    """Everything but secrets, in an order that depends on names alone: unchanged data give an equal document."""
    hooks = sorted(state.webhooks, key=lambda each: (each.record.name, each.record.url))
    return {
        "kind": KIND,
        "version": VERSION,
        "proxies": [without_secrets(proxy_entry(state.proxies[name].record)) for name in sorted(state.proxies)],
        "users": [without_secrets(user_entry(state.users[name].record)) for name in sorted(state.users)],
        "webhooks": [without_secrets(webhook_entry(each.record)) for each in hooks],
        "settings": {group: dict(values) for group, values in sorted(state.settings.items())},
    }


def export_with_secrets(state: State, seal: SecretBox, passphrase: str) -> dict[str, Any]:
    """The same with `secrets`, which only this passphrase opens. Raises `StoreDamaged`."""
    return {**export(state), "secrets": sealed_secrets.seal(_secrets(state, seal), passphrase)}


def _secrets(state: State, seal: SecretBox) -> Secrets:
    try:
        return Secrets(
            proxies={name: _of_proxy(stored.record, seal) for name, stored in state.proxies.items()},
            users={each.record.username: each.record.password_hash for each in state.users.values()},
            webhooks=[_of_webhook(each.record, seal) for each in state.webhooks],
        )
    except SecretBoxError as error:
        raise StoreDamaged(str(error)) from error


def _of_proxy(record: ProxyRecord, seal: SecretBox) -> ProxySecrets:
    return ProxySecrets(
        auth=record.auth.password_hash,
        accounts={each.username: each.password_hash for each in record.accounts if each.password_hash is not None},
        upstreams=[
            UpstreamSecret(
                **each.model_dump(include={"protocol", "host", "port", "username"}),
                password=seal.open(each.password, PURPOSE),
            )
            for each in record.upstreams
            if each.password is not None
        ],
    )


def _of_webhook(record: WebhookRecord, seal: SecretBox) -> WebhookSecrets:
    return WebhookSecrets(
        name=record.name,
        url=record.url,
        secret=seal.open(record.secret_sealed, SECRET_PURPOSE),
        headers={name: seal.open(value, HEADER_PURPOSE) for name, value in record.headers.items()},
    )
