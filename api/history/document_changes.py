"""Documents in a revision: their kinds, what a change of one is, and their bodies as they are stored."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from api.store import StoreWriteError
from config.files.secret_box import SealedFor, SecretBox, SecretBoxError, sealing_as

UNREVISED = frozenset(
    {
        *("refresh_families", "account_sessions", "fetched_upstreams", "list_states", "verdicts", "credentials"),
        *("secrets", "node_tokens"),
    }
)
"""Collections whose changes are no revisions: they are no configuration."""
_IRREGULAR = {"proxies": "proxy", "policies": "policy", "settings": "settings"}

LOST = "lost"
"""A hash that can't be opened any more, in its place. No password and no key has it."""

_HASH = re.compile(rb'_hash":"[^"]')
"""What is in the JSON of a body with hashes; most accounts and proxies have none."""

COMPRESSED_FROM = 1024
"""Bytes; shorter bodies are stored as they are."""

Body = Mapping[str, Any]
Action = Literal["create", "update", "delete"]


def kind_of(collection: str) -> str:
    """What one document of a collection is called: `proxy` of `proxies`."""
    return _IRREGULAR.get(collection, collection.removesuffix("s"))


def collection_of(kind: str) -> str:
    """The opposite."""
    return next((name for name, each in _IRREGULAR.items() if each == kind), f"{kind}s")


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """A document before and after a change; None where there is none. `fields` are the names of those that differ."""

    collection: str
    id: str
    before: Body | None
    after: Body | None
    fields: tuple[str, ...] = ()

    def reversed(self) -> DocumentChange:
        """The change that takes this one back."""
        return DocumentChange(self.collection, self.id, self.after, self.before, self.fields)

    @property
    def action(self) -> Action:
        """What was done with it."""
        return "create" if self.before is None else "delete" if self.after is None else "update"

    @property
    def name(self) -> str | None:
        """The name by which people know it, after the change."""
        body = self.after or self.before or {}
        return body.get("name") or body.get("username")


def is_renewed(before: Body, after: Body) -> bool:
    """Whether a new hash of the same password has taken the place of the former one in an account."""
    former, link = before.get("password_hash"), after.get("renewal_hash")
    if not former or not link or former == after["password_hash"]:
        return False
    from config.passwords import fingerprint, renewal  # which loads bcrypt

    return bool(link == renewal(fingerprint(former), after["password_hash"]))


class Packing:
    """Bodies as they are stored, and back. Hashes of passwords and keys are sealed, other secrets are already.

    Without a seal hashes are left out.
    """

    def __init__(self, seal: SecretBox | None) -> None:
        self._seal = seal

    def pack(self, body: Body | None) -> bytes | None:
        """Raises `StoreWriteError`."""
        if body is None:
            return None
        text = _json(body)
        if _HASH.search(text):
            text = _json(self.sealed(body))
        return _stored(text)

    def sealed(self, body: Body) -> dict[str, Any]:
        """A body whose hashes are sealed. Raises `StoreWriteError`."""
        with sealing_as(StoreWriteError):
            found: dict[str, Any] = _each_hash(dict(body), self._sealed)
        return found

    def unpack(self, stored: bytes | None) -> dict[str, Any] | None:
        """The inverse; a hash that can't be opened is `LOST`. JSON begins with a brace, and nothing else does."""
        if stored is None:
            return None
        text = stored if stored.startswith(b"{") else zlib.decompress(stored)
        body: dict[str, Any] = json.loads(text)
        return _each_hash(body, self._opened) if _HASH.search(text) else body

    def _sealed(self, text: str) -> str:
        return LOST if self._seal is None else self._seal.seal(text, SealedFor.HISTORY)

    def _opened(self, text: str) -> str:
        try:
            return text if self._seal is None else self._seal.open(text, SealedFor.HISTORY)
        except SecretBoxError:
            return LOST


def rewritten(stored: bytes | None, change: Callable[[Any], Any]) -> bytes | None:
    """A body as it is stored, whose JSON is what `change` makes of it; the same when that is the same object."""
    if stored is None:
        return None
    body = json.loads(stored if stored.startswith(b"{") else zlib.decompress(stored))
    changed = change(body)
    return stored if changed is body else _stored(_json(changed))


def _stored(text: bytes) -> bytes:
    return text if len(text) < COMPRESSED_FROM else zlib.compress(text, 1)


def _json(body: Body) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _each_hash(value: Any, change: Callable[[str], str]) -> Any:
    """`value` is as JSON has it."""
    if isinstance(value, dict):
        return {
            name: change(item)
            if name.endswith("_hash") and item and isinstance(item, str)
            else _each_hash(item, change)
            for name, item in value.items()
        }
    return [_each_hash(item, change) for item in value] if isinstance(value, list | tuple) else value
