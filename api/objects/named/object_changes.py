"""What a change of a list, pool or policy has to pass, and what views of them have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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
from api.objects.named.object_users import ObjectUsers
from api.objects.named.pool_states import PoolStates
from api.objects.named.shared_objects import SharedObjects, kind_of
from api.security.caller import Caller
from config.model.proxy_parts import FieldWarning
from config.model.webhooks import masked_url
from config.net.entries import GEO

USERS_NAMED = 10
"""Users of an object that a refusal names."""
USERS_LISTED = 100
"""Users of an object that its view has."""


@dataclass(frozen=True, slots=True)
class ObjectChanges:
    """What is asked around a change of one of them. Thread-safe.

    `users` gives those of an object; `users_lock` holds up changes of those that are not made under `lock`, which is
    that of proxies.
    """

    objects: SharedObjects
    lock: Callable[[], AbstractContextManager[None]]
    users: ObjectUsers
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
        users = [each.text for each in self.users(kind.collection, name)]
        if users:
            raise Invalid(field, in_use(kind, name, users, hint))


def in_use(kind: Kind[Any], name: str, users: Sequence[str], hint: str) -> str:
    """That an object is in use: the number of its users, and the first of them."""
    more = f" and {len(users) - USERS_NAMED} more" if len(users) > USERS_NAMED else ""
    return f"the {kind.name} {name!r} is in use by {len(users)} ({', '.join(users[:USERS_NAMED])}{more}): {hint}"


class ObjectViews:
    """The `views` of `api.engine.objects.Hooks`. Thread-safe."""

    def __init__(self, contents: ListContents, states: PoolStates, users: ObjectUsers) -> None:
        self._contents = contents
        self._states = states
        self._users = users

    def lists(self, caller: Caller, stored: Sequence[Stored[Any]], whole: bool) -> list[dict[str, Any]]:
        """With the status of the content of each."""
        views = self._used("lists", caller, stored, whole)
        return [{**view, "status": self._contents.status(each.record)} for view, each in views]

    def pools(self, caller: Caller, stored: Sequence[Stored[Any]], whole: bool) -> list[dict[str, Any]]:
        """With the status of each, and of its upstreams if they are shown."""
        views = self._used("pools", caller, stored, whole)
        return [{**view, "status": self._pool(each.record, whole)} for view, each in views]

    def policies(self, caller: Caller, stored: Sequence[Stored[Any]], whole: bool) -> list[dict[str, Any]]:
        """With what names each."""
        return [view for view, _ in self._used("policies", caller, stored, whole)]

    def _used(
        self, collection: str, caller: Caller, stored: Sequence[Stored[Any]], whole: bool
    ) -> Iterator[tuple[dict[str, Any], Stored[Any]]]:
        """The view of each with `used_by`: by name if it is whole, else their number alone."""
        by_name = whole or caller.narrowed is not None
        counts = Counter[str]() if by_name else self._users.counts(collection)
        for each in stored:
            name = each.record.name
            users = [user for user in self._users(collection, name) if user.is_known_to(caller)] if by_name else []
            used: dict[str, Any] = {"total": len(users) if by_name else counts[name]}
            if whole:
                used["first"] = [user._asdict() for user in users[:USERS_LISTED]]
            yield {**_view(caller, each, whole), "used_by": used}, each

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
