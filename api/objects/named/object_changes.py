"""What a change of a list, pool or policy has to pass, what names them beside each other, and what views of them
have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from api.engine.kind import Kind
from api.engine.objects import Hooks, Proposal, Proposals
from api.engine.records import Stored, view_of
from api.errors import Invalid
from api.objects.named.list_contents import ListContents
from api.objects.named.named_kind import NamedKind
from api.objects.named.pool_states import PoolStates
from api.objects.named.shared_objects import SharedObjects, kind_of
from api.objects.proxies.proxy_cache import StoredProxy
from api.security.caller import Caller
from api.store import Document
from api.store.accounts import ACCOUNTS, CREDENTIALS, PLANS, AccountStore
from config.model.account_credentials import AccountCredential
from config.model.fleet_accounts import FleetAccount
from config.model.object_fields import PREFIXES, Named, named_in, names_of_proxy, names_of_rules
from config.model.plans import Plan
from config.model.proxy_parts import FieldWarning
from config.model.webhooks import masked_url
from config.net.entries import GEO

USERS_NAMED = 10
"""Users of an object that a refusal names."""


@dataclass(frozen=True, slots=True)
class ObjectChanges:
    """What is asked around a change of one of them. Thread-safe.

    `users` gives further users of the object with a collection and a name, as `proxy office`; `users_lock` holds up
    changes of those that are not made under `lock`, which is that of proxies.
    """

    objects: SharedObjects
    lock: Callable[[], AbstractContextManager[None]]
    users: Callable[[str, str], Iterable[str]]
    users_lock: Callable[[], AbstractContextManager[None]]

    def hooks(
        self,
        kind: NamedKind[Any],
        views: Callable[..., list[dict[str, Any]]],
        check: Callable[[Any], None] = lambda _record: None,
        prepare: Callable[[Any], None] = lambda _record: None,
        warnings: Callable[[Stored[Any]], Sequence[Any]] = lambda _stored: (),
    ) -> Hooks[Any]:
        """Those of a kind. `check` refuses a record that may not be stored; `prepare` is done before one is stored."""

        def refuse(proposals: Proposals[Any]) -> None:
            for each in proposals:
                if each.after is not None:
                    self.objects.refuse_unknown(kind.refers(each.after))
                    check(each.after)

        def prepare_all(proposals: Proposals[Any]) -> None:
            for each in proposals:
                if each.after is not None:
                    prepare(each.after)

        return Hooks(
            lock=lambda _proposals: self.lock(),
            check=refuse,
            prepare=prepare_all,
            guard=partial(self._unused, kind),
            complete=self.objects.complete,
            views=views,
            warnings=warnings,
        )

    @contextmanager
    def _unused(self, kind: NamedKind[Any], proposal: Proposal[Any]) -> Iterator[None]:
        """Keeps an object that is to be deleted or renamed from getting users; refuses one that has some."""
        if proposal.before is None:
            yield
            return
        before, after = proposal.before.record, proposal.after
        with self.users_lock():
            if after is None:
                self._refuse_in_use(kind, before.name, None, "change them first")
            elif after.name != before.name:
                self._refuse_in_use(kind, before.name, "name", "give it no other name")
            if after is not None and (kind_of(after) == GEO) != (kind_of(before) == GEO):
                self._refuse_in_use(kind, before.name, "kind", "they name it as what it is")
            yield

    def _refuse_in_use(self, kind: NamedKind[Any], name: str, field: str | None, hint: str) -> None:
        users = [*self.objects.users(kind, name), *self.users(kind.collection, name)]
        if users:
            raise Invalid(field, in_use(kind, name, users, hint))


def in_use(kind: Kind[Any], name: str, users: Sequence[str], hint: str) -> str:
    """That an object is in use: the number of its users, and the first of them."""
    more = f" and {len(users) - USERS_NAMED} more" if len(users) > USERS_NAMED else ""
    return f"the {kind.name} {name!r} is in use by {len(users)} ({', '.join(users[:USERS_NAMED])}{more}): {hint}"


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

    def of_list(self, stored: Stored[Any]) -> Sequence[FieldWarning]:
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
