"""API keys: `pf_` and 40 base62 characters, of which only a SHA-256 and the first 11 characters are kept.

The id of a key comes from its hash, so that a key is found without a search; the id does not reveal the key.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
import time
from ipaddress import ip_network
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    WithJsonSchema,
    create_model,
)

from api.engine.records import view_of
from api.security.users import Permissions
from api.store import Document, Store
from api.store.loaded import Loaded
from config.model import json_patterns
from config.model.declaration import MOMENT, SECRET, Instant
from config.model.fields import NULLABLE, Body, Input, Name, example
from config.model.object_fields import ObjectName
from config.net.addresses import plain
from config.net.entries import read_network
from config.text.formatting import parse_moment

COLLECTION = "api_keys"
READ_ONLY_FIELDS = frozenset({"id", "prefix", "created_at", "last_used", "key", "user_id"})
GRACE_MAX = 30 * 86_400
LAST_USED_STEP = 60.0
"""`last_used` is written at most once in so many seconds for each key."""

_ALPHABET = string.digits + string.ascii_letters
_KEY = re.compile(r"pf_[0-9A-Za-z]{40}", re.ASCII)


def _future(moment: float) -> float:
    if moment <= time.time():
        raise ValueError("must be in the future")
    return moment


def _network(text: str) -> str:
    try:
        return str(read_network(text))
    except ValueError as error:
        raise ValueError(f"{text!r} is not an address or a CIDR range") from error


_Id = Annotated[StrictStr, Field(max_length=64)]
_Network = Annotated[StrictStr, AfterValidator(_network), json_patterns.text(json_patterns.NETWORK)]
_Objects = Annotated[list[ObjectName], Field(max_length=1000)]


class Scope(BaseModel):
    """What a key is restricted to. None: not restricted in this respect."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    proxies: Annotated[list[_Id], Field(max_length=1000)] | None = None
    accounts: Annotated[list[_Id], Field(max_length=1000, json_schema_extra={"minItems": 1})] | None = None
    """Ids. The key can make, list and revoke credentials of these accounts, read what was refused to one and the
    snippets for the account, and nothing else."""
    pools: _Objects | None = None
    policies: _Objects | None = None
    lists: _Objects | None = None
    """Names, as those of pools and policies: what the key can read, and name in what it changes."""
    ip_whitelist: Annotated[list[_Network], Field(max_length=100)] | None = None

    def named(self, collection: str) -> list[str] | None:
        """What it names of `pools`, `policies` or `lists`."""
        found: list[str] | None = getattr(self, collection)
        return found


_ScopeInput: Any = create_model("Scope", __base__=(Body, Scope), __doc__=Scope.__doc__)
"""As a request writes it: what is null is refused there."""
_Expiry = Annotated[float, BeforeValidator(parse_moment), AfterValidator(_future), WithJsonSchema(json_patterns.MOMENT)]


class ApiKeyCreate(Body):
    """The body of a create. Without `permissions` the key may do what its owner may."""

    model_config = example({"name": "deploy", "permissions": ["proxy.read"], "expires_at": "2030-01-01T00:00:00Z"})

    name: Name
    permissions: Permissions | None = None
    expires_at: Annotated[_Expiry | None, NULLABLE] = None
    scope: Annotated[_ScopeInput | None, NULLABLE] = None


class ApiKeyRotate(Input):
    """The optional body of a rotation: for how many seconds the old key stays valid beside the new one."""

    model_config = example({"grace": 3600})

    grace: Annotated[StrictInt, Field(ge=0, le=GRACE_MAX)] = 0


class ApiKey(BaseModel):
    """A document of the collection `api_keys`."""

    id: str
    name: str
    prefix: str
    key_hash: Annotated[str, SECRET] = Field(repr=False)
    user_id: str
    permissions: list[str]
    scope: Scope | None = None
    created_at: Instant
    last_used: Annotated[float | None, MOMENT] = None
    """Not in the document: `api.security.last_used` has it."""
    expires_at: Annotated[float | None, MOMENT] = None

    def expired(self, now: float) -> bool:
        """Whether its time is over."""
        return self.expires_at is not None and self.expires_at <= now

    def admits(self, address: str) -> bool:
        """Whether a client at `address` may use it."""
        if self.scope is None or self.scope.ip_whitelist is None:
            return True
        client = plain(address)
        return any(client in ip_network(network) for network in self.scope.ip_whitelist)

    def view(self) -> dict[str, Any]:
        """As the API shows it."""
        return view_of(self)


def new_key(body: ApiKeyCreate, user_id: str, granted: tuple[str, ...], now: float) -> tuple[ApiKey, str]:
    """The record, and the key itself, which is not stored."""
    text = "pf_" + "".join(secrets.choice(_ALPHABET) for _ in range(40))
    hashed = hashlib.sha256(text.encode()).hexdigest()
    record = ApiKey(
        id=_identifier(hashed),
        name=body.name,
        prefix=text[:11],
        key_hash=hashed,
        user_id=user_id,
        permissions=list(granted) if body.permissions is None else body.permissions,
        scope=body.scope,
        created_at=now,
        expires_at=body.expires_at,
    )
    return record, text


def rotated(key: ApiKey, now: float) -> tuple[ApiKey, str]:
    """A key with the rights, the name and the lifetime of `key`, which begins now; and the key itself."""
    ends = None if key.expires_at is None else now + max(key.expires_at - key.created_at, 1.0)
    same: dict[str, Any] = {name: getattr(key, name) for name in ("name", "permissions", "scope")}
    body = ApiKeyCreate.model_construct(**same, expires_at=ends)
    return new_key(body, key.user_id, (), now)


def find_key(store: Store, text: str) -> ApiKey | None:
    """The record of a key that a client sent, expired or not; None when there is none."""
    if not _KEY.fullmatch(text):
        return None
    hashed = hashlib.sha256(text.encode()).hexdigest()
    key = _loaded.get(store, _identifier(hashed))
    return key if key is not None and hmac.compare_digest(key.key_hash, hashed) else None


def about(key: ApiKey) -> dict[str, str]:
    """The data of events about a key."""
    return {"key_id": key.id, "name": key.name, "prefix": key.prefix, "user_id": key.user_id}


def load(document: Document) -> ApiKey:
    """The key in a document."""
    return ApiKey.model_validate(document.body)


_loaded = Loaded(COLLECTION, load)


def _identifier(hashed: str) -> str:
    return "key_" + hashed[:16]
