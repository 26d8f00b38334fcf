"""Tokens by which machines join a fleet: in requests, as they are stored, and the line that an administrator gets.

The line has the fingerprint of the node that is to be asked, so that the secret is sent to no other; and what is stored
has only a digest of the secret.
"""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated, Self

from pydantic import BaseModel, Field, StrictInt

from config.model.declaration import MOMENT, SECRET, Instant
from config.model.fields import NULLABLE, Body, example
from config.model.nodes import NodeName, NodeRole, NodeTags, host_of

COLLECTION = "node_tokens"
MAX_TOKENS = 100
HOUR, LEAST, LONGEST = 3600, 60, 7 * 24 * 3600
"""Seconds that a token is good, by default, at least and at most."""
PORT = 7443
"""Where nodes listen for others, unless their address has another port."""

_LINE = re.compile(r"pfn1\.([0-9a-f]{64})\.(tok_[0-9a-f]{16})\.([A-Za-z0-9_-]{43})\.([^\s]{1,268})", re.ASCII)


class NodeTokenCreate(Body):
    """The body of a create. `name` is that of the node; without one it names itself."""

    model_config = example({"name": "fra2", "tags": ["eu"], "ttl": 3600})

    role: NodeRole = "full"
    name: Annotated[NodeName | None, NULLABLE] = None
    tags: NodeTags = Field(default_factory=list)
    ttl: Annotated[StrictInt, Field(ge=LEAST, le=LONGEST)] = HOUR


class NodeTokenRecord(BaseModel):
    """A document of the collection `node_tokens`. `used_by` is the id of the node that joined by it."""

    id: str
    secret_hash: Annotated[str, SECRET] = Field(repr=False)
    role: NodeRole
    name: str | None
    tags: list[str]
    created_at: Instant
    expires_at: Instant
    used_by: str | None = None
    used_at: Annotated[float | None, MOMENT] = None

    def is_secret(self, given: str) -> bool:
        """Whether this is its secret."""
        return hmac.compare_digest(digest_of(given), self.secret_hash)


@dataclass(frozen=True, slots=True)
class TokenLine:
    """The line that makes a machine a node: whom it asks, at which address, and with what."""

    fingerprint: str
    id: str
    secret: str = field(repr=False)
    address: str

    @classmethod
    def parse(cls, line: str) -> Self:
        """The opposite of `text`. Raises `ValueError`, whose text has nothing of the line."""
        found = _LINE.fullmatch(line.strip())
        if found is None:
            raise ValueError("this is no token, or a part is missing: it is one line that begins with pfn1.")
        made = cls(*found.groups())
        made.place  # noqa: B018 - it raises
        return made

    @property
    def text(self) -> str:
        """The line itself."""
        return f"pfn1.{self.fingerprint}.{self.id}.{self.secret}.{self.address}"

    @property
    def place(self) -> tuple[str, int]:
        """Host and port. Raises `ValueError`."""
        return place_of(self.address)


def new_token(body: NodeTokenCreate, now: float) -> tuple[NodeTokenRecord, str]:
    """The record, and the secret, which is not stored."""
    secret = secrets.token_urlsafe(32)
    record = NodeTokenRecord(
        id="tok_" + secrets.token_hex(8),
        secret_hash=digest_of(secret),
        role=body.role,
        name=body.name,
        tags=body.tags,
        created_at=now,
        expires_at=now + body.ttl,
    )
    return record, secret


def digest_of(secret: str) -> str:
    """What is stored in place of a secret of 256 random bits."""
    return sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def place_of(address: str) -> tuple[str, int]:
    """Host and port of a node's address; by default `PORT`. Raises `ValueError` for a port that is none."""
    host = host_of(address)
    port = address.removeprefix(f"[{host}]").removeprefix(host).removeprefix(":")
    if port and not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f"{port} is no port")
    return host, int(port) if port else PORT


def with_port_of(address: str, listen: str) -> str:
    """A node's address: where it has no port, with that of `listen` (`cluster.listen`), unless that is `PORT`."""
    host, port = host_of(address), listen.rpartition(":")[2]
    if not address or not port or int(port) == PORT or address.removeprefix(f"[{host}]").removeprefix(host):
        return address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
