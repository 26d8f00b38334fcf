"""One user name is one account, for any one proxy, and so is one entry for certificates of clients.

Accounts of the fleet, a proxy's own accounts and its `auth.username` are compared as written. A change is refused after
which a proxy would know two of them by one name; the error names the other. Two accounts of one name may stand beside
each other as long as no proxy is theirs both. Entries for certificates are those of accounts of the fleet alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from api.errors import Invalid
from api.services.proxy_cache import StoredProxy
from api.store.accounts import AccountStore
from config.model.fields import InvalidProxy
from config.model.fleet_accounts import AccountProxies, FleetAccount
from config.model.proxies import ProxyRecord

AUTH = "auth.username"


class AccountNames:
    """The check. `lock` is held from the check of a change until the store has it, by accounts and by proxies."""

    def __init__(self, accounts: AccountStore, proxies: Callable[[], Sequence[StoredProxy]]) -> None:
        self._accounts = accounts
        self._proxies = proxies
        self.lock = threading.RLock()

    def refuse_accounts(
        self,
        changed: Mapping[str, FleetAccount | None],
        paths: Mapping[str, str],
        proxies: Sequence[StoredProxy] | None = None,
    ) -> None:
        """Check accounts that are to be stored, by id, or None to be deleted. Raises `Invalid`.

        `paths` precede the names of fields in errors, by id. `proxies` are all of them, if they are to be others than
        those that are stored.
        """
        named: dict[str, list[FleetAccount]] = {}
        for account in changed.values():
            if account is not None:
                named.setdefault(account.username, []).append(account)
        if proxies is None:
            proxies = self._proxies()
        self._refuse_certificates(changed, paths, proxies)
        for username, together in named.items():
            stored = (FleetAccount.model_validate(each.body) for each in self._accounts.accounts_named(username))
            others = [each for each in stored if each.id not in changed]
            for index, account in enumerate(together):
                field = f"{paths.get(account.id, '')}username"
                _refuse_twin(account, [*others, *together[:index]], proxies, field)
                _refuse_inline(account, proxies, field)

    def _refuse_certificates(
        self, changed: Mapping[str, FleetAccount | None], paths: Mapping[str, str], proxies: Sequence[StoredProxy]
    ) -> None:
        known: dict[str, list[FleetAccount]] = {}
        for account in changed.values():
            for index, entry in enumerate(() if account is None else account.certificates):
                assert account is not None
                if entry not in known:
                    stored = self._accounts.accounts_certified(entry)
                    known[entry] = [FleetAccount.model_validate(each.body) for each in stored if each.id not in changed]
                field = f"{paths.get(account.id, '')}certificates[{index}]"
                _refuse_twin(account, known[entry], proxies, field, "an entry")
                known[entry].append(account)

    def refuse_proxy(
        self, before: ProxyRecord | None, after: ProxyRecord, without: Collection[str] = frozenset()
    ) -> None:
        """Check a proxy that is to be stored, against the stored accounts `without` these. Raises `InvalidProxy`."""
        if self._accounts.revision == 0:
            return
        fresh = before is None or before.tags != after.tags
        known = {} if before is None or fresh else inline_names(before)
        for username, field in inline_names(after).items():
            if username not in known:
                self._refuse_inline_name(after, username, field, without)
        found = self._accounts.clash(after.id, after.tags, without) if fresh else None
        if found is not None:
            username, first, second = found
            text = f"the accounts {first} and {second} are both called {username!r}, and both could use this proxy"
            raise InvalidProxy("tags", text)
        found = self._accounts.certificate_clash(after.id, after.tags, without) if fresh else None
        if found is not None:
            entry, first, second = found
            text = f"the accounts {first} and {second} both have {entry!r}, and both could use this proxy"
            raise InvalidProxy("tags", text)

    def _refuse_inline_name(self, proxy: ProxyRecord, username: str, field: str, without: Collection[str]) -> None:
        for document in self._accounts.accounts_named(username):
            account = FleetAccount.model_validate(document.body)
            if account.id not in without and may_use(account.proxies, proxy):
                raise InvalidProxy(field, f"is the name of the account {account.id}, which may use this proxy")


def may_use(named: AccountProxies, proxy: ProxyRecord) -> bool:
    """Whether a proxy is among those that an account names."""
    return named.all or proxy.id in named.ids or any(tag in proxy.tags for tag in named.tags)


def inline_names(proxy: ProxyRecord) -> dict[str, str]:
    """The names that a proxy knows itself, and the fields that have them."""
    names = {account.username: f"accounts[{index}].username" for index, account in enumerate(proxy.accounts)}
    return names if proxy.auth.username is None else {**names, proxy.auth.username: AUTH}


def _inline_names(proxy: StoredProxy) -> dict[str, str]:
    return inline_names(proxy.record)


def _refuse_inline(account: FleetAccount, proxies: Iterable[StoredProxy], field: str) -> None:
    for proxy in proxies:
        known = proxy.once(_inline_names).get(account.username)
        if known is not None and may_use(account.proxies, proxy.record):
            what = AUTH if known == AUTH else "the name of an account"
            raise Invalid(field, f"is {what} of the proxy {proxy.record.name!r} ({proxy.record.id})")


def _refuse_twin(
    account: FleetAccount,
    others: Sequence[FleetAccount],
    proxies: Sequence[StoredProxy],
    field: str,
    what: str = "the name",
) -> None:
    for other in others:
        if _meet(account.proxies, other.proxies):
            raise Invalid(field, f"is {what} of the account {other.id}, which may use the same proxies")
        for proxy in proxies:
            if may_use(account.proxies, proxy.record) and may_use(other.proxies, proxy.record):
                text = f"is {what} of the account {other.id}, which may use the proxy {proxy.record.name!r}, too"
                raise Invalid(field, text)


def _meet(one: AccountProxies, other: AccountProxies) -> bool:
    """Whether two accounts name the same, whatever proxies there are."""
    return (one.all and other.all) or bool({*one.ids} & {*other.ids}) or bool({*one.tags} & {*other.tags})
