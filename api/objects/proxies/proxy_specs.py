"""The messages in which the supervisor and the forwarding actors get proxies, made of stored records."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel

from actors.bus.messages.specs import (
    ALL_LISTS,
    PLANS,
    AccessSpec,
    AccountSpec,
    BackendSpec,
    ClientTlsSpec,
    DnsSpec,
    LimitsSpec,
    ProxySpec,
    RequestHeadersSpec,
    UpstreamSpec,
    UpstreamsSpec,
    UsernameParamsSpec,
)
from api.objects.proxies.proxy_cache import StoredProxy
from api.store import StoreDamaged
from config.files.secret_box import SecretBox, sealing_as
from config.model.accounts import ProxyAccount
from config.model.object_fields import names_of_proxy
from config.model.proxies import ProxyRecord, ProxyTls
from config.model.proxy_parts import BACKEND_PURPOSE, AuthBackend, entries_of
from config.model.shared_objects.pools import PoolUpstream
from config.model.shared_objects.upstreams import PURPOSE, ProxyUpstream, UpstreamCheck

T = TypeVar("T")


def spec_of(proxy: StoredProxy, seal: SecretBox) -> ProxySpec:
    """The message about a proxy, with its secrets. Raises `SecretBoxError`."""
    record = proxy.record
    with_auth = record.auth.enabled
    special: dict[str, Any] = {
        "host": sys.intern(record.host),
        "active": record.status == "active",
        "revision": proxy.revision,
        "timeout": float(record.settings.timeout),
        "auth_username": record.auth.username if with_auth else None,
        "auth_hash": record.auth.password_hash if with_auth else None,
        "auth_required": with_auth,
        "tls": (record.tls.cert_file, record.tls.key_file) if record.tls and record.tls.cert_file else None,
        "client_tls": _client_tls_spec(record.tls),
        "access": spec(AccessSpec, record.access),
        "upstreams": upstreams_spec(record.upstreams, record.upstream_policy, record.upstream_check, seal),
        "accounts": tuple(map(_account_spec, record.accounts)) if with_auth else (),
        "backend": _backend_spec(record.auth.backend, seal) if with_auth and record.auth.backend else None,
        "dns": spec(DnsSpec, record.dns, hosts={name: tuple(each) for name, each in record.dns.hosts.items()}),
        "limits": spec(LimitsSpec, record.limits, connections=record.limits.connections_per_client),
        "request_headers": spec(RequestHeadersSpec, record.headers, set=tuple(record.headers.set.items())),
        "username_params": spec(UsernameParamsSpec, names) if (names := record.username_params).enabled else None,
        "policy": record.policy or "",
        "pool": record.pool or "",
        "bind_address": "" if entries_of(record.bind_address) else record.bind_address,
        "egress": entries_of(record.bind_address),
        "objects": _objects(record),
        "workers": 0 if record.workers == "auto" else record.workers,
    }
    return spec(ProxySpec, record, record.settings, record.headers, **special)


def _objects(record: ProxyRecord) -> tuple[str, ...]:
    """The keys of what the proxy needs. Accounts may be of any plan and name any list, at any time."""
    own = dict.fromkeys(each.key for each in names_of_proxy(record))
    return (*own, ALL_LISTS, PLANS) if record.auth.enabled else tuple(own)


def _client_tls_spec(tls: ProxyTls | None) -> ClientTlsSpec | None:
    if tls is None or tls.client_ca is None:
        return None
    return ClientTlsSpec(tls.client_ca, tls.client_crl, tls.client_auth != "optional")


def _account_spec(account: ProxyAccount) -> AccountSpec:
    return spec(
        AccountSpec,
        account,
        account.quota,
        limits=spec(LimitsSpec, account.limits),
        quota=account.quota.bytes,
        expires_at=account.expires_at or 0.0,
    )


def _backend_spec(backend: AuthBackend, seal: SecretBox) -> BackendSpec:
    secret = seal.open(backend.secret_sealed, BACKEND_PURPOSE)
    return spec(BackendSpec, backend, secret=secret, allow_cached=backend.on_error == "allow_cached")


def upstreams_spec(
    upstreams: Iterable[ProxyUpstream], policy: str, check: UpstreamCheck, seal: SecretBox, fetched: bool = False
) -> UpstreamsSpec:
    """The message about the upstreams of a proxy or a pool, with their passwords. Raises `SecretBoxError`."""
    return spec(
        UpstreamsSpec,
        entries=tuple(_upstream_spec(each, seal) for each in upstreams),
        policy=policy,
        check_enabled=check.enabled,
        check_interval=float(check.interval),
        check_timeout=float(check.timeout),
        check_url=check.url,
        check_expect=check.expect,
        fetched=fetched,
    )


def _upstream_spec(upstream: ProxyUpstream, seal: SecretBox) -> UpstreamSpec:
    password = None if upstream.password is None else seal.open(upstream.password, PURPOSE)
    labels = tuple(upstream.labels.items()) if isinstance(upstream, PoolUpstream) else ()
    return spec(UpstreamSpec, upstream, password=password, labels=labels)


def spec(kind: type[T], *stored: BaseModel, **special: Any) -> T:
    """A message of this kind, whose fields are those of the same name in one of the models, but for the `special`."""
    for name, index in _sources(kind, tuple(map(type, stored))):  # type: ignore[arg-type]  # classes are hashable
        if name not in special:
            value = getattr(stored[index], name)
            special[name] = tuple(value) if isinstance(value, list) else value
    return _shared(kind(**special))


def _shared(made: T) -> T:
    """The value itself, or one that all have which say nothing of it: there may be thousands."""
    default: T | None = _default(type(made))  # type: ignore[arg-type]  # classes are hashable
    return made if default is None or made != default else default


@cache
def _default(kind: type[Any]) -> Any:
    """The value of this message class that has nothing but defaults; None where there is none."""
    given = (each.default is not each.default_factory for each in dataclasses.fields(kind))  # both are MISSING, or one
    return kind() if all(given) else None


@cache
def _sources(kind: type[Any], models: tuple[type[BaseModel], ...]) -> tuple[tuple[str, int], ...]:
    """Which of the models has each field of the message."""
    names = [each.name for each in dataclasses.fields(kind)]
    found = ((name, index) for name in names for index, model in enumerate(models) if name in model.model_fields)
    return tuple(found)


def specs_of(proxies: Iterable[StoredProxy], seal: SecretBox) -> tuple[ProxySpec, ...]:
    """The messages about these proxies. Raises `StoreDamaged` when a secret of one can't be opened."""
    with sealing_as(StoreDamaged):
        return tuple(spec_of(proxy, seal) for proxy in proxies)
