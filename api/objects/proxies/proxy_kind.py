"""Proxies: how they come and go with a document of the configuration."""

from __future__ import annotations

import secrets as random
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from api.engine.kind import Kind
from api.engine.records import Stored, view_of
from api.engine.responses import OF_INSTALLATION, ResponseModel, shows
from api.engine.transfer import PlannedRecord, Planning, SecretValue, Transfer, differing, password, without
from api.objects.named.named_kind import (
    EntryUpstream,
    ExportedUpstream,
    with_password,
    with_sealed_passwords,
    without_lost_passwords,
)
from api.objects.proxies.proxy_cache import COLLECTION
from api.objects.proxies.proxy_changes import with_secrets
from api.objects.proxies.proxy_responses import NodesView, TlsView
from api.objects.proxies.proxy_views import configuration
from config.files.secret_box import SecretBox
from config.model.accounts import AccountInput, ProxyAccount, refuse_weak
from config.model.choices import ProxyStatus
from config.model.fields import NULLABLE, InvalidProxy, Name, Password, Username
from config.model.object_fields import names_of_proxy
from config.model.proxies import AuthInput, ProxyAuth, ProxyRecord, ProxyTls, ProxyUpdate, apply, blank_record
from config.model.proxy_parts import BACKEND_PURPOSE, AuthBackend, BackendInput, change_backend
from config.model.shared_objects.upstreams import ALL_UPSTREAMS, ONE_UPSTREAM
from config.model.webhooks import Secret, new_secret


class EntryBackend(BackendInput):
    """`auth.backend` of an entry."""

    secret: Annotated[Secret | None, NULLABLE] = Field(None, repr=False)


class EntryAuth(AuthInput):
    """`auth` of an entry. `username` null: there is to be none, and no password of it."""

    username: Annotated[Username | None, NULLABLE] = None
    password: Annotated[Password | None, NULLABLE] = Field(None, repr=False)
    backend: Annotated[EntryBackend | None, NULLABLE] = None


class EntryAccount(AccountInput):
    """An account of an entry."""

    password: Annotated[Password | None, NULLABLE] = Field(None, repr=False)


EntryAccounts = list[EntryAccount]
EntryUpstreams = Annotated[list[Annotated[EntryUpstream, *ONE_UPSTREAM]], *ALL_UPSTREAMS]


class ProxyEntry(ProxyUpdate):
    """A proxy, known by its `name`. A new one needs `port` and `protocol`, and is active unless it says otherwise."""

    name: Name
    status: ProxyStatus | None = None
    auth: EntryAuth | None = None
    # Lists of subclasses: the model is frozen, and nothing is added to its lists.
    accounts: EntryAccounts | None = None  # type: ignore[assignment]  # see above
    upstreams: EntryUpstreams | None = None  # type: ignore[assignment]  # see above


@shows(AuthBackend)
class ExportedBackend(ResponseModel):
    """An authentication back end."""

    secret: None = None


class ExportedAuth(ResponseModel):
    """`auth` of an exported proxy."""

    enabled: bool
    username: str | None = None
    password: None = None
    backend: ExportedBackend | None = None


@shows(ProxyAccount, but=("created_at",))
class ExportedAccount(ResponseModel):
    """An account of an exported proxy."""

    password: None = None


@shows(ProxyRecord, but=OF_INSTALLATION)
class ExportedProxy(ResponseModel):
    """A proxy."""

    port: int | str
    auth: ExportedAuth
    upstreams: list[ExportedUpstream]
    accounts: list[ExportedAccount]
    nodes: NodesView
    tls: TlsView | None = None


def _entry(record: ProxyRecord) -> dict[str, Any]:
    accounts = [{**without(view_of(each), "created_at"), **password(each.password_hash)} for each in record.accounts]
    entry = {
        **without(configuration(record), *OF_INSTALLATION),
        "auth": _auth(record),
        "upstreams": [with_password(upstream.view(), upstream) for upstream in record.upstreams],
        "accounts": accounts,
        "tags": list(record.tags),
    }
    return entry if record.tls is not None else without(entry, "tls")


def _auth(record: ProxyRecord) -> dict[str, Any]:
    auth = record.auth
    username = {} if auth.username is None else {"username": auth.username}
    form = {"enabled": auth.enabled, **username, **password(auth.password_hash)}
    if auth.backend is not None:
        form["backend"] = {**auth.backend.view(), "secret": SecretValue(auth.backend.secret_sealed)}
    return form


def _wanted(stored: Stored[ProxyRecord] | None, entry: Any, planning: Planning) -> PlannedRecord:
    sealed = planning.sealed.of_proxy(entry.name)
    known = _blank(entry, planning) if stored is None else stored.record
    base = _with_secrets(known, entry, sealed, planning)
    record = with_secrets(apply(base, entry, planning.now), entry, planning.seal, makes=False)
    if not planning.weak_passwords:
        refuse_weak(entry.accounts or (), base.accounts, record.accounts)
    if entry.upstreams is not None:
        record = with_sealed_passwords(record, entry.upstreams, sealed.upstreams, planning.seal)
    status = entry.status or ("active" if stored is None else known.status)
    return PlannedRecord(record.model_copy(update={"status": status}))


def _blank(entry: ProxyEntry, planning: Planning) -> ProxyRecord:
    for name in ("port", "protocol"):
        if getattr(entry, name) is None:
            raise InvalidProxy(name, "is required for a new proxy")
    return blank_record(
        "prx_" + random.token_hex(8),
        entry.name,
        entry.host or "127.0.0.1",
        entry.port or 0,
        entry.protocol or "",
        planning.now,
        planning.rules.default_timeout,
        planning.rules.sleep_after,
        planning.rules.workers,
    )


# --- secrets that come with the document --------------------------------------------------------------------------


def _with_secrets(record: ProxyRecord, entry: ProxyEntry, sealed: Any, planning: Planning) -> ProxyRecord:
    """`record` as if it had these secrets already, so that the entry keeps them where it gives none."""
    auth = record.auth
    if entry.auth is not None and entry.auth.password is None and sealed.auth is not None:
        auth = auth.model_copy(update={"password_hash": sealed.auth})
    if entry.auth is not None and "username" in entry.auth.model_fields_set and entry.auth.username is None:
        auth = auth.model_copy(update={"username": None, "password_hash": None})
    auth = _with_backend_secret(auth, entry.auth, sealed, planning)
    if entry.accounts and not record.accounts and (entry.auth is None or entry.auth.enabled is None):
        auth = auth.model_copy(update={"enabled": True})  # as the first account does; here it may be known already
    return record.model_copy(
        update={
            "auth": auth,
            "accounts": _accounts(record.accounts, entry, sealed, planning.now),
        }
    )


def _with_backend_secret(auth: ProxyAuth, given: AuthInput | None, sealed: Any, planning: Planning) -> ProxyAuth:
    if given is None or given.backend is None or given.backend.secret is not None or sealed.backend is None:
        return auth
    complete = given.backend.model_copy(update={"secret": sealed.backend})
    backend = change_backend(auth.backend, complete, planning.seal)
    enabled = auth.enabled or (auth.backend is None and given.enabled is None)
    return auth.model_copy(update={"backend": backend, "enabled": enabled})


def _accounts(known: Sequence[ProxyAccount], entry: ProxyEntry, sealed: Any, now: float) -> list[ProxyAccount]:
    """The known accounts and those that the entry adds, which may have expired already."""
    by_name = {account.username: account for account in known}
    for given in entry.accounts or ():
        account = by_name.get(given.username) or ProxyAccount(
            id="acc_" + random.token_hex(8), username=given.username, created_at=now
        )
        update: dict[str, Any] = {"expires_at": given.expires_at} if given.expires_at is not None else {}
        if given.password is None and given.username in sealed.accounts:
            update["password_hash"] = sealed.accounts[given.username]
        by_name[given.username] = account.model_copy(update=update)
    return list(by_name.values())


# --- minimal documents --------------------------------------------------------------------------------------------


def _sparse(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Timeouts, `sleep_after` and `workers` stay: their defaults are settings."""
    auth = {"enabled": _asks(entry["accounts"], entry["auth"].get("backend"))}
    kept = differing(entry, {**_BLANK, "auth": auth})
    if entry["auth"] == auth:
        del kept["auth"]
    if entry["accounts"]:
        kept["accounts"] = [differing(each, _BLANK_ACCOUNT) for each in entry["accounts"]]
    return kept


def _asks(accounts: Any, backend: Any) -> bool:
    """Whether a new proxy with these asks for credentials, if it doesn't say so itself."""
    return bool(accounts) or backend is not None


def _defaults(timeout: int, sleep_after: int = 0, workers: Any = 1) -> dict[str, Any]:
    return _entry(blank_record("", "blank", "127.0.0.1", 1, "http", 0.0, timeout, sleep_after, workers))


_BLANK = without(_defaults(0), "sleep_after", "workers")
_BLANK_ACCOUNT = view_of(ProxyAccount(id="", username="", created_at=0.0))


def _usual(entry: Any, rules: Any) -> dict[str, Any]:
    has_backend = entry.auth is not None and entry.auth.backend is not None
    backend = AuthBackend(url="").model_dump(exclude={"url", "secret_sealed"}) if has_backend else None
    return {
        **_defaults(rules.default_timeout, rules.sleep_after, rules.workers),
        "auth": {"enabled": bool(entry.accounts) or has_backend, "username": None, "backend": backend},
        "tls": dict.fromkeys(ProxyTls.model_fields),
        "policy": None,
        "pool": None,
    }


def _openable(record: ProxyRecord, seal: SecretBox) -> tuple[ProxyRecord, list[str]]:
    kept, fields = without_lost_passwords(record.upstreams, seal)
    auth = record.auth
    if auth.backend is not None and not seal.opens(auth.backend.secret_sealed, BACKEND_PURPOSE):
        fields.append("auth.backend.secret")
        backend = auth.backend.model_copy(update={"secret_sealed": seal.seal(new_secret(), BACKEND_PURPOSE)})
        auth = auth.model_copy(update={"backend": backend})
    return (record.model_copy(update={"upstreams": kept, "auth": auth}) if fields else record), fields


TRANSFER = Transfer(
    model=ProxyEntry,
    exported=ExportedProxy,
    entry=_entry,
    wanted=_wanted,
    blank={},
    usual=_usual,
    sparse=_sparse,
    required=("port", "protocol"),
    refit=lambda record, now, seal: with_secrets(apply(record, ProxyUpdate(), now), ProxyUpdate(), seal),
    openable=_openable,
)


PROXIES = Kind(
    name="proxy",
    collection=COLLECTION,
    model=ProxyRecord,
    transfer=TRANSFER,
    in_document=10_000,
    refers=names_of_proxy,
)
