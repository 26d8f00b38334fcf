"""Accounts and limits of a proxy in requests, and their stored models.

Everywhere 0 means that there is no limit. Limits of a proxy: bandwidth is shared by all of it, connections and
requests are of each client address. Limits of an account are shared by all who use it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    WithJsonSchema,
)

from config.model import json_patterns
from config.model.choices import Period
from config.model.declaration import INTERNAL, MOMENT, SECRET, Given, Group, Instant, gives, update
from config.model.fields import NULLABLE, Body, InvalidProxy, Password, Username, example, refuse_long
from config.net.entries import read_network
from config.passwords import hash_to_store
from config.text.formatting import parse_moment
from config.weak_passwords import weakness_of_account

NEW_PASSWORDS_MAX = 100
"""New passwords in one request; each takes a good part of a tenth of a second to hash."""
NETWORKS_MAX = 100
BANDWIDTH_MIN = 1024


def _bandwidth(rate: int) -> int:
    if 0 < rate < BANDWIDTH_MIN:
        raise ValueError(f"must be 0 (no limit) or at least {BANDWIDTH_MIN} bytes per second")
    return rate


def _account_name(name: str) -> str:
    if "/" in name:
        raise ValueError("must not contain a slash: it is part of a path")
    if name in (".", ".."):
        raise ValueError("must not be . or ..: it is part of a path")
    return name


def _network(text: str) -> str:
    return str(read_network(text))


def _moment(value: Any) -> float:
    """Unix seconds, to the millisecond as in responses."""
    return round(parse_moment(value), 3)


Bandwidth = Annotated[
    StrictInt,
    Field(ge=0, le=10**12),
    AfterValidator(_bandwidth),
    WithJsonSchema({"type": "integer", "anyOf": [{"const": 0}, {"minimum": BANDWIDTH_MIN, "maximum": 10**12}]}),
]
Number = Annotated[StrictInt, Field(ge=0, le=1_000_000)]
ClientNumber = Annotated[StrictInt, Field(ge=0, le=10_000)]
"""Client addresses; each new one is compared with all that are there."""
CLIENTS_WINDOW = 600
ClientsWindow = Annotated[StrictInt, Field(ge=1, le=31 * 86_400)]
"""Seconds for which an address counts after it was last in use."""
AccountName = Annotated[Username, AfterValidator(_account_name), json_patterns.text(json_patterns.ACCOUNT_NAME, 1, 128)]
Networks = Annotated[
    list[Annotated[StrictStr, AfterValidator(_network), json_patterns.text(json_patterns.NETWORK)]],
    Field(max_length=NETWORKS_MAX),
]
Moment = Annotated[float, BeforeValidator(_moment), WithJsonSchema(json_patterns.MOMENT)]


class ProxyLimits(Group):
    """Limits of a proxy, 0 for none. Bandwidth is bytes per second; `in` is what clients send.

    Bandwidth is shared by the whole proxy; connections and requests are counted for each client address.
    """

    bandwidth_in: Annotated[int, Given(Bandwidth)] = 0
    bandwidth_out: Annotated[int, Given(Bandwidth)] = 0
    connections_per_client: Annotated[int, Given(Number)] = 0
    requests_per_minute: Annotated[int, Given(Number)] = 0


class AccountLimits(Group):
    """Limits of an account, 0 for none. Bandwidth is bytes per second; `in` is what clients send.

    `clients` is how many client addresses (with IPv6 their /64) may use it within `clients_window` seconds.
    """

    bandwidth_in: Annotated[int, Given(Bandwidth)] = 0
    bandwidth_out: Annotated[int, Given(Bandwidth)] = 0
    connections: Annotated[int, Given(Number)] = 0
    requests_per_minute: Annotated[int, Given(Number)] = 0
    clients: Annotated[int, Given(ClientNumber)] = 0
    clients_window: Annotated[int, Given(ClientsWindow)] = CLIENTS_WINDOW


class Quota(Group):
    """The quota of an account: bytes in both directions together in each period, 0 for none."""

    bytes: Annotated[int, Given(Annotated[StrictInt, Field(ge=0, le=10**18)])] = 0
    period: Annotated[Period, Given(Period)] = "total"


class ProxyAccount(BaseModel):
    """One account. Its `id` is what its usage is counted under; a new account of an old name has a new one."""

    id: Annotated[str, INTERNAL]
    username: str
    password_hash: Annotated[str | None, SECRET] = Field(None, repr=False)
    enabled: Annotated[bool, Given(StrictBool)] = True
    limits: AccountLimits = AccountLimits()
    quota: Quota = Quota()
    expires_at: Annotated[float | None, MOMENT] = None
    allow_clients: Annotated[list[str], Given(Networks)] = []
    created_at: Instant


@gives(ProxyAccount)
class AccountUpdate(Body):
    """A change of an account: what is not given stays. `expires_at` null means never."""

    model_config = example({"enabled": False, "limits": {"connections": 10}})

    password: Password | None = Field(None, repr=False)
    expires_at: Annotated[Moment | None, NULLABLE] = None


class AccountInput(AccountUpdate):
    """A new account, or an entry of the list `accounts`."""

    model_config = example(
        {
            "username": "alice",
            "password": "correct horse",
            "limits": {"bandwidth_out": 1_000_000},
            "quota": {"bytes": 10_000_000_000, "period": "month"},
            "expires_at": "2030-01-01T00:00:00Z",
        }
    )

    username: AccountName


Accounts = list[AccountInput]


def replace_accounts(
    known: Sequence[ProxyAccount], given: Sequence[AccountInput], protocol: str, now: float
) -> list[ProxyAccount]:
    """The accounts of a list in a request. Of one with a known name the password stays when none is given.

    Raises `InvalidProxy`, which names the entry.
    """
    if sum(entry.password is not None for entry in given) > NEW_PASSWORDS_MAX:
        raise InvalidProxy("accounts", f"at most {NEW_PASSWORDS_MAX} passwords can be set in one request")
    by_name = {account.username: account for account in known}
    accounts = []
    for index, entry in enumerate(given):
        before = by_name.get(entry.username)
        blank = _blank(entry.username, now, before if protocol != "socks4" else None)
        if before is not None:
            blank = blank.model_copy(update={"id": before.id, "created_at": before.created_at})
        unchanged = before.expires_at if before is not None else None
        accounts.append(change_account(blank, entry, protocol, now, f"accounts[{index}].", unchanged))
    return accounts


def refuse_weak(given: Sequence[AccountInput], known: Sequence[ProxyAccount], after: Sequence[ProxyAccount]) -> None:
    """Raise `InvalidProxy` for the first account of a list in a request with a new password that is weak."""
    before, hashes = ({each.username: each.password_hash for each in accounts} for accounts in (known, after))
    for index, entry in enumerate(given):
        name = entry.username
        why = weakness_of_account(entry.password, name, before.get(name), hashes.get(name))
        if why is not None:
            raise InvalidProxy(f"accounts[{index}].password", why)


def new_account(entry: AccountInput, protocol: str, now: float) -> ProxyAccount:
    """One account more. Raises `InvalidProxy`."""
    return change_account(_blank(entry.username, now, None), entry, protocol, now)


def change_account(
    account: ProxyAccount,
    body: AccountUpdate,
    protocol: str,
    now: float,
    path: str = "",
    unchanged: float | None = None,
) -> ProxyAccount:
    """`account` with the changes of `body`. `unchanged` is an end that may be given though it has passed.

    Raises `InvalidProxy` with fields below `path`.
    """
    changed = update(account, body)
    if "expires_at" in body.model_fields_set:
        changed["expires_at"] = _end(body.expires_at, unchanged or account.expires_at, now, path)
    if body.password is not None:
        if protocol == "socks4":
            raise InvalidProxy(f"{path}password", "socks4 has no passwords: clients send the username as their USERID")
        if protocol in ("socks5", "mixed"):
            refuse_long(f"{path}password", body.password)
        changed["password_hash"] = hash_to_store(body.password, account.password_hash)
    return account.model_copy(update=changed)


def _blank(username: str, now: float, before: ProxyAccount | None) -> ProxyAccount:
    return ProxyAccount(
        id="acc_" + secrets.token_hex(8),
        username=username,
        password_hash=before.password_hash if before is not None else None,
        created_at=now,
    )


def _end(moment: float | None, unchanged: float | None, now: float, path: str) -> float | None:
    if moment is not None and moment <= now and moment != unchanged:
        raise InvalidProxy(f"{path}expires_at", "must be in the future")
    return moment


def check_accounts(accounts: Sequence[ProxyAccount], protocol: str, auth_username: str | None) -> None:
    """Do the accounts go with each other and with the proxy? Raises `InvalidProxy`."""
    seen: set[str] = set()
    for index, account in enumerate(accounts):
        path = f"accounts[{index}]"
        if account.username in seen:
            raise InvalidProxy(f"{path}.username", "is the name of an account before it")
        if account.username == auth_username:
            raise InvalidProxy(f"{path}.username", "is auth.username already")
        seen.add(account.username)
        _check_credentials(account, protocol, path)


def _check_credentials(account: ProxyAccount, protocol: str, path: str) -> None:
    if protocol == "socks4":
        if account.password_hash is not None:
            raise InvalidProxy(f"{path}.password", "socks4 has no passwords; give accounts without them")
        return
    if account.password_hash is None:
        raise InvalidProxy(f"{path}.password", "is required")
    if protocol in ("socks5", "mixed"):
        refuse_long(f"{path}.username", account.username)
