"""What a change of a list, pool or policy has to pass, what names them beside each other, and what views of them
have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from api.engine.records import Stored, view_of
from api.objects.named.list_contents import ListContents
from api.objects.named.pool_states import PoolStates
from api.objects.proxies.proxy_cache import StoredProxy
from api.security.caller import Caller
from api.store import Document
from api.store.accounts import ACCOUNTS, CREDENTIALS, PLANS, AccountStore
from config.model.account_credentials import AccountCredential
from config.model.fleet_accounts import FleetAccount
from config.model.object_names import PREFIXES, Named, named_in, names_of_proxy, names_of_rules
from config.model.plans import Plan
from config.model.proxy_checks import Warned
from config.model.webhooks import masked_url


class ObjectUsers:
    """Finds those that name an object. Thread-safe."""

    def __init__(self, proxies: Callable[[], Sequence[StoredProxy]], accounts: AccountStore) -> None:
        self._proxies = proxies
        self._accounts = accounts

    def __call__(self, collection: str, name: str) -> Iterator[str]:
        """`proxy office`, `plan basic`, `account alice`, `credential crd_…` for each that names the object."""
        for stored in self._proxies():
            if _is_in(names_of_proxy(stored.record), collection, name):
                yield f"proxy {stored.record.name}"
        for plan in map(Plan.model_validate, (each.body for each in self._accounts.find(PLANS))):
            if _is_in(names_of_rules(plan), collection, name):
                yield f"plan {plan.name}"
        if collection == "policies":
            for _, user in self.with_policy(name):
                yield user
        if collection == "lists":
            for _, user in self.of_accounts(name):
                yield user

    def of_accounts(self, name: str) -> Iterator[tuple[str, str]]:
        """The accounts and credentials that name this list, each with the id of the account."""
        for each in self._quoting(ACCOUNTS, name):
            account = FleetAccount.model_validate(each.body)
            if _is_in(names_of_rules(account), "lists", name):
                yield account.id, f"account {account.username}"
        for each in self._quoting(CREDENTIALS, name):
            credential = AccountCredential.model_validate(each.body)
            if _is_in(named_in(credential.allow_destinations, "allow_destinations"), "lists", name):
                yield credential.account_id, f"credential {credential.id}"

    def with_policy(self, name: str) -> Iterator[tuple[str, str]]:
        """The accounts with this policy of their own, each with its id."""
        return ((each.id, f"account {each.body['username']}") for each in self._accounts.with_policy(name))

    def _quoting(self, collection: str, name: str) -> Iterable[Document]:
        """The documents that may name a list, each once."""
        texts = (prefix + name for prefix, named in PREFIXES.items() if named == "lists")
        return {each.id: each for text in texts for each in self._accounts.quoting(collection, text)}.values()


def _is_in(found: Iterable[Named], collection: str, name: str) -> bool:
    return any((each.collection, each.name) == (collection, name) for each in found)


class ObjectViews:
    """The `views` of `api.engine.objects.Hooks`. Thread-safe."""

    def __init__(self, contents: ListContents, states: PoolStates) -> None:
        self._contents = contents
        self._states = states

    def lists(self, caller: Caller, stored: Sequence[Stored[Any]], whole: bool) -> list[dict[str, Any]]:
        """With the status of the content of each."""
        return [{**_view(caller, each, whole), "status": self._contents.status(each.record)} for each in stored]

    def pools(self, caller: Caller, stored: Sequence[Stored[Any]], whole: bool) -> list[dict[str, Any]]:
        """With the status of each, and of its upstreams if they are shown."""
        return [{**_view(caller, each, whole), "status": self._pool(each.record, whole)} for each in stored]

    def policies(self, caller: Caller, stored: Sequence[Stored[Any]], whole: bool) -> list[dict[str, Any]]:
        """As they are."""
        return [_view(caller, each, whole) for each in stored]

    def of_list(self, stored: Stored[Any]) -> Sequence[Warned]:
        """Warnings about the content of a list."""
        return self._contents.warnings(stored.record)

    def _pool(self, pool: Any, whole: bool) -> dict[str, Any]:
        source = None if pool.source is None else self._contents.status(pool)
        upstreams = {"upstreams": self._states.upstreams(pool)} if whole else {}
        return {**self._states.status(pool), "source": source, **upstreams}


def _view(caller: Caller, stored: Stored[Any], whole: bool) -> dict[str, Any]:
    """As this caller may see it: the URL of a source may hold a key."""
    view = view_of(stored.record, whole)
    source = view.get("source")
    clear = caller.may("proxy.write") and caller.scope is None
    if not source or "url" not in source or clear:
        return view
    return {**view, "source": {**source, "url": masked_url(source["url"])}}
