"""What names a list, a pool or a policy: the same references that keep it from being deleted or renamed.

Those of objects, settings, proxies and plans are found in one pass. Accounts and credentials may be very many: the
store finds those that name an object.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from api.objects.kinds import NAMED
from api.objects.named.shared_objects import SharedObjects
from api.objects.proxies.proxy_cache import StoredProxy
from api.security.caller import Caller
from api.store import Document
from api.store.accounts import ACCOUNTS, CREDENTIALS, PLANS, AccountStore
from config.model.account_credentials import AccountCredential
from config.model.fleet_accounts import FleetAccount
from config.model.object_fields import PREFIXES, Named, named_by, named_in, names_of_proxy, names_of_rules
from config.model.plans import Plan


class ObjectUser(NamedTuple):
    """Something that names an object. `kind` is what it is called; a setting has its key as `id`."""

    kind: str
    id: str
    name: str

    @property
    def text(self) -> str:
        """`proxy office`, `plan basic`, `account alice`, `credential crd_…`, `setting proxy.policy`."""
        return f"{self.kind} {self.name}"

    def is_known_to(self, caller: Caller) -> bool:
        """Whether the caller may know of it: a key with a scope knows its proxies alone."""
        return caller.narrowed is None or (self.kind == "proxy" and self.id in (caller.scope or ()))


class ObjectUsers:
    """Finds those that name an object. Thread-safe. `settings` gives what they name, each with the name of a node."""

    def __init__(
        self,
        objects: SharedObjects,
        proxies: Callable[[], Sequence[StoredProxy]],
        accounts: AccountStore,
        settings: Callable[[], Iterable[tuple[str, Named]]],
    ) -> None:
        self._objects = objects
        self._proxies = proxies
        self._accounts = accounts
        self._settings = settings

    def __call__(self, collection: str, name: str) -> Iterator[ObjectUser]:
        """Each that names the object."""
        for user, found in self._all_but_accounts():
            if _is_in(found, collection, name):
                yield user
        if collection == "policies":
            for _, user in self.with_policy(name):
                yield user
        if collection == "lists":
            for _, user in self.of_accounts(name):
                yield user

    def counts(self, collection: str) -> Counter[str]:
        """How many name each object of the collection, by its name."""
        counts = Counter[str]()
        for _, found in self._all_but_accounts():
            counts.update({each.name for each in found if each.collection == collection})
        if collection == "policies":
            counts.update(self._accounts.users_by_policy())
        if collection == "lists":
            for table in (ACCOUNTS, CREDENTIALS):
                pairs = ((identifier, named_by(entry, "")) for identifier, entry in self._accounts.list_entries(table))
                counts.update(name for _, name in {(each, found.name) for each, found in pairs if found is not None})
        return counts

    def _all_but_accounts(self) -> Iterator[tuple[ObjectUser, Iterable[Named]]]:
        """With what each of them names."""
        for kind in NAMED.values():
            for stored in self._objects.all(kind):
                yield ObjectUser(kind.name, stored.record.id, stored.record.name), kind.refers(stored.record)
        for node, named in self._settings():
            yield ObjectUser("setting", named.field, f"{named.field} of {node}" if node else named.field), (named,)
        for proxy in self._proxies():
            yield ObjectUser("proxy", proxy.record.id, proxy.record.name), names_of_proxy(proxy.record)
        for plan in map(Plan.model_validate, (each.body for each in self._accounts.find(PLANS))):
            yield ObjectUser("plan", plan.id, plan.name), names_of_rules(plan)

    def of_accounts(self, name: str) -> Iterator[tuple[str, ObjectUser]]:
        """The accounts and credentials that name this list, each with the id of the account."""
        for each in self._quoting(ACCOUNTS, name):
            account = FleetAccount.model_validate(each.body)
            if _is_in(names_of_rules(account), "lists", name):
                yield account.id, ObjectUser("account", account.id, account.username)
        for each in self._quoting(CREDENTIALS, name):
            credential = AccountCredential.model_validate(each.body)
            if _is_in(named_in(credential.allow_destinations, "allow_destinations"), "lists", name):
                yield credential.account_id, ObjectUser("credential", credential.id, credential.id)

    def with_policy(self, name: str) -> Iterator[tuple[str, ObjectUser]]:
        """The accounts with this policy of their own, each with its id."""
        for each in self._accounts.with_policy(name):
            yield each.id, ObjectUser("account", each.id, each.body["username"])

    def _quoting(self, collection: str, name: str) -> Iterable[Document]:
        """The documents that may name a list, each once."""
        texts = (prefix + name for prefix, named in PREFIXES.items() if named == "lists")
        return {each.id: each for text in texts for each in self._accounts.quoting(collection, text)}.values()


def _is_in(found: Iterable[Named], collection: str, name: str) -> bool:
    return any((each.collection, each.name) == (collection, name) for each in found)
