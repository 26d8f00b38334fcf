"""Which proxy, user, key or webhook is meant: people give its name or its id."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from api.cli.client import Client
from api.cli.errors import CommandError, Status


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of resource: what it is called, the field of its name, how all are listed and what lists them."""

    called: str
    name_field: str
    list_all: Callable[[Client], Iterable[dict[str, Any]]]
    listing: str


PROXY = Kind("proxy", "name", lambda api: api.pages("/proxies", "proxies"), "proxyfleet proxies list")
USER = Kind("user", "username", lambda api: api.get("/users")["users"], "proxyfleet users list")
KEY = Kind("API key", "name", lambda api: api.get("/api-keys")["api_keys"], "proxyfleet keys list")
WEBHOOK = Kind("webhook", "name", lambda api: api.get("/webhooks")["webhooks"], "proxyfleet webhooks list")


def find(api: Client, kind: Kind, meant: str) -> dict[str, Any]:
    """The one that is meant, in its list form; an id wins over a name. Raises `CommandError`."""
    everything = list(kind.list_all(api))
    by_id = [one for one in everything if one["id"] == meant]
    found = by_id or [one for one in everything if one[kind.name_field] == meant]
    if len(found) > 1:
        ids = ", ".join(str(one["id"]) for one in found)
        raise CommandError(
            f"There are {len(found)} {kind.called}s called {meant!r}", f"Give the id: {ids}", Status.USAGE
        )
    if not found:
        near = get_close_matches(meant, [str(one[kind.name_field]) for one in everything], n=1)
        hint = f"Did you mean {near[0]!r}? All of them: {kind.listing}" if near else f"All of them: {kind.listing}"
        raise CommandError(f"There is no {kind.called} {meant!r}", hint, Status.NOT_FOUND)
    return found[0]


def find_id(api: Client, kind: Kind, meant: str) -> str:
    """The id of the one that is meant."""
    return str(find(api, kind, meant)["id"])


def names(api: Client, kind: Kind) -> dict[str, str]:
    """The names by id, for showing; empty where the caller may not list them."""
    try:
        return {str(one["id"]): str(one[kind.name_field]) for one in kind.list_all(api)}
    except CommandError as trouble:
        if trouble.status is not Status.NOT_AUTHORISED:
            raise
        return {}
