"""What the accounts of proxies have used: told by forwarding actors, kept by the metrics collector."""

from __future__ import annotations

from actors.bus.codec import message


@message
class AccountUsage:
    """What an account has used in a period. A value, not a message by itself.

    `period` is `day`, `week`, `month` or `total`, `since` its start (`config.model.quotas`). `resets` is the number of
    the last reset that the teller knows, -1 for none: what was counted before a reset counts no more.
    """

    period: str
    since: float
    resets: int
    bytes_in: int
    bytes_out: int


@message
class ReportUsage:
    """Forwarding actor → metrics collector, each second while it changes, at its start and at its end.

    By account id what this process has counted in the period. Answered by `Usage`, of the same accounts. What is
    `final` is on disk before it is answered, since nobody will tell it again.
    """

    proxy_id: str
    instance: int
    accounts: dict[str, AccountUsage]
    final: bool = False


@message
class QueryUsage:
    """API → metrics collector: what have the accounts of this proxy used? Answered by `Usage`."""

    proxy_id: str


@message
class Usage:
    """Metrics collector → API or forwarding actor: by account id, over all processes; one that is unknown is absent."""

    accounts: dict[str, AccountUsage]


@message
class ResetUsage:
    """API → metrics collector: this account has used nothing from now on. Answered by `Done`, once it is on disk."""

    proxy_id: str
    account_id: str


@message
class DropAccountUsage:
    """API → metrics collector: these accounts were removed. Answered by `Done`."""

    proxy_id: str
    account_ids: tuple[str, ...]


@message
class QueryAccounts:
    """API → forwarding actor: how are the accounts? With `settle` it asks the collector before it answers.

    Answered by `AccountStates`.
    """

    settle: bool


@message
class AccountState:
    """How an account is at this moment. A value, not a message by itself."""

    usage: AccountUsage
    connections: int


@message
class AccountStates:
    """Forwarding actor → API: by account id."""

    accounts: dict[str, AccountState]
