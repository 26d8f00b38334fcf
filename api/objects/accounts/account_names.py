"""One user name is one account, for any one proxy, and so is one entry for certificates of clients.

Accounts of the fleet, a proxy's own accounts and its `auth.username` are compared as written. A change is refused after
which a proxy would know two of them by one name; the error names the other. Two accounts of one name may stand beside
each other as long as no proxy is theirs both. Entries for certificates are those of accounts of the fleet alone.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from api.errors import Invalid, InvalidMany
from api.objects.proxies.proxy_cache import StoredProxy
from api.store import Document
from api.store.accounts import AccountStore, Clash
from config.model.fields import InvalidProxy
from config.model.fleet_accounts import AccountProxies, FleetAccount
from config.model.proxies import ProxyRecord

AUTH = "auth.username"
_CLASHES: Mapping[Clash, str] = {"username": "are both called", "entry": "both have"}
ERRORS_MAX = 100
"""Errors that one response names."""


class AccountNames:
    """The check."""

    def __init__(
        self,
        accounts: AccountStore,
        proxies: Callable[[], Sequence[StoredProxy]],
        settled: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """`settled` is that of the engine: what follows from commits under the lock holds up no other change."""
        self._accounts = accounts
        self._proxies = proxies
        self._settled = settled
        self._lock = threading.RLock()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Held from the check of a change until the store has it, by accounts and by proxies."""
        with self._settled(), self._lock:
            yield

    def refuse_accounts(
        self,
        changed: Mapping[str, FleetAccount | None],
        paths: Mapping[str, str],
        proxies: Sequence[StoredProxy] | None = None,
    ) -> None:
        """Check accounts that are to be stored, by id, or None to be deleted. Raises `Invalid`, `InvalidMany`.

        `paths` precede the names of fields in errors, by id. `proxies` are all of them, if they are to be others than
        those that are stored.
        """
        after = [each for each in changed.values() if each is not None]
        errors = list(itertools.islice(self.clashes(after, changed, paths, proxies), ERRORS_MAX))
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise InvalidMany([(each.field, each.error) for each in errors])

    def clashes(
        self,
        accounts: Iterable[FleetAccount],
        changed: Container[str],
        paths: Mapping[str, str],
        proxies: Sequence[StoredProxy] | None = None,
    ) -> Iterator[Invalid]:
        """What is wrong with names and entries for certificates of these accounts, all of them that share one.

        Stored accounts whose ids are in `changed` don't count. The others as in `refuse_accounts`.
        """
        if proxies is None:
            proxies = self._proxies()
        named: dict[str, list[FleetAccount]] = {}
        certified: dict[str, list[FleetAccount]] = {}
        for account in accounts:
            path = paths.get(account.id, "")
            yield from self._certificate_clashes(account, certified, changed, path, proxies)
            if account.username not in named:
                named[account.username] = _others(self._accounts.accounts_named(account.username), changed)
            field = f"{path}username"
            error = _twin(account, named[account.username], proxies, field) or _inline_clash(account, proxies, field)
            named[account.username].append(account)
            if error is not None:
                yield error

    def of_proxies(self) -> set[str]:
        """The names that proxies know themselves."""
        return {name for proxy in self._proxies() for name in proxy.once(_inline_names)}

    def _certificate_clashes(
        self,
        account: FleetAccount,
        known: dict[str, list[FleetAccount]],
        changed: Container[str],
        path: str,
        proxies: Sequence[StoredProxy],
    ) -> Iterator[Invalid]:
        for index, entry in enumerate(account.certificates):
            if entry not in known:
                known[entry] = _others(self._accounts.accounts_certified(entry), changed)
            error = _twin(account, known[entry], proxies, f"{path}certificates[{index}]", "an entry")
            known[entry].append(account)
            if error is not None:
                yield error

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
        for what, text in _CLASHES.items() if fresh else ():
            found = self._accounts.clash(what, after.id, after.tags, without)
            if found is not None:
                value, first, second = found
                why = f"the accounts {first} and {second} {text} {value!r}, and both could use this proxy"
                raise InvalidProxy("tags", why)

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


def _others(stored: Iterable[Document], changed: Container[str]) -> list[FleetAccount]:
    return [FleetAccount.model_validate(each.body) for each in stored if each.id not in changed]


def _inline_clash(account: FleetAccount, proxies: Iterable[StoredProxy], field: str) -> Invalid | None:
    for proxy in proxies:
        known = proxy.once(_inline_names).get(account.username)
        if known is not None and may_use(account.proxies, proxy.record):
            what = AUTH if known == AUTH else "the name of an account"
            return Invalid(field, f"is {what} of the proxy {proxy.record.name!r} ({proxy.record.id})")
    return None


def _twin(
    account: FleetAccount,
    others: Sequence[FleetAccount],
    proxies: Sequence[StoredProxy],
    field: str,
    what: str = "the name",
) -> Invalid | None:
    for other in others:
        if _meet(account.proxies, other.proxies):
            return Invalid(field, f"is {what} of the account {other.id}, which may use the same proxies")
        for proxy in proxies:
            if may_use(account.proxies, proxy.record) and may_use(other.proxies, proxy.record):
                text = f"is {what} of the account {other.id}, which may use the proxy {proxy.record.name!r}, too"
                return Invalid(field, text)
    return None


def _meet(one: AccountProxies, other: AccountProxies) -> bool:
    """Whether two accounts name the same, whatever proxies there are."""
    return (one.all and other.all) or bool({*one.ids} & {*other.ids}) or bool({*one.tags} & {*other.tags})
