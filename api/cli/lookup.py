"""Finds a proxy, user, key, webhook, account, plan, list, pool or policy by its name or id."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from api.cli.client import Client
from api.cli.errors import CommandError, Status


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of resource: its name in messages, the field that names one, and how the API and the command list all."""

    title: str
    name_field: str
    list_all: Callable[[Client], Iterable[dict[str, Any]]]
    list_command: str


PROXY = Kind("proxy", "name", lambda api: api.pages("/proxies", "proxies"), "proxyfleet proxies list")
USER = Kind("user", "username", lambda api: api.get("/users")["users"], "proxyfleet users list")
KEY = Kind("API key", "name", lambda api: api.get("/api-keys")["api_keys"], "proxyfleet keys list")
WEBHOOK = Kind("webhook", "name", lambda api: api.get("/webhooks")["webhooks"], "proxyfleet webhooks list")
PLAN = Kind("plan", "name", lambda api: api.get("/plans")["plans"], "proxyfleet plans list")
LIST = Kind("list", "name", lambda api: api.cursor_pages("/lists", "lists"), "proxyfleet lists list")
POOL = Kind("pool", "name", lambda api: api.cursor_pages("/pools", "pools"), "proxyfleet pools list")
POLICY = Kind("policy", "name", lambda api: api.cursor_pages("/policies", "policies"), "proxyfleet policies list")
ACCOUNT = Kind(
    "account",
    "username",
    lambda api: api.cursor_pages("/accounts", "accounts", inline=False),
    "proxyfleet accounts list",
)

ACCOUNT_ID = "acc_"


def account_id(api: Client, name_or_id: str, inline: bool = False) -> str:
    """The id of an account of the fleet. An id isn't looked up: a key with a scope of accounts may not list them.

    With `inline`, also of an account of one proxy alone. Raises `CommandError`.
    """
    if name_or_id.startswith(ACCOUNT_ID):
        return name_or_id
    found = api.cursor_pages("/accounts", "accounts", q=name_or_id)
    named = [one for one in found if one["username"] == name_or_id]
    fleet = [one for one in named if inline or not one["inline"]]
    if named and not fleet:
        identifier = named[0]["proxies"]["ids"][0]
        proxy = names(api, PROXY).get(identifier, identifier)
        raise CommandError(
            f"{name_or_id!r} is an account of the proxy {proxy} alone, not of the fleet",
            f"It is changed there: proxyfleet accounts update {proxy} {name_or_id}; it has no credentials",
            Status.NOT_FOUND,
        )
    return find_id(api, replace(ACCOUNT, list_all=lambda _api: fleet), name_or_id)


def find(api: Client, kind: Kind, name_or_id: str) -> dict[str, Any]:
    """The resource as the API lists it; an id wins over a name. Raises `CommandError` for none and for several."""
    everything = list(kind.list_all(api))
    by_id = [one for one in everything if one["id"] == name_or_id]
    found = by_id or [one for one in everything if one[kind.name_field] == name_or_id]
    if len(found) > 1:
        ids = ", ".join(str(one["id"]) for one in found)
        raise CommandError(
            f"There are {len(found)} {kind.title}s called {name_or_id!r}", f"Give the id: {ids}", Status.USAGE
        )
    if not found:
        near = get_close_matches(
            name_or_id, [str(one[kind.name_field]) for one in everything if one[kind.name_field]], n=1
        )
        hint = (
            f"Did you mean {near[0]!r}? All of them: {kind.list_command}"
            if near
            else f"All of them: {kind.list_command}"
        )
        raise CommandError(f"There is no {kind.title} {name_or_id!r}", hint, Status.NOT_FOUND)
    return found[0]


def sent(api: Client, kind: Kind, name_or_id: str, send: Callable[[], Any]) -> Any:
    """What `send` returns, a request about that resource. If there is none, the error names those that there are."""
    try:
        return send()
    except CommandError as error:
        if error.status is Status.NOT_FOUND:
            find(api, kind, name_or_id)
        raise


def find_id(api: Client, kind: Kind, name_or_id: str) -> str:
    """The id of the resource. Raises `CommandError`."""
    return str(find(api, kind, name_or_id)["id"])


def names(api: Client, kind: Kind) -> dict[str, str]:
    """Names by id; empty if the caller may not list the resources."""
    try:
        return {str(one["id"]): str(one[kind.name_field]) for one in kind.list_all(api)}
    except CommandError as error:
        if error.status is not Status.NOT_AUTHORISED:
            raise
        return {}
