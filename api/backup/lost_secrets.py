"""A restore without the keys: what was sealed with them is removed, and the operator learns what to enter again.

Hashed secrets (passwords of users and accounts, API keys) need no key and are restored. Sealed ones, which the product
sends to others, are lost: passwords for upstream proxies, signing secrets of webhooks and authentication back ends,
header values of webhooks and of sources of lists and pools.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from api.services import pool_sources
from api.store import Store
from api.store.interface import Write
from config.files.secret_box import SecretBox, SecretBoxError
from config.model.auth_backend import PURPOSE as BACKEND_PURPOSE
from config.model.lists import DestinationList
from config.model.pools import Pool
from config.model.proxies import ProxyRecord
from config.model.sources import S
from config.model.upstreams import PURPOSE, U
from config.model.webhooks import HEADER_PURPOSE, SECRET_PURPOSE, WebhookRecord, new_secret


@dataclass(frozen=True, slots=True)
class LostSecret:
    """One secret that could not be opened: the kind and name of its resource, and the field."""

    kind: str
    name: str
    field: str


def remove(store: Store, seal: SecretBox) -> list[LostSecret]:
    """Remove from `store` each secret that `seal` does not open, in one commit.

    Raises `SecretBoxError`, `StoreError`.
    """
    lost: list[LostSecret] = []
    sources = (_from_proxies, _from_pools, _fetched, _from_lists, _from_webhooks)
    writes = [write for each in sources for write in each(store, seal, lost)]
    if writes:
        store.commit(writes)
    return lost


def _opens(seal: SecretBox, sealed: str, purpose: str) -> bool:
    try:
        seal.open(sealed, purpose)
    except SecretBoxError:
        return False
    return True


def _from_proxies(store: Store, seal: SecretBox, lost: list[LostSecret]) -> Iterator[Write]:
    for document in store.find("proxies"):
        before = ProxyRecord.model_validate(document.body)
        record, fields = openable_proxy(before, seal)
        if fields:
            lost += [LostSecret("proxies", record.name, field) for field in fields]
            yield Write("proxies", document.id, record.model_dump(mode="json"))


def openable_proxy(record: ProxyRecord, seal: SecretBox) -> tuple[ProxyRecord, list[str]]:
    """The proxy without the secrets that `seal` does not open, and their fields. Raises `SecretBoxError`."""
    kept = [_without_password(each, seal) for each in record.upstreams]
    fields = [f"upstreams[{index}].auth.password" for index, each in enumerate(kept) if each != record.upstreams[index]]
    auth = record.auth
    if auth.backend is not None and not _opens(seal, auth.backend.secret_sealed, BACKEND_PURPOSE):
        fields.append("auth.backend.secret")
        backend = auth.backend.model_copy(update={"secret_sealed": seal.seal(new_secret(), BACKEND_PURPOSE)})
        auth = auth.model_copy(update={"backend": backend})
    return (record.model_copy(update={"upstreams": kept, "auth": auth}) if fields else record), fields


def _from_pools(store: Store, seal: SecretBox, lost: list[LostSecret]) -> Iterator[Write]:
    for document in store.find("pools"):
        record, fields = openable_pool(Pool.model_validate(document.body), seal)
        if fields:
            lost += [LostSecret("pools", record.name, field) for field in fields]
            yield Write("pools", document.id, record.model_dump(mode="json"))


def openable_pool(record: Pool, seal: SecretBox) -> tuple[Pool, list[str]]:
    """As `openable_proxy`."""
    kept = [_without_password(each, seal) for each in record.upstreams]
    fields = [f"upstreams[{index}].auth.password" for index, each in enumerate(kept) if each != record.upstreams[index]]
    source, of_source = _openable_source(record.source, seal)
    fields += of_source
    return (record.model_copy(update={"upstreams": kept, "source": source}) if fields else record), fields


def _fetched(store: Store, seal: SecretBox, _lost: list[LostSecret]) -> Iterator[Write]:
    """Upstreams that were fetched with passwords are fetched once more."""
    for document in store.find(pool_sources.COLLECTION):
        record = pool_sources.FetchedUpstreams.model_validate(document.body)
        if any(_without_password(each, seal) is not each for each in record.upstreams):
            yield Write(pool_sources.COLLECTION, document.id, None)


def _from_lists(store: Store, seal: SecretBox, lost: list[LostSecret]) -> Iterator[Write]:
    for document in store.find("lists"):
        record, fields = openable_list(DestinationList.model_validate(document.body), seal)
        if fields:
            lost += [LostSecret("lists", record.name, field) for field in fields]
            yield Write("lists", document.id, record.model_dump(mode="json"))


def openable_list(record: DestinationList, seal: SecretBox) -> tuple[DestinationList, list[str]]:
    """As `openable_proxy`."""
    source, fields = _openable_source(record.source, seal)
    return (record.model_copy(update={"source": source}) if fields else record), fields


def _openable_source(source: S | None, seal: SecretBox) -> tuple[S | None, list[str]]:
    if source is None or not source.headers:
        return source, []
    headers = {name: value for name, value in source.headers.items() if _opens(seal, value, HEADER_PURPOSE)}
    fields = [f"source.headers.{name}" for name in source.headers if name not in headers]
    return source.model_copy(update={"headers": headers or None}), fields


def _without_password(upstream: U, seal: SecretBox) -> U:
    if upstream.password is None or _opens(seal, upstream.password, PURPOSE):
        return upstream
    return upstream.model_copy(update={"password": None})


def _from_webhooks(store: Store, seal: SecretBox, lost: list[LostSecret]) -> Iterator[Write]:
    for document in store.find("webhooks"):
        record, fields = openable_webhook(WebhookRecord.model_validate(document.body), seal)
        lost += [LostSecret("webhooks", record.name, field) for field in fields]
        body = record.model_dump(mode="json")
        if body != document.body:
            yield Write("webhooks", document.id, body)


def openable_webhook(record: WebhookRecord, seal: SecretBox) -> tuple[WebhookRecord, list[str]]:
    """As `openable_proxy`. A webhook gets a new signing secret, which a rotation shows."""
    headers = {name: value for name, value in record.headers.items() if _opens(seal, value, HEADER_PURPOSE)}
    previous = [each for each in record.previous_secrets if _opens(seal, each.sealed, SECRET_PURPOSE)]
    secret, fields = record.secret_sealed, []
    if not _opens(seal, secret, SECRET_PURPOSE):
        fields.append("secret")
        secret = seal.seal(new_secret(), SECRET_PURPOSE)
    fields += [f"headers.{name}" for name in record.headers if name not in headers]
    changed = {"headers": headers, "previous_secrets": previous, "secret_sealed": secret}
    return record.model_copy(update=changed), fields
