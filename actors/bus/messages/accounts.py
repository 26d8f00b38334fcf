"""The usage of accounts: counted by forwarding actors (`actors.state.usage`), booked by the metrics collector.

Accounts are known by their id alone, whichever proxies they use. Credentials with a quota are counted the same way.
"""

from __future__ import annotations

from dataclasses import field

from actors.bus.codec import message

CREDENTIAL = "crd_"
"""Begins the id of a credential: what it uses is that of its account as well."""

DATABASE = "database"


@message
class AccountUsage:
    """What an account has used in a period. A value, not a message by itself.

    `period` is `day`, `week`, `month` or `total`, `since` its start (`config.model.choices`).
    """

    period: str
    since: float
    bytes_in: int
    bytes_out: int


@message
class AccountActivity:
    """The usage of an account over all proxies, and its last use. A value, not a message by itself.

    `connections` are open now; `last_seen` is Unix seconds, 0 for never, and `client_ip` the client's address then.
    `proxies` are the ids of those with open connections of it, the one with most first, 50 of them.
    """

    usage: AccountUsage
    connections: int = 0
    last_seen: float = 0.0
    client_ip: str = ""
    proxies: tuple[str, ...] = ()


@message
class RenewPassword:
    """Forwarding actor → API: the right password came for an account whose hash is foreign. → `Done`, `Failed`.

    `renewed` is a hash of our own of the same password (`config.passwords`), to be stored in place of `previous`.
    """

    account_id: str
    previous: str = field(repr=False)
    renewed: str = field(repr=False)


DENIED_TUNNELS_MAX = 10
"""Different tunnels that a report of refusals names for each user."""


@message
class RefusedTunnel:
    """A tunnel that was refused for the name in its TLS handshake. A value, not a message by itself.

    `target` is the host and port that the client asked for, `tls_name` the name, empty for none, and `kind` what was
    wrong with it: `mismatch`, `not_tls`, `no_name`, `malformed`, `timeout`.
    """

    target: str
    tls_name: str
    kind: str


@message
class DeniedNames:
    """The tunnels of one user that were so refused. A value, not a message by itself.

    `account_id` is empty for a user that is no account, and so is `username` for clients without credentials. `count`
    were refused, the first at `since` (Unix seconds); `tunnels` are some different ones.
    """

    account_id: str
    username: str
    count: int
    since: float
    tunnels: tuple[RefusedTunnel, ...]

    def joined(self, other: DeniedNames) -> DeniedNames:
        """Both together; they are of the same user."""
        tunnels = tuple(dict.fromkeys((*self.tunnels, *other.tunnels)))[:DENIED_TUNNELS_MAX]
        since = min(self.since, other.since)
        return DeniedNames(self.account_id or other.account_id, self.username, self.count + other.count, since, tunnels)


@message
class ReportDeniedNames:
    """Forwarding actor → metrics collector: refused since the last report, the first ones at once. → `Done`."""

    proxy_id: str
    users: tuple[DeniedNames, ...]


@message
class QueryUsage:
    """API or forwarding actor → metrics collector: the usage of accounts, by id the period. → `UsageOfAccounts`.

    All that was counted of them is booked before the reply, and forwarding actors can read what was used before.
    """

    periods: dict[str, str]


@message
class UsageOfAccounts:
    """Metrics collector → API: by account id; one that was never used is absent."""

    accounts: dict[str, AccountActivity]


@message
class QueryReached:
    """API → metrics collector: accounts that have reached their quota in the present period. → `Reached`."""

    limit: int


@message
class Reached:
    """Metrics collector → API: ids, at most as many as asked for. A quota may be larger by now."""

    account_ids: tuple[str, ...]


@message
class QueryOpen:
    """API → metrics collector: accounts whose ids begin so, with open connections. → `OpenOfAccounts`."""

    beginning: str


@message
class OpenOfAccounts:
    """Metrics collector → API: by account id, the open connections of those that have any."""

    connections: dict[str, int]


@message
class ResetUsage:
    """API → metrics collector: count the usage of these accounts from zero. → `Done`, and then all processes do.

    `by_change`: since their configuration has changed, which all nodes of a fleet say. In a fleet → `Failed` with the
    field `DATABASE` when its database does not respond.
    """

    account_ids: tuple[str, ...]
    by_change: bool = False


@message
class DropAccountUsage:
    """API → metrics collector: these accounts were removed. → `Done`. Their closed hours stay."""

    account_ids: tuple[str, ...]


@message
class QueryAccounts:
    """API → forwarding actor: the state of the accounts. → `AccountStates`."""


@message
class AccountState:
    """The present state of an account. A value, not a message by itself.

    `known` is false while the process has no total of the collector yet.
    """

    usage: AccountUsage
    connections: int
    known: bool = True


@message
class AccountStates:
    """Forwarding actor → API: by account id."""

    accounts: dict[str, AccountState] = field(default_factory=dict)
