"""Accounts of the fleet in requests, one and many, and as they are stored; of one proxy: `config.model.accounts`."""

from __future__ import annotations

import secrets
from typing import Annotated

from pydantic import AfterValidator, Field, StrictBool, StrictStr

from config.files.certificates import ENTRY_MAX, normal_entry
from config.model import json_patterns
from config.model.account_credentials import refuse_secret
from config.model.accounts import AccountName, Moment, Networks
from config.model.declaration import MOMENT, SECRET, Given, Instant, gives, update
from config.model.fields import NULLABLE, Body, InvalidResource, Name, Password, example, plain_text, refuse_long
from config.model.object_fields import Chosen, ChosenInput, Tags, plain_or_empty, retagged, selecting
from config.model.plans import StoredRules, refuse_no_quota
from config.passwords import PREHASHED, fingerprint, given_hash, hash_to_store, renewal

READ_ONLY_FIELDS = frozenset(
    {"id", "status", "usage", "last_seen_at", "last_client_ip", "active_connections", "created_at", "updated_at"}
)
IDS_MAX = 1_000
"""Proxies that an account names by their ids."""
CERTIFICATES_MAX = 32
"""Entries for certificates."""
METADATA_MAX = 32
METADATA_TEXT_MAX = 500


PasswordHash = Annotated[
    StrictStr,
    Field(max_length=len(PREHASHED) + 60),
    json_patterns.text(json_patterns.ACCOUNT_HASH),
    Field(pattern=json_patterns.ACCOUNT_HASH),
]
"""A hash of bcrypt, from elsewhere or with `sha256:` one of our own.

The cost is bounded, since every first sign-in pays it.
"""
ProxyIds = Annotated[
    list[Annotated[StrictStr, Field(min_length=1, max_length=64)]], Field(min_length=1, max_length=IDS_MAX)
]
Metadata = Annotated[
    dict[
        Annotated[StrictStr, Field(min_length=1, max_length=64), AfterValidator(plain_text)],
        Annotated[StrictStr, Field(max_length=METADATA_TEXT_MAX), AfterValidator(plain_or_empty)],
    ],
    Field(max_length=METADATA_MAX),
    json_patterns.mapping(
        {"minLength": 1, "maxLength": 64, "pattern": json_patterns.PLAIN},
        json_patterns.text_or_none(json_patterns.PLAIN, METADATA_TEXT_MAX),
        METADATA_MAX,
    ),
]


def _entry(text: str) -> str:
    return normal_entry(plain_text(text))


def _distinct(entries: list[str]) -> list[str]:
    return list(dict.fromkeys(entries))


Certificate = Annotated[
    StrictStr,
    Field(min_length=1, max_length=ENTRY_MAX),
    AfterValidator(_entry),
    json_patterns.text(json_patterns.CERTIFICATE, 1, ENTRY_MAX),
]
Certificates = Annotated[list[Certificate], Field(max_length=CERTIFICATES_MAX), AfterValidator(_distinct)]


class AccountProxies(Chosen):
    """The proxies that an account may use: every proxy, or each that an id or a tag names."""

    ids: list[str] = Field(default_factory=list)
    tags: list[str] = Field(default_factory=list)


class ProxiesInput(ChosenInput):
    """The proxies that an account may use: `all`, or each that one of the ids or tags names."""

    model_config = selecting("ids")
    SELECTED = "proxies"
    BY = "ids"

    ids: ProxyIds | None = None

    def stored(self) -> AccountProxies:
        """As it is stored."""
        return AccountProxies.model_validate(self.model_dump(exclude_none=True))


class FleetAccount(StoredRules):
    """A document of the collection `accounts`. Times are Unix seconds.

    `plan` is the id of a plan, or empty. `password_hash` None: it has credentials only. `renewal_hash` says of which
    previous hash the present one is the renewal (`config.passwords.renewal`), empty for none.
    """

    id: str
    username: Annotated[str, Given(AccountName)]
    password_hash: Annotated[str | None, SECRET] = Field(None, repr=False)
    renewal_hash: Annotated[str, SECRET] = Field("", repr=False)
    proxies: Annotated[AccountProxies, Given(ProxiesInput)] = AccountProxies(all=True)
    plan: str = ""
    enabled: Annotated[bool, Given(StrictBool)] = True
    expires_at: Annotated[float | None, MOMENT] = None
    allow_clients: Annotated[list[str], Given(Networks)] = Field(default_factory=list)
    certificates: Annotated[list[str], Given(Certificates)] = Field(default_factory=list)
    socks4_by_name: Annotated[bool, Given(StrictBool)] = False
    tags: Annotated[list[str], Given(Tags)] = Field(default_factory=list)
    metadata: Annotated[dict[str, str], Given(Metadata)] = Field(default_factory=dict)
    created_at: Instant
    updated_at: Instant

    def is_password(self, previous: str) -> bool:
        """Whether the hash with this fingerprint is of the present password."""
        stored = self.password_hash
        if stored is None:
            return False
        return fingerprint(stored) == previous or (
            self.renewal_hash != "" and renewal(previous, stored) == self.renewal_hash
        )


@gives(FleetAccount)
class FleetAccountUpdate(Body):
    """A change of an account: what is not given stays.

    `password` null: the account has credentials only. `password_hash` is a hash of bcrypt, from elsewhere or with
    `sha256:` over the base64 of the password's SHA-256.
    """

    model_config = example({"plan": "basic", "limits": {"connections": 10}, "tags": ["berlin"]})

    password: Annotated[Password | None, NULLABLE] = Field(None, repr=False)
    password_hash: PasswordHash | None = Field(None, repr=False)
    plan: Annotated[Name | None, NULLABLE] = None
    expires_at: Annotated[Moment | None, NULLABLE] = None

    def resolved(self, account: FleetAccount) -> FleetAccountUpdate:  # noqa: ARG002 - for those that depend on it
        """The same in absolute terms, where it depends on what `account` is now. Raises `InvalidResource`."""
        return self


class FleetAccountCreate(FleetAccountUpdate):
    """A new account. Without a password it has credentials only."""

    model_config = example(
        {
            "username": "alice",
            "password": "correct horse",
            "proxies": {"tags": ["office"]},
            "quota": {"bytes": 10_000_000_000, "period": "month"},
            "expires_at": "2030-01-01T00:00:00Z",
            "metadata": {"customer": "4711"},
        }
    )

    username: AccountName


def new_fleet_account(body: FleetAccountCreate, plan: str, now: float) -> FleetAccount:
    """The account that `body` describes, with the plan of this id. Hashes the password. Raises `InvalidResource`."""
    blank = FleetAccount(id="acc_" + secrets.token_hex(8), username=body.username, created_at=now, updated_at=now)
    return change_fleet_account(blank, body, plan, now)


def change_fleet_account(account: FleetAccount, body: FleetAccountUpdate, plan: str, now: float) -> FleetAccount:
    """`account` with the changes of `body`, and with the plan of this id. Raises `InvalidResource`."""
    body = body.resolved(account)
    refuse_no_quota(account, body)
    changed = {**update(account, body), "plan": plan, "updated_at": now}
    refuse_long("username", changed.get("username"))
    if "expires_at" in body.model_fields_set:
        changed["expires_at"] = _end(body.expires_at, account.expires_at, now)
    if body.model_fields_set & {"password", "password_hash"}:
        changed["password_hash"] = _hash(account.password_hash, body)
    return account.model_copy(update=changed)


def _hash(known: str | None, body: FleetAccountUpdate) -> str | None:
    """The hash to store. The present password, given again, is no change."""
    if body.password_hash is not None:
        if body.password is not None:
            raise InvalidResource("password_hash", "must be left out where a password is given")
        same = known is not None and known.endswith(body.password_hash.removeprefix(PREHASHED))
        return known if same else given_hash(body.password_hash)
    if body.password is None:
        return None
    refuse_long("password", body.password)
    refuse_secret("password", body.password)
    return hash_to_store(body.password, known)


def _end(moment: float | None, unchanged: float | None, now: float) -> float | None:
    if moment is not None and moment <= now and moment != unchanged:
        raise InvalidResource("expires_at", "must be in the future")
    return moment


BATCH_MAX = 1_000
"""Accounts in each list of a batch."""
IMPORT_MAX = 10_000
"""Accounts in each list of an import; each takes 10 KB or so of memory until all are stored."""

AccountId = Annotated[StrictStr, Field(min_length=1, max_length=64)]


class FleetAccountChange(FleetAccountUpdate):
    """A change of the account with this id. `add_tags` and `remove_tags` keep its other tags."""

    id: AccountId
    add_tags: Tags | None = None
    remove_tags: Tags | None = None

    def resolved(self, account: FleetAccount) -> FleetAccountChange:
        """See `FleetAccountUpdate`."""
        if self.add_tags is None and self.remove_tags is None:
            return self
        if self.tags is not None:  # type: ignore[attr-defined]  # a field of the account, which `gives` adds
            raise InvalidResource("tags", "must be left out beside add_tags and remove_tags")
        return self.model_copy(update={"tags": retagged(account.tags, self.add_tags or (), self.remove_tags or ())})


class AccountBatch(Body):
    """Accounts to create, to change and to delete, all of them or none."""

    model_config = example(
        {
            "create": [{"username": "alice", "password": "correct horse", "plan": "basic"}, {"username": "job-runner"}],
            "update": [{"id": "acc_0123456789abcdef", "enabled": False}],
            "delete": ["acc_fedcba9876543210"],
        }
    )

    create: Annotated[list[FleetAccountCreate], Field(max_length=BATCH_MAX)] = Field(default_factory=list)
    update: Annotated[list[FleetAccountChange], Field(max_length=BATCH_MAX)] = Field(default_factory=list)
    delete: Annotated[list[AccountId], Field(max_length=BATCH_MAX)] = Field(default_factory=list)

    @property
    def passwords(self) -> int:
        """The number of passwords to hash."""
        return sum(each.password is not None for each in (*self.create, *self.update))


class AccountImport(AccountBatch):
    """As a batch, of more accounts; passwords only as hashes."""

    model_config = example({"create": [{"username": "alice", "password_hash": "$2b$10$" + 53 * "u"}]})

    create: Annotated[list[FleetAccountCreate], Field(max_length=IMPORT_MAX)] = Field(default_factory=list)
    update: Annotated[list[FleetAccountChange], Field(max_length=IMPORT_MAX)] = Field(default_factory=list)
    delete: Annotated[list[AccountId], Field(max_length=IMPORT_MAX)] = Field(default_factory=list)
