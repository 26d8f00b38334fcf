"""The usage of the accounts of proxies: reported by forwarding actors, stored by the metrics collector."""

from __future__ import annotations

from actors.bus.codec import message


@message
class AccountUsage:
    """What an account has used in a period. A value, not a message by itself.

    `period` is `day`, `week`, `month` or `total`, `since` its start (`config.model.quotas`). `resets` is the number of
    the last reset that the reporting process knows, -1 for none: what was counted before a reset counts no more.
    """

    period: str
    since: float
    resets: int
    bytes_in: int
    bytes_out: int


@message
class ReportUsage:
    """Forwarding actor → metrics collector, each second while it changes, at its start and at its end.

    By account id what this process has counted in the period. → `Usage`, of the same accounts. What is `final` is on
    disk before the reply, since it is not reported again.
    """

    proxy_id: str
    instance: int
    accounts: dict[str, AccountUsage]
    final: bool = False


@message
class QueryUsage:
    """API → metrics collector: the usage of the accounts of this proxy. → `Usage`."""

    proxy_id: str


@message
class Usage:
    """Metrics collector → API or forwarding actor: by account id, over all processes; one that is unknown is absent."""

    accounts: dict[str, AccountUsage]


@message
class ResetUsage:
    """API → metrics collector: count the usage of this account from zero. → `Done`, once it is on disk."""

    proxy_id: str
    account_id: str


@message
class DropAccountUsage:
    """API → metrics collector: these accounts were removed. → `Done`."""

    proxy_id: str
    account_ids: tuple[str, ...]


@message
class QueryAccounts:
    """API → forwarding actor: the state of the accounts. → `AccountStates`.

    With `settle` it exchanges usage with the collector before it replies.
    """

    settle: bool


@message
class AccountState:
    """The present state of an account. A value, not a message by itself."""

    usage: AccountUsage
    connections: int


@message
class AccountStates:
    """Forwarding actor → API: by account id."""

    accounts: dict[str, AccountState]
