"""Lists, pools and policies: objects that any number of proxies name.

They name each other by their names. So an object in use is neither deleted nor renamed, and one that names another is
accepted only while that is there. All changes are made under the lock of the proxies: the supervisor gets each with
the order in which the store has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from actors.bus.codec import pack
from actors.bus.messages.specs import PLANS, FleetObject, ListRef
from api.engine.kind import Kind
from api.engine.objects import Hooks, Proposal, Proposals, load
from api.engine.record_cache import RecordCache
from api.engine.records import Stored
from api.errors import Invalid, NotFound
from api.objects.kinds import NAMED
from api.objects.named.list_kind import LISTS, list_ref
from api.objects.named.named_kind import FileOf, NamedKind
from api.objects.named.policy_kind import POLICIES
from api.objects.named.pool_sources import PoolSources
from api.store import Store, StoreDamaged
from config.files.secret_box import SecretBox, SecretBoxError
from config.model.object_names import Named
from config.model.upstreams import ProxyUpstream
from config.net.entries import GEO

USERS_NAMED = 10
"""Users of an object that a refusal names."""


class SharedObjects:
    """Reads of all these kinds. Thread-safe. `named_policies` gives the names of policies that accounts and plans have.

    `records` has those that are stored, by collection.
    """

    def __init__(
        self,
        store: Store,
        seal: SecretBox,
        file_of: FileOf,
        sources: PoolSources,
        named_policies: Callable[[], Iterable[str]],
    ) -> None:
        self._seal = seal
        self._file_of = file_of
        self._sources = sources
        self._named_policies = named_policies
        self.records: Mapping[str, RecordCache[Stored[Any]]] = {
            name: RecordCache(store, name, partial(load, kind)) for name, kind in NAMED.items()
        }

    def all(self, kind: Kind[Any]) -> Sequence[Stored[Any]]:
        """All of a kind, oldest first."""
        return self.records[kind.collection].all()

    def get(self, kind: Kind[Any], key: str) -> Stored[Any]:
        """The one with this id or name. Raises `NotFound`."""
        records = self.records[kind.collection]
        found = records.get(key) or records.get(records.named(key) or "")
        if found is None:
            raise NotFound(f"The {kind.name}")
        return found

    def complete(self, stored: Stored[Any]) -> Stored[Any]:
        """As it is used: a pool that has a source with what was fetched from it."""
        return Stored(*self._sources.complete(stored.record, stored.revision))

    def list_ref(self, name: str) -> ListRef:
        """What forwarding actors get of the list. Raises `NotFound`."""
        found = self.get(LISTS, name)
        return list_ref(found.record, found.revision, self._file_of(found.record))

    def message(self, kind: NamedKind[Any], stored: Stored[Any]) -> FleetObject:
        """An object for the supervisor. Raises `SecretBoxError`."""
        used = self.complete(stored)
        names = tuple(dict.fromkeys(each.key for each in kind.refers(used.record)))
        packed = pack(kind.spec(used.record, used.revision, self._seal, self._file_of))
        return FleetObject(f"{kind.name}:{used.record.name}", used.record.id, used.revision, names, packed)

    def messages(self, policies: Iterable[str] = ()) -> tuple[FleetObject, ...]:
        """All objects, for the supervisor, which accounts and plans may give these policies.

        Raises `StoreDamaged` when a secret in one can't be opened.
        """
        try:
            objects = [self.message(kind, each) for kind in NAMED.values() for each in self.all(kind)]
        except SecretBoxError as error:
            raise StoreDamaged(str(error)) from error
        named = self.policies_message(policies)
        return (*objects, named) if named.names else tuple(objects)

    def policies_message(self, policies: Iterable[str]) -> FleetObject:
        """The policies that accounts and plans name, and these. It has no revision: the last one that is sent holds."""
        names = sorted({*self._named_policies(), *policies})
        return FleetObject(PLANS, PLANS, 0, tuple(f"{POLICIES.name}:{each}" for each in names), b"")

    def users(self, kind: Kind[Any], name: str) -> Iterator[str]:
        """What names the object among them, as `policy builds`."""
        for other in NAMED.values():
            for each in self.all(other):
                if any(
                    (found.collection, found.name) == (kind.collection, name) for found in other.refers(each.record)
                ):
                    yield f"{other.name} {each.record.name}"

    def refuse_unknown(self, named: Iterable[Named]) -> None:
        """Raise `Invalid` for the first name of no object, or of a list of another kind."""
        for each in named:
            records = self.records[each.collection]
            found = records.get(records.named(each.name) or "")
            if found is None:
                raise Invalid(each.field, f"there is no {NAMED[each.collection].name} {each.name!r}")
            if misfit := each.misfit(kind_of(found.record)):
                raise Invalid(each.field, misfit)

    def upstreams_of_pool(self, name: str) -> Sequence[ProxyUpstream]:
        """Those that callers have written into the pool of this name, which may lead to own proxies; those of a source
        never do (`UpstreamsSpec.fetched`)."""
        pools = self.records["pools"]
        found = pools.get(pools.named(name) or "")
        return () if found is None else found.record.upstreams


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
        warnings: Callable[[Stored[Any]], Sequence[Any]] = lambda _stored: (),
    ) -> Hooks[Any]:
        """Those of a kind. `check` refuses a record that may not be stored."""

        def refuse(proposals: Proposals[Any]) -> None:
            for each in proposals:
                if each.after is not None:
                    self.objects.refuse_unknown(kind.refers(each.after))
                    check(each.after)

        return Hooks(
            lock=lambda _proposals: self.lock(),
            check=refuse,
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


def kind_of(record: Any) -> str:
    """The kind of a list, empty of others."""
    return getattr(record, "kind", "")


def in_use(kind: Kind[Any], name: str, users: Sequence[str], hint: str) -> str:
    """That an object is in use: the number of its users, and the first of them."""
    more = f" and {len(users) - USERS_NAMED} more" if len(users) > USERS_NAMED else ""
    return f"the {kind.name} {name!r} is in use by {len(users)} ({', '.join(users[:USERS_NAMED])}{more}): {hint}"
