"""What forwarding needs of an account, a plan and a credential. Tuples, since the table packs and unpacks them."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from actors.accounts.schedule import ScheduleData
from actors.bus.messages.specs import AccountSpec, LimitsSpec


class Rules(NamedTuple):
    """What an account may say itself, or else its plan: None inherits. Field by field, and limits key by key.

    Limits as in `LimitsSpec`; `quota` is bytes and period; destinations are entries of access rules
    (`config.net.entries`), an empty list stands against that of the plan. `policy` is the name of one: that of
    the account comes before that of the plan. `egress` are its addresses and networks (`config.net.egress`).
    """

    bandwidth_in: int | None = None
    bandwidth_out: int | None = None
    connections: int | None = None
    requests_per_minute: int | None = None
    quota: tuple[int, str] | None = None
    allow_destinations: tuple[str, ...] | None = None
    deny_destinations: tuple[str, ...] | None = None
    schedule: ScheduleData | None = None
    policy: str | None = None
    egress: tuple[str, ...] | None = None


class PlanRecord(NamedTuple):
    """One plan. `self_service_…`: what holders of its accounts may do themselves. `disclose`: see `AccountSpec`."""

    id: str
    name: str
    rules: Rules = Rules()
    self_service_password: bool = False
    self_service_credentials: bool = False
    disclose: bool = True


class AccountRecord(NamedTuple):
    """One account. It may use every proxy if `all_proxies`, else those named by an id or by one of the tags.

    `password_hash` None: it has no password. `expires_at` 0: never. `plan` is an id, empty for none. `certificates`
    are normal entries (`config.files.client_certificates`): a client with a matching certificate is this account.
    `renewal` is `config.passwords.renewal`'s, empty where the hash has taken the place of none.
    """

    id: str
    username: str
    password_hash: str | None = None
    enabled: bool = True
    expires_at: float = 0.0
    allow_clients: tuple[str, ...] = ()
    all_proxies: bool = True
    proxy_ids: tuple[str, ...] = ()
    proxy_tags: tuple[str, ...] = ()
    plan: str = ""
    socks4_by_name: bool = False
    tags: tuple[str, ...] = ()
    rules: Rules = Rules()
    certificates: tuple[str, ...] = ()
    renewal: str = ""

    def may_use(self, proxy_id: str, proxy_tags: Collection[str]) -> bool:
        """Whether the account is one of this proxy."""
        return self.all_proxies or proxy_id in self.proxy_ids or any(tag in proxy_tags for tag in self.proxy_tags)


class CredentialRecord(NamedTuple):
    """One credential of an account; it narrows what the account may do.

    `expires_at` is Unix seconds. `allow_destinations` None: as the account. `quota` is bytes in total, 0 for none, as
    `max_connections`. `prefix` is the beginning of the secret, by which people recognize it.
    """

    id: str
    account_id: str
    name: str
    prefix: str
    expires_at: float
    allow_clients: tuple[str, ...] = ()
    allow_destinations: tuple[str, ...] | None = None
    quota: int = 0
    max_connections: int = 0


def effective(account: AccountRecord, plan: PlanRecord | None) -> AccountSpec:
    """The account with what it inherits of its plan. Pure."""
    rules = merged(account.rules, plan.rules if plan is not None else Rules())
    quota, period = rules.quota or (0, "total")
    return AccountSpec(
        id=account.id,
        username=account.username,
        password_hash=account.password_hash,
        enabled=account.enabled,
        limits=LimitsSpec(
            rules.bandwidth_in or 0, rules.bandwidth_out or 0, rules.connections or 0, rules.requests_per_minute or 0
        ),
        quota=quota,
        period=period,
        expires_at=account.expires_at,
        allow_clients=account.allow_clients,
        allow_destinations=rules.allow_destinations or (),
        deny_destinations=rules.deny_destinations or (),
        schedule=rules.schedule,
        socks4_by_name=account.socks4_by_name,
        certificates=account.certificates,
        renewal=account.renewal,
        tags=account.tags,
        policies=tuple(dict.fromkeys(filter(None, (account.rules.policy, plan and plan.rules.policy)))),
        egress=rules.egress or (),
        disclose=plan is None or plan.disclose,
    )


def merged(own: Rules, inherited: Rules) -> Rules:
    """`own` where it says something, else `inherited`."""
    return Rules._make(mine if mine is not None else theirs for mine, theirs in zip(own, inherited, strict=True))
