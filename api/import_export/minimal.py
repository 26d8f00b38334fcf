"""An exported document without the fields that have their defaults: for reading, and for version control.

An import gives the fields that a new entry leaves out their defaults, so on an empty installation both documents make
the same. In an existing proxy they stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.import_export.entries import account_entry, object_entry, plan_entry, proxy_entry
from api.services.proxy_views import account_view
from config.model.accounts import ProxyAccount
from config.model.fleet_accounts import FleetAccount
from config.model.plans import Plan
from config.model.policies import Policy
from config.model.pools import Pool
from config.model.proxies import blank_record

_NO_DEFAULT = object()
ALWAYS = frozenset({"name", "host", "port", "protocol", "username", "auth"})
"""Fields that are always kept; `auth` unless all of it has its defaults."""


def minimal(document: Mapping[str, Any]) -> dict[str, Any]:
    """`document` with entries that have only what differs.

    Timeouts, `sleep_after` and `workers` of proxies stay: their defaults are settings.
    """
    return {
        **document,
        "proxies": [_proxy(entry) for entry in document["proxies"]],
        "users": [_differing(entry, _BLANK_USER) for entry in document["users"]],
        "webhooks": [_differing(entry, _BLANK_WEBHOOK) for entry in document["webhooks"]],
        "settings": {group: values for group, values in document["settings"].items() if values} or None,
        **{
            section: [_differing(entry, blank) for entry in document[section]]
            for section, blank in _BLANKS.items()
            if section in document
        },
    }


def _proxy(entry: Mapping[str, Any]) -> dict[str, Any]:
    where = (entry["name"], entry["host"], entry["port"], entry["protocol"])
    blank = proxy_entry(blank_record("prx_blank", *where, now=0.0, default_timeout=0))
    del blank["sleep_after"], blank["workers"]
    kept = _differing(entry, blank)
    if entry["auth"] == blank["auth"]:
        del kept["auth"]
    if entry["accounts"]:
        kept["accounts"] = [_differing(each, _BLANK_ACCOUNT) for each in entry["accounts"]]
    return kept


_BLANK_USER: dict[str, Any] = {
    "email": None,
    "permissions": None,
    "status": "active",
    "password": None,
    "email_claimed": False,
    "oauth": None,
}
_BLANK_WEBHOOK: dict[str, Any] = {"headers": {}, "enabled": True, "secret": None}
_BLANK_PLAN = plan_entry(Plan(id="", name="", created_at=0.0, updated_at=0.0))
_BLANK_FLEET_ACCOUNT = {
    **account_entry(FleetAccount(id="", username="", created_at=0.0, updated_at=0.0), {}, {}),
    "password": None,
}
_NEW: dict[str, Any] = {"id": "", "name": "", "created_at": 0.0, "updated_at": 0.0}
_BLANKS: dict[str, Mapping[str, Any]] = {
    "plans": _BLANK_PLAN,
    "accounts": _BLANK_FLEET_ACCOUNT,
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
        if name in ALWAYS or not isinstance(value, Mapping) or not isinstance(usual, Mapping):
            if name in ALWAYS or value != usual:
                kept[name] = value
        elif inner := _differing(value, usual):
            kept[name] = inner
    return kept
