"""What accounts of the fleet have used and when, of the metrics collector, which counts over all proxies."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from actors.bus.messages.accounts import (
    DATABASE,
    AccountActivity,
    AccountUsage,
    DropAccountUsage,
    QueryReached,
    QueryUsage,
    Reached,
    ResetUsage,
    UsageOfAccounts,
)
from actors.bus.messages.common import METRICS, Done, Failed
from actors.state.account_clients import AccountClients, open_clients
from api.bus_bridge import Bridge, checked, reason_of
from api.engine.records import Stored, moment, view_of
from api.history.document_changes import Body, DocumentChange
from api.objects.accounts.account_kind import StoredInline, status_of
from api.objects.accounts.plan_kind import Plans
from api.objects.proxies.proxy_cache import COLLECTION as PROXIES
from api.store import LedgerError
from api.store.accounts import ACCOUNTS, CREDENTIALS
from config.model.accounts import CLIENTS_WINDOW, Quota
from config.model.choices import period_at
from config.model.fleet_accounts import FleetAccount
from config.model.plans import RuleLimits

log = logging.getLogger(__name__)

ASK_TIMEOUT = 3.0
RESET_TIMEOUT = 8.0
"""Seconds of two statements of the fleet's database."""
AT_QUOTA_MAX = 1_000
WITH_USAGE = (ACCOUNTS, CREDENTIALS, PROXIES)
"""Collections of what has usage; accounts of one proxy are in that."""


class AccountActivities:
    """Requests to the collector about accounts of the fleet. Thread-safe."""

    def __init__(self, bridge: Bridge, plans: Plans, clients: Path) -> None:
        """`clients` is the file with the client addresses of accounts (`RunDir.clients`)."""
        self._bridge = bridge
        self._plans = plans
        self._clients_file = clients
        self._clients: AccountClients | None = None

    def quota_of(self, account: FleetAccount) -> Quota:
        """The account's own quota, or that of its plan; 0 bytes for none."""
        if account.quota is not None:
            return account.quota
        plan = self._plans.known(account.plan)
        return plan.quota if plan is not None and plan.quota is not None else Quota()

    def clients_of(self, account_id: str, limits: RuleLimits) -> int | None:
        """How many client addresses use the account now; None where these limits don't have them counted."""
        if not limits.clients:
            return None
        try:
            self._clients = self._clients or open_clients(self._clients_file)
        except OSError as error:
            log.warning("the client addresses of accounts are not known: %s", error)
            return None
        return self._clients.in_use(account_id, limits.clients_window or CLIENTS_WINDOW)

    def of(self, accounts: Iterable[FleetAccount]) -> dict[str, AccountActivity] | None:
        """By id, the activity in the present period of each quota; None when the collector doesn't reply."""
        periods: dict[str, str] = {each.id: self.quota_of(each).period for each in accounts}
        known = self.counted(periods)
        return None if known is None else {each: known.get(each) or unused(period) for each, period in periods.items()}

    def counted(self, periods: Mapping[str, str]) -> dict[str, AccountActivity] | None:
        """By the ids of accounts and the kinds of their periods, what the collector has counted; None as in `of`."""
        if not periods:
            return {}
        reply: Any = self._bridge.ask(METRICS, QueryUsage(dict(periods)), ASK_TIMEOUT)
        return reply.accounts if isinstance(reply, UsageOfAccounts) else None

    def views(self, accounts: Sequence[Stored[FleetAccount]]) -> list[dict[str, Any]]:
        """Every field of these accounts that a response has; of their usage null where it is not known now."""
        known = self.of(each.record for each in accounts) or {}
        return [self._view(each, known.get(each.record.id)) for each in accounts]

    def _view(self, account: Stored[FleetAccount], activity: AccountActivity | None) -> dict[str, Any]:
        record = account.record
        plan, quota = self._plans.known(record.plan), self.quota_of(record)
        return {
            **view_of(record),
            "inline": isinstance(account, StoredInline),
            "plan": None if plan is None else plan.name,
            "status": status_of(record, time.time(), 0 < quota.bytes <= used_bytes(activity)),
            "usage": None if activity is None else usage_view(activity, quota),
            "last_seen_at": None if activity is None else moment(activity.last_seen or None),
            "last_client_ip": None if activity is None else activity.client_ip or None,
            "active_connections": None if activity is None else activity.connections,
        }

    def at_quota(self, get: Callable[[str], FleetAccount | None]) -> list[FleetAccount]:
        """Accounts that have used up their quota, at most `AT_QUOTA_MAX`; none when the collector doesn't reply.

        `get` returns an account, None for one that is gone.
        """
        reply: Any = self._bridge.ask(METRICS, QueryReached(AT_QUOTA_MAX), ASK_TIMEOUT)
        ids = reply.account_ids if isinstance(reply, Reached) else ()
        accounts = [account for each in ids if (account := get(each)) is not None and account.enabled]
        used = {each: activity.usage for each, activity in (self.of(accounts) or {}).items()}

        def is_used_up(account: FleetAccount) -> bool:
            quota, usage = self.quota_of(account).bytes, used.get(account.id)
            return usage is not None and 0 < quota <= usage.bytes_in + usage.bytes_out

        return [each for each in accounts if is_used_up(each)]

    def reset(self, account_id: str) -> None:
        """Set the usage to zero, in a fleet on all nodes. Raises `PeerUnavailable` and `LedgerError`."""
        reply = self._bridge.ask(METRICS, ResetUsage((account_id,)), RESET_TIMEOUT)
        if isinstance(reply, Failed) and reply.field == DATABASE:
            raise LedgerError(reply.error)
        checked(METRICS, reply, Done)

    def follow(self, changes: Sequence[DocumentChange]) -> None:
        """Have the usage dropped of accounts and credentials that are gone; their closed hours stay.

        Of accounts of a proxy whose quota has another period now it begins at zero.
        """
        gone, begun = list[str](), list[str]()
        for each in changes:
            before, after = _periods(each.collection, each.before), _periods(each.collection, each.after)
            gone += before.keys() - after.keys()
            begun += [key for key in before.keys() & after.keys() if before[key] != after[key]]
        for ids, message in ((gone, DropAccountUsage(tuple(gone))), (begun, ResetUsage(tuple(begun), by_change=True))):
            reply = self._bridge.ask(METRICS, message, ASK_TIMEOUT) if ids else Done()
            if not isinstance(reply, Done):
                log.warning("cannot change the usage of %d accounts: %s", len(ids), reason_of(reply))


def ends_usage(change: DocumentChange) -> bool:
    """Whether `follow` is about a change."""
    before, after = _periods(change.collection, change.before), _periods(change.collection, change.after)
    return not before.items() <= after.items()


def _periods(collection: str, body: Body | None) -> dict[str, str]:
    """What has usage in a document, by id, with the period of an account of a proxy."""
    if body is None:
        return {}
    if collection == PROXIES:
        return {account["id"]: account["quota"]["period"] for account in body["accounts"]}
    return {body["id"]: ""} if collection == ACCOUNTS or body["quota"] else {}


def unused(period: str) -> AccountActivity:
    """Of an account that has used nothing in the present period."""
    return AccountActivity(AccountUsage(period, period_at(period, time.time())[0], 0, 0))


def usage_view(activity: AccountActivity, quota: Quota) -> dict[str, Any]:
    """The usage in the present period of the quota."""
    usage, used = activity.usage, used_bytes(activity)
    until = period_at(usage.period, usage.since)[1]
    return {
        "period": usage.period,
        "period_start": moment(None if until is None else usage.since),
        "period_end": moment(until),
        "bytes": used,
        "bytes_in": usage.bytes_in,
        "bytes_out": usage.bytes_out,
        "quota": quota.bytes or None,
        "remaining": max(0, quota.bytes - used) if quota.bytes else None,
        "active_connections": activity.connections,
    }


def used_bytes(activity: AccountActivity | None) -> int:
    """Bytes in both directions, 0 where it is not known."""
    return 0 if activity is None else activity.usage.bytes_in + activity.usage.bytes_out
