"""The accounts of a proxy one by one: changes of the proxy's record, and the usage of accounts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace

from actors.bus.messages.accounts import AccountActivity, AccountState, AccountStates, QueryAccounts
from api.bus_bridge import Bridge
from api.errors import Invalid, NotFound
from api.services.account_activity import ASK_TIMEOUT, AccountActivities, unused
from api.services.proxies import Proxies
from api.services.proxy_cache import StoredProxy
from api.services.worker_requests import ask_workers
from config.model.accounts import AccountInput, AccountUpdate, ProxyAccount, change_account, check_accounts, new_account
from config.model.fields import InvalidProxy
from config.model.proxies import ProxyRecord, apply_auth
from config.weak_passwords import weakness_of_account

READ_ONLY_FIELDS = frozenset({"id", "usage", "created_at"})

_ENTRY = re.compile(r"accounts\[[0-9]+\]\.")


class Accounts:
    """Reads and changes. Thread-safe. Changes raise as those of `Proxies`."""

    def __init__(self, proxies: Proxies, bridge: Bridge, activities: AccountActivities) -> None:
        self._proxies = proxies
        self._activities = activities
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

    def usage(self, proxy: StoredProxy) -> dict[str, AccountActivity]:
        """By account id, the usage and connections: of the proxy's process, else of the collector, else zeros."""
        states = self._states(proxy)
        unknown = {
            account.id: account.quota.period
            for account in proxy.record.accounts
            if proxy.record.workers != 1 or account.id not in states or not states[account.id].known
        }
        for each, activity in (self._activities.counted(unknown) or {}).items():
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


def _current(account: ProxyAccount, state: AccountState | None) -> AccountActivity:
    """`state`, if it is of the current period; else one without usage."""
    fresh = unused(account.quota.period)
    if state is None:
        return fresh
    is_current = (state.usage.period, state.usage.since) == (fresh.usage.period, fresh.usage.since)
    return AccountActivity(state.usage if is_current else fresh.usage, state.connections)
