"""The accounts of a proxy one by one: changes of the proxy's record, and the usage of accounts."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from actors.bus.messages.accounts import (
    AccountState,
    AccountStates,
    AccountUsage,
    QueryAccounts,
    QueryUsage,
    ResetUsage,
    UsageOfAccounts,
)
from actors.bus.messages.common import METRICS, Done
from api.bus_bridge import Bridge, request
from api.errors import Invalid, NotFound
from api.services.proxies import Proxies
from api.services.proxy_cache import StoredProxy
from api.services.worker_requests import ask_workers
from config.model.accounts import AccountInput, AccountUpdate, ProxyAccount, change_account, check_accounts, new_account
from config.model.fields import InvalidProxy
from config.model.proxies import ProxyRecord, apply_auth
from config.model.quotas import period_at
from config.weak_passwords import weakness_of_account

log = logging.getLogger(__name__)

ASK_TIMEOUT = 3.0
READ_ONLY_FIELDS = frozenset({"id", "usage", "created_at"})

_ENTRY = re.compile(r"accounts\[[0-9]+\]\.")


class Accounts:
    """Reads and changes. Thread-safe. Changes raise as those of `Proxies`."""

    def __init__(self, proxies: Proxies, bridge: Bridge) -> None:
        self._proxies = proxies
        self._bridge = bridge

    def add(self, proxy_id: str, body: AccountInput, if_match: int | None) -> StoredProxy:
        """Add an account; the first one turns `auth.enabled` on."""

        def alter(record: ProxyRecord) -> list[ProxyAccount]:
            if any(account.username == body.username for account in record.accounts):
                raise InvalidProxy("username", f"there is an account {body.username!r} already")
            made = new_account(body, record.protocol, time.time())
            self._refuse_weak(body, None, made)
            return [*record.accounts, made]

        return self._change(proxy_id, alter, if_match)

    def update(self, proxy_id: str, username: str, body: AccountUpdate, if_match: int | None) -> StoredProxy:
        """Change an account. Raises `NotFound` when there is none of this name."""

        def alter(record: ProxyRecord) -> list[ProxyAccount]:
            before = find(record, username)
            after = change_account(before, body, record.protocol, time.time())
            self._refuse_weak(body, before.password_hash, after)
            return [after if account is before else account for account in record.accounts]

        return self._change(proxy_id, alter, if_match)

    def remove(self, proxy_id: str, username: str, if_match: int | None) -> StoredProxy:
        """Remove an account. Raises as `update`."""

        def alter(record: ProxyRecord) -> list[ProxyAccount]:
            gone = find(record, username)
            return [account for account in record.accounts if account is not gone]

        return self._change(proxy_id, alter, if_match)

    def reset(self, account: ProxyAccount) -> None:
        """Set its usage to zero. Raises `PeerUnavailable`, and then nothing is changed."""
        request(self._bridge, METRICS, ResetUsage((account.id,)), Done, timeout=ASK_TIMEOUT)

    def usage(self, proxy: StoredProxy) -> dict[str, AccountState]:
        """By account id, the usage and connections: of the proxy's process, else of the collector, else zeros."""
        states = self._states(proxy)
        unknown: dict[str, str] = {
            account.id: account.quota.period
            for account in proxy.record.accounts
            if proxy.record.workers != 1 or account.id not in states or not states[account.id].known
        }
        if unknown:
            reply: Any = self._bridge.ask(METRICS, QueryUsage(unknown), ASK_TIMEOUT)
            for each, activity in reply.accounts.items() if isinstance(reply, UsageOfAccounts) else ():
                state = states.get(each)
                states[each] = AccountState(activity.usage, 0 if state is None else state.connections)
        return {account.id: _current(account, states.get(account.id)) for account in proxy.record.accounts}

    def _states(self, proxy: StoredProxy) -> dict[str, AccountState]:
        if proxy.record.status != "active" or not proxy.record.accounts:
            return {}
        replies = ask_workers(self._bridge, proxy.record, QueryAccounts(settle=False), ASK_TIMEOUT)
        states: dict[str, AccountState] = {}
        for reply in replies:
            for each, state in reply.accounts.items() if isinstance(reply, AccountStates) else ():
                before = states.get(each)
                more = 0 if before is None else before.connections
                states[each] = replace(state, connections=state.connections + more)
        return states

    def _refuse_weak(self, body: AccountUpdate, before: str | None, after: ProxyAccount) -> None:
        why = weakness_of_account(body.password, after.username, before, after.password_hash)
        if why is not None and not self._proxies.rules.weak_passwords:
            raise InvalidProxy("password", why)

    def _change(
        self, proxy_id: str, alter: Callable[[ProxyRecord], list[ProxyAccount]], if_match: int | None
    ) -> StoredProxy:
        def altered(record: ProxyRecord) -> ProxyRecord:
            accounts = alter(record)
            auth = apply_auth(record, None, accounts, record.protocol)
            check_accounts(accounts, record.protocol, auth.username)
            return record.model_copy(update={"accounts": accounts, "auth": auth, "updated_at": time.time()})

        try:
            return self._proxies.change(proxy_id, altered, if_match)
        except InvalidProxy as error:
            raise Invalid(_ENTRY.sub("", error.field), error.error) from error


def find(record: ProxyRecord, username: str) -> ProxyAccount:
    """The account of this name. Raises `NotFound`."""
    account = next((each for each in record.accounts if each.username == username), None)
    if account is None:
        raise NotFound("The account")
    return account


def _current(account: ProxyAccount, state: AccountState | None) -> AccountState:
    """`state`, if it is of the current period; else one without usage."""
    since = period_at(account.quota.period, time.time())[0]
    if state is not None and (state.usage.period, state.usage.since) == (account.quota.period, since):
        return state
    connections = 0 if state is None else state.connections
    return AccountState(AccountUsage(account.quota.period, since, 0, 0), connections)
