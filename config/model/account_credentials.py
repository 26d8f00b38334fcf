"""Credentials of accounts in requests, and as they are stored: without the secret, which its SHA-256 is enough to
recognize."""

from __future__ import annotations

import hashlib
import re
import secrets
import string
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, StrictInt, StrictStr

from config.model import json_patterns
from config.model.accounts import ClientNumber, ClientsWindow, Moment, Networks, Number
from config.model.declaration import SECRET, Group, Instant
from config.model.fields import Body, InvalidResource, example, name_text
from config.model.plans import DESTINATIONS_MAX, RuleDestinations

PREFIX = "pfc_"
"""The beginning of every secret."""
PREFIX_LENGTH = 11
"""Characters of a secret that stay, so that people recognize it."""


class CredentialLimits(Group):
    """How many client addresses may use the credential, over all proxies; 0 for no limit of its own.

    `clients_window` is seconds, null for those of the account.
    """

    clients: int = 0
    clients_window: int | None = None

    def view(self) -> dict[str, Any]:
        """Null is as the account."""
        return self.model_dump()


class AccountCredential(BaseModel):
    """A document of the collection `credentials`. Times are Unix seconds.

    `secret_hash` is the SHA-256 of the secret in hex, `prefix` its beginning. `allow_destinations` null is as the
    account; `quota` is bytes in total, 0 for none, as `max_connections`.
    """

    id: str
    account_id: str
    name: str = ""
    prefix: str
    secret_hash: Annotated[str, SECRET] = Field(repr=False)
    expires_at: Instant
    allow_clients: list[str] = []
    allow_destinations: list[str] | None = None
    quota: int = 0
    max_connections: int = 0
    limits: CredentialLimits = CredentialLimits()
    created_at: Instant


DAY = 86_400
TTL_MAX = 400 * DAY
"""Seconds."""
READ_ONLY_FIELDS = frozenset({"id", "account_id", "prefix", "secret", "created_at"})
NAME_MAX = 100

_ALPHABET = string.digits + string.ascii_letters
_LENGTH = 40
_SECRET = re.compile(rf"{PREFIX}[{_ALPHABET}]{{{_LENGTH}}}")


def _name(text: str) -> str:
    return text and name_text(text)


CredentialName = Annotated[
    StrictStr,
    Field(max_length=NAME_MAX),
    AfterValidator(_name),
    json_patterns.any_of(json_patterns.EMPTY, json_patterns.text(json_patterns.NAME, highest=NAME_MAX)),
]
SomeDestinations = Annotated[
    RuleDestinations,
    Field(min_length=1),
    json_patterns.texts(json_patterns.WRITTEN_DESTINATION, DESTINATIONS_MAX, least=1),
]
"""An empty list would have two meanings: no destination at all, or those of the account."""


def refuse_secret(field: str, text: str) -> None:
    """Raise `InvalidResource` for a text that forwarding would take for the secret of a credential."""
    if _SECRET.fullmatch(text):
        raise InvalidResource(
            field, f"must not have the form of a credential's secret ({PREFIX} and {_LENGTH} characters)"
        )


class CredentialQuota(Body):
    """Bytes in both directions together, in total over all proxies; 0 for none."""

    bytes: Annotated[StrictInt, Field(ge=0, le=10**18)]


class CredentialLimitsInput(Body):
    """See `CredentialLimits`."""

    clients: ClientNumber = 0
    clients_window: ClientsWindow | None = None


class CredentialCreate(Body):
    """A new credential: `ttl` in seconds or `expires_at`, one of them.

    It narrows what the account may do: `allow_destinations` and `allow_clients` hold beside those of the account;
    `max_connections` and `limits.clients` (client addresses within `clients_window` seconds) over all proxies.
    """

    model_config = example(
        {"name": "job 4711", "ttl": 900, "allow_destinations": ["*.example.com:443"], "max_connections": 10}
    )

    name: CredentialName = ""
    ttl: Annotated[StrictInt, Field(ge=1, le=TTL_MAX)] | None = None
    expires_at: Moment | None = None
    allow_clients: Networks = Field(default_factory=list)
    allow_destinations: SomeDestinations | None = None
    quota: CredentialQuota | None = None
    max_connections: Number = 0
    limits: CredentialLimitsInput = CredentialLimitsInput()

    def end(self, now: float) -> float:
        """When it would expire, Unix seconds. Raises `InvalidResource`."""
        if self.expires_at is None:
            if self.ttl is None:
                raise InvalidResource("ttl", "is required, or expires_at in its place")
            return now + self.ttl
        if self.ttl is not None:
            raise InvalidResource("ttl", "must be left out where expires_at is given")
        if self.expires_at <= now:
            raise InvalidResource("expires_at", "must be in the future")
        if self.expires_at > now + TTL_MAX:
            raise InvalidResource("expires_at", f"must be within {TTL_MAX // DAY} days")
        return self.expires_at


def new_credential(
    account_id: str, account_end: float | None, body: CredentialCreate, now: float
) -> tuple[AccountCredential, str]:
    """The credential, which ends with the account at the latest, and its secret, which is not stored.

    Raises `InvalidResource`.
    """
    secret = PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))
    ends = body.end(now)
    credential = AccountCredential(
        id="crd_" + secrets.token_hex(8),
        account_id=account_id,
        name=body.name,
        prefix=secret[:PREFIX_LENGTH],
        secret_hash=hashlib.sha256(secret.encode()).hexdigest(),
        expires_at=ends if account_end is None else min(ends, account_end),
        allow_clients=body.allow_clients,
        allow_destinations=body.allow_destinations,
        quota=0 if body.quota is None else body.quota.bytes,
        max_connections=body.max_connections,
        limits=CredentialLimits(**body.limits.model_dump()),
        created_at=now,
    )
    return credential, secret
