"""Accounts of one proxy alone: changes of the proxy's record, and their usage; and as accounts that name this proxy,
for lists of all accounts and for their holders.

Their order is computed when a proxy has changed, and shared by all requests until then.
"""

from __future__ import annotations

import heapq
import re
import sqlite3
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from actors.bus.messages.accounts import AccountActivity, AccountState, AccountStates, QueryAccounts
from actors.bus.messages.common import METRICS
from api.bus_bridge import Bridge, ask_workers
from api.engine.objects import Objects
from api.engine.records import Stored
from api.errors import Invalid, NotFound, PeerUnavailable
from api.objects.accounts.account_activity import ASK_TIMEOUT, AccountActivities, unused
from api.objects.accounts.account_kind import FleetAccounts, StoredInline, status_of
from api.objects.proxies.proxy_cache import StoredProxy
from api.objects.proxies.proxy_service import ProxyService
from api.store.accounts import BY_FIGURE, AccountSelection, Figures, Position
from config.model.accounts import AccountInput, AccountUpdate, ProxyAccount, change_account, check_accounts, new_account
from config.model.fields import InvalidProxy
from config.model.fleet_accounts import AccountProxies, FleetAccount
from config.model.proxies import ProxyRecord, apply_auth
from config.weak_passwords import weakness_of_account


class InlineAccount(NamedTuple):
    """An account and its proxy."""

    account: ProxyAccount
    proxy: StoredProxy

    def as_fleet(self) -> FleetAccount:
        """As an account of the fleet for this proxy."""
        account, proxy = self.account, self.proxy.record
        return FleetAccount(
            **account.model_dump(),
            proxies=AccountProxies(ids=[proxy.id]),
            socks4_by_name=proxy.protocol == "socks4",
            updated_at=proxy.updated_at,
        )


@dataclass(slots=True)
class _Index:
    """All of them, in the orders of pages."""

    proxies: Sequence[StoredProxy]
    by_id: dict[str, InlineAccount] = field(default_factory=dict)
    by_name: dict[str, list[InlineAccount]] = field(default_factory=dict)
    orders: dict[str, list[Position]] = field(default_factory=dict)


class InlineAccounts:
    """Reads alone. Thread-safe."""

    def __init__(self, proxies: Callable[[], Sequence[StoredProxy]], figures: Figures) -> None:
        """`proxies` returns the same sequence until one has changed."""
        self._proxies = proxies
        self._figures = figures
        self._made = _Index(())

    def get(self, account_id: str) -> InlineAccount | None:
        """The one with this id."""
        return self._index().by_id.get(account_id)

    def named(self, username: str) -> list[FleetAccount]:
        """Those with this user name, each of another proxy."""
        return [each.as_fleet() for each in self._index().by_name.get(username, ())]

    def page(
        self, selection: AccountSelection, after: Position | None, limit: int
    ) -> list[tuple[InlineAccount, Position]]:
        """At most `limit` behind a position. Raises `Invalid`, `PeerUnavailable`."""
        if selection.plan is not None or selection.tag is not None:
            return []
        index = self._index()
        found: list[tuple[InlineAccount, Position]] = []
        for place in self._behind(index, selection, after):
            one = index.by_id[place[1]]
            if _matches(one, selection):
                found.append((one, place))
            if len(found) == limit:
                break
        return found

    def _behind(self, index: _Index, selection: AccountSelection, after: Position | None) -> Iterator[Position]:
        """The positions behind this one."""
        order = self._by_figure(index, selection) if selection.sort in BY_FIGURE else index.orders[selection.sort]
        try:
            if selection.descending:
                end = len(order) if after is None else bisect_left(order, after)
                return (order[each] for each in range(end - 1, -1, -1))
            begin = 0 if after is None else bisect_right(order, after)
            return (order[each] for each in range(begin, len(order)))
        except TypeError as error:  # a text where there are numbers
            raise Invalid("cursor", "is of a list in another order") from error

    def _by_figure(self, index: _Index, selection: AccountSelection) -> list[Position]:
        """Only of those that match, since their figures have to be read."""
        wanted = [each for each, one in index.by_id.items() if _matches(one, selection)]
        try:
            given = selection.figures
            known: Mapping[str, Any] = given if given is not None else self._figures(selection.sort, wanted)
        except sqlite3.Error as error:
            raise PeerUnavailable(METRICS, f"the usage of accounts cannot be read: {error}") from error
        return sorted((known.get(each, 0), each) for each in wanted)

    def _index(self) -> _Index:
        proxies = self._proxies()
        made = self._made
        if made.proxies is not proxies:
            self._made = made = _indexed(proxies)
        return made


def _indexed(proxies: Sequence[StoredProxy]) -> _Index:
    made = _Index(proxies)
    for proxy in proxies:
        for account in proxy.record.accounts:
            one = made.by_id[account.id] = InlineAccount(account, proxy)
            made.by_name.setdefault(account.username, []).append(one)
    made.orders = {
        "username": sorted((one.account.username, each) for each, one in made.by_id.items()),
        "created_at": sorted((one.account.created_at, each) for each, one in made.by_id.items()),
    }
    return made


def _matches(one: InlineAccount, selection: AccountSelection) -> bool:
    account = one.account
    return (
        (selection.proxy is None or selection.proxy[0] == one.proxy.record.id)
        and (selection.q is None or selection.q.lower() in account.username.lower())
        and (selection.status is None or selection.status == status_of(account, time.time()))
    )


Kinds = Literal["all", "fleet", "inline"]
Place = tuple[Stored[FleetAccount], Position]


class EveryAccount:
    """Reads alone. Thread-safe."""

    def __init__(self, accounts: Objects[FleetAccount], fleet: FleetAccounts, inline: InlineAccounts) -> None:
        self._accounts = accounts
        self._fleet = fleet
        self._inline = inline

    def get(self, account_id: str) -> Stored[FleetAccount]:
        """One account. Raises `NotFound`."""
        found = self._inline.get(account_id)
        return self._accounts.get(account_id) if found is None else _stored(found)

    def refuse_inline(self, account_id: str) -> None:
        """Raise `Invalid` for an account that is changed with its proxy."""
        found = self._inline.get(account_id)
        if found is not None:
            proxy = found.proxy.record
            path = f"/proxies/{proxy.id}/accounts/{found.account.username}"
            raise Invalid(None, f"the account is one of the proxy {proxy.name!r} alone: change it at {path}")

    def page(
        self, selection: AccountSelection, after: Position | None, limit: int, kinds: Kinds = "all"
    ) -> tuple[list[Place], Position | None]:
        """As `FleetAccounts.page`, of these kinds in one order."""
        fleet: list[Place] = []
        following: Position | None = None
        if kinds != "inline":
            fleet, following = self._fleet.page(selection, after, limit)
        inline = [] if kinds == "fleet" else self._inline.page(selection, after, limit + 1)
        if not inline:
            return fleet, following
        places: list[Place] = [(_stored(one), place) for one, place in inline]
        merged = list(heapq.merge(fleet, places, key=lambda each: each[1], reverse=selection.descending))
        more = following is not None or len(merged) > limit
        return merged[:limit], merged[limit - 1][1] if more else None


def _stored(one: InlineAccount) -> StoredInline:
    return StoredInline(one.as_fleet(), one.proxy.revision)


READ_ONLY_FIELDS = frozenset({"id", "usage", "created_at"})

_ENTRY = re.compile(r"accounts\[[0-9]+\]\.")


class InlineAccountService:
    """Reads and changes. Thread-safe. Changes raise as those of `ProxyService`."""

    def __init__(self, proxies: ProxyService, bridge: Bridge, activities: AccountActivities) -> None:
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
        replies = ask_workers(self._bridge, proxy.record, QueryAccounts(), ASK_TIMEOUT)
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
