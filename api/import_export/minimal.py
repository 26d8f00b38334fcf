"""Minimal documents: what they leave out of an object that they name is its default.

`minimal` leaves it out of an export, and `completed` puts it into the entries of an import: each is the reverse of the
other, so that an import of what was exported finds every field that was changed since.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel

from api.import_export.document import (
    AccountEntry,
    ConfigDocument,
    ListEntry,
    PlanEntry,
    PolicyEntry,
    PoolEntry,
    ProxyEntry,
    UserEntry,
    WebhookEntry,
)
from api.import_export.entries import account_entry, object_entry, plan_entry, proxy_entry
from api.import_export.plan import Problems
from api.services.proxies import ProxyRules
from api.services.proxy_views import account_view
from config.model.accounts import ProxyAccount, Quota
from config.model.auth_backend import AuthBackend
from config.model.fleet_accounts import FleetAccount
from config.model.lists import ListSource
from config.model.plans import Plan
from config.model.policies import Policy
from config.model.pools import Pool, PoolSource
from config.model.proxies import ProxyTls, blank_record
from config.model.sources import Source
from config.net.entries import GEO

_NO_DEFAULT = object()
ALWAYS = frozenset({"name", "host", "port", "protocol", "username", "auth", "role"})
"""Fields that are always written; `auth` unless all of it has its defaults."""
_WHOLE = frozenset({"proxies"})
"""Of which a part says something else than the whole: `all` beside `tags`."""
_SECRETS = frozenset({"password", "secret"})
"""Of which null means that they stay as they are."""
_REQUIRED = {"proxies": ("port", "protocol"), "webhooks": ("events",), "lists": ("kind",)}
"""Fields that have no default."""
_IDENTITY = frozenset({"name", "username", "url", "port", "protocol"})
M = TypeVar("M", bound=BaseModel)


def minimal(document: Mapping[str, Any]) -> dict[str, Any]:
    """`document` with entries that have only what differs.

    Timeouts, `sleep_after` and `workers` of proxies stay: their defaults are settings.
    """
    head = {name: document[name] for name in ("kind", "version")}
    return {
        **head,
        "minimal": True,
        **document,
        "proxies": [_proxy(entry) for entry in document["proxies"]],
        "settings": {group: values for group, values in document["settings"].items() if values},
        **{
            section: [_differing(entry, blank) for entry in document[section]]
            for section, blank in _BLANKS.items()
            if section in document
        },
    }


def _proxy(entry: Mapping[str, Any]) -> dict[str, Any]:
    auth = {"enabled": _asks(entry["accounts"], entry["auth"].get("backend"))}
    kept = _differing(entry, {**_BLANK_PROXY, "auth": auth})
    if entry["auth"] == auth:
        del kept["auth"]
    if entry["accounts"]:
        kept["accounts"] = [_differing(each, _BLANK_ACCOUNT) for each in entry["accounts"]]
    return kept


def _asks(accounts: Any, backend: Any) -> bool:
    """Whether a new proxy with these asks for credentials, if it doesn't say so itself."""
    return bool(accounts) or backend is not None


def _blank_proxy(timeout: int, sleep_after: int = 0, workers: Any = 1) -> dict[str, Any]:
    return proxy_entry(blank_record("", "blank", "127.0.0.1", 1, "http", 0.0, timeout, sleep_after, workers))


_OF_SETTINGS = ("sleep_after", "workers")
_BLANK_PROXY = {name: value for name, value in _blank_proxy(0).items() if name not in _OF_SETTINGS}
_NEW: dict[str, Any] = {"id": "", "name": "blank", "created_at": 0.0, "updated_at": 0.0}
_BLANKS: dict[str, Mapping[str, Any]] = {
    "users": {
        "email": None,
        "role": "user",
        "permissions": None,
        "status": "active",
        "password": None,
        "email_claimed": False,
        "oauth": None,
    },
    "webhooks": {"headers": {}, "enabled": True, "secret": None},
    "plans": plan_entry(Plan(**_NEW)),
    "accounts": {
        **account_entry(FleetAccount(id="", username="blank", created_at=0.0, updated_at=0.0), {}, {}),
        "password": None,
    },
    "lists": {"description": ""},
    "pools": object_entry(Pool(**_NEW)),
    "policies": object_entry(Policy(**_NEW)),
}
"""By section, an entry of which all fields have their defaults."""
_BLANK_ACCOUNT = account_view(ProxyAccount(id="", username="", created_at=0.0))


def _differing(entry: Mapping[str, Any], blank: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in entry.items():
        usual = blank.get(name, _NO_DEFAULT)
        if name in ALWAYS | _WHOLE or not isinstance(value, Mapping) or not isinstance(usual, Mapping):
            if name in ALWAYS or value != usual:
                kept[name] = value
        elif inner := _differing(value, usual):
            kept[name] = inner
    return kept


# --- the reverse --------------------------------------------------------------------------------------------------


def completed(document: ConfigDocument, rules: ProxyRules, problems: Problems) -> ConfigDocument:
    """A minimal document with the defaults that it leaves out; another one as it is.

    Adds a problem for each field that is left out and has no default. `rules` are what new proxies have.
    """
    if not document.minimal:
        return document
    sections: dict[str, Any] = {}
    for section in ("proxies", *_BLANKS):
        entries = getattr(document, section)
        if entries is not None:
            _refuse_incomplete(section, entries, problems)
            sections[section] = [_with_defaults(entry, _usual(section, entry, rules)) for entry in entries]
    return document.model_copy(update=sections)


def _refuse_incomplete(section: str, entries: list[Any], problems: Problems) -> None:
    for index, entry in enumerate(entries):
        for name in _REQUIRED.get(section, ()):
            if getattr(entry, name) is None:
                problems.add(f"{section}[{index}].{name}", "is required in a minimal document: it has no default")


def _with_defaults(given: M, usual: BaseModel) -> M:
    """`given` with what it leaves out of `usual`."""
    added: dict[str, Any] = {}
    for name in usual.model_fields_set - _SECRETS:
        default = getattr(usual, name)
        if name not in given.model_fields_set:
            added[name] = default
        elif name not in _WHOLE:
            value = getattr(given, name)
            if isinstance(value, BaseModel) and isinstance(default, BaseModel):
                added[name] = _with_defaults(value, default)
    return given.model_copy(update=added)


def _usual(section: str, entry: Any, rules: ProxyRules) -> BaseModel:
    """The entry that has the defaults for this one; of objects that are null by default, those of the ones it has."""
    if section == "proxies":
        has_backend = entry.auth is not None and entry.auth.backend is not None
        asks = bool(entry.accounts) or has_backend
        return _usual_proxy(rules.default_timeout, rules.sleep_after, rules.workers, asks, has_backend)
    if section == "lists":
        return _usual_list(entry.source is not None, entry.entries is not None, entry.kind == GEO)
    if section == "pools" and entry.source is not None:
        return _usual_pool_with_source()
    return _usual_entry(section, getattr(entry, "quota", None) is not None)


@cache
def _usual_proxy(timeout: int, sleep_after: int, workers: int | str, asks: bool, has_backend: bool) -> BaseModel:
    backend = AuthBackend(url="").model_dump(exclude={"url", "secret_sealed"}) if has_backend else None
    entry = {
        **_blank_proxy(timeout, sleep_after, workers),
        "auth": {"enabled": asks, "username": None, "backend": backend},
        "tls": dict.fromkeys(ProxyTls.model_fields),
        "policy": None,
        "pool": None,
    }
    return _unnamed(ProxyEntry.model_validate(entry))


@cache
def _usual_pool_with_source() -> BaseModel:
    values = {name: value for name, value in _BLANKS["pools"].items() if name != "upstreams"}
    return _unnamed(PoolEntry.model_validate({**values, "source": _usual_source(PoolSource())}))


def _usual_source(blank: Source, *left_out: str) -> dict[str, Any]:
    """What it has without being given, and no headers."""
    return {**blank.model_dump(exclude={"url", "file", *left_out}), "headers": {}}


@cache
def _usual_list(has_source: bool, has_entries: bool, is_database: bool) -> BaseModel:
    source = _usual_source(ListSource(), *(("format",) if is_database else ()))
    content: dict[str, Any] = {"source": source} if has_source else {} if has_entries else {"entries": []}
    return _unnamed(ListEntry.model_validate({"name": "blank", "description": "", **content}))


_MODELS: dict[str, type[BaseModel]] = {
    "users": UserEntry,
    "webhooks": WebhookEntry,
    "plans": PlanEntry,
    "accounts": AccountEntry,
    "pools": PoolEntry,
    "policies": PolicyEntry,
}
_NAMED: dict[str, dict[str, Any]] = {
    "users": {"username": "blank"},
    "webhooks": {"name": "blank", "url": "https://blank.example/"},
}


@cache
def _usual_entry(section: str, has_quota: bool) -> BaseModel:
    quota = {"quota": Quota().model_dump()} if has_quota else {}
    return _unnamed(_MODELS[section].model_validate({**_BLANKS[section], **_NAMED.get(section, {}), **quota}))


def _unnamed(entry: BaseModel) -> BaseModel:
    """Without what an entry always has itself."""
    values = {name: getattr(entry, name) for name in entry.model_fields_set - _IDENTITY}
    return type(entry).model_construct(_fields_set=set(values), **values)
