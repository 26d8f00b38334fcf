"""The plan of a batch of proxies: a step for each proxy that it names, checked together with all others."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from api.container import Services
from api.engine.records import Stored
from api.errors import Invalid, InvalidMany
from api.import_export.checks import refuse_invalid
from api.import_export.plan import PASSWORDS_MAX, ImportPlan, Problems, Step
from api.import_export.present_state import State, read_state
from api.import_export.proxy_batches.batch_bodies import (
    BATCH_MAX,
    FILTERS_MAX,
    ProxyBatch,
    ProxySelection,
    ProxySet,
)
from api.objects.kinds import KINDS
from api.objects.proxies.proxy_kind import PROXIES
from config.model.fields import InvalidProxy, InvalidResource
from config.model.object_fields import retagged
from config.model.proxies import ProxyCreate, ProxyRecord, ProxyUpdate

_OTHERWISE = frozenset({"id", "where", "set", "status", "add_tags", "remove_tags"})
"""Fields of a change that are none of a proxy's, or that no single update takes."""
_PLACE = re.compile(r"((?:create|update|delete)\[[0-9]+\])(\.prx_[0-9a-f]+)?(?:\.(.*))?", re.ASCII)


class _BatchEntry(NamedTuple):
    """A proxy in a batch: where errors say that it is, as it is stored, its name, and its change; None: it goes."""

    path: str
    stored: Stored[ProxyRecord] | None
    name: str
    body: ProxyCreate | ProxySet | None


class RefusedEntry(NamedTuple):
    """What would be refused. `field` is that of the proxy, or of the request where that is at fault."""

    id: str | None
    name: str | None
    field: str
    error: str


class BatchPlanner:
    """Makes the plan of a batch. `find` gives the ids of proxies that filters select.

    Fields in errors are those of the batch: `update[3].port`; of a proxy that `where` names, `update[0].prx_….port`.
    """

    def __init__(
        self,
        services: Services,
        batch: ProxyBatch,
        find: Callable[[ProxySelection], Iterable[str]],
        caller_id: str,
    ) -> None:
        self._services = services
        self._batch = batch
        self._find = find
        self._caller_id = caller_id
        self._entries: dict[str, _BatchEntry] = {}
        self.plan: ImportPlan | None = None
        """The last one that was made, before it was checked."""

    def make(self) -> ImportPlan:
        """The plan at this moment. Raises `InvalidMany` with all errors, `PeerUnavailable`, `StoreError`."""
        state, problems = read_state(self._services.store), Problems()
        self._entries = {each.path: each for each in self._found(state, problems)}
        self._refuse_many_passwords()
        self.plan = plan = _plan(state, [*self._steps(problems)])
        refuse_invalid(self._services, plan, self._caller_id, problems)
        for step in plan.pending()[:1]:
            self._services.proxies.require_supervisor(step.id)
        return plan

    def refused(self, error: InvalidMany) -> tuple[ImportPlan, list[RefusedEntry]]:
        """The last plan without what `error` refuses of it, and that. Raises `error` if it is about the request."""
        if self.plan is None or any(field is None for field, _ in error.problems):
            raise error
        found = [(self._split(field or ""), text) for field, text in error.problems]
        gone = {path for (path, _), _ in found}
        steps = [step for step in self.plan.of[PROXIES.collection] if step.path not in gone]
        return _plan(self.plan.state, steps), [self._refused(path, field, text) for (path, field), text in found]

    def _split(self, field: str) -> tuple[str, str]:
        """The path of an entry, and the field in it; the path is empty where it is that of no entry."""
        found = _PLACE.fullmatch(field)
        for path in () if found is None else (found[1] + (found[2] or ""), found[1]):
            if path in self._entries:
                return path, field[len(path) :].removeprefix(".")
        return "", field

    def _refused(self, path: str, field: str, error: str) -> RefusedEntry:
        entry = self._entries.get(path)
        if entry is None:
            return RefusedEntry(None, None, field, error)
        return RefusedEntry(None if entry.stored is None else entry.stored.record.id, entry.name, field, error)

    # --- entries ---

    def _found(self, state: State, problems: Problems) -> Iterator[_BatchEntry]:
        stored = {each.record.id: each for each in state.records[PROXIES.collection]}
        known: set[str] = set()
        for index, new in enumerate(self._batch.create):
            yield _BatchEntry(f"create[{index}]", None, new.name, new)
        for number, (path, place, proxy_id, change) in enumerate(self._named(), len(self._batch.create) + 1):
            if number > BATCH_MAX:  # at once: each filter may select all of them
                raise Invalid(None, f"more than {BATCH_MAX:,} proxies would change in one request")
            before = stored.get(proxy_id)
            if before is None or proxy_id in known:
                problems.add(place, "there is no such proxy" if before is None else "is there twice")
                continue
            known.add(proxy_id)
            yield _BatchEntry(path, before, before.record.name, change)

    def _named(self) -> Iterator[tuple[str, str, str, ProxySet | None]]:
        """Of each proxy that is named the path, the field that names it, its id, and its change; None: it goes."""
        if sum(each.where is not None for each in self._batch.update) > FILTERS_MAX:
            raise Invalid("update", f"at most {FILTERS_MAX} changes can have where: each looks at all proxies")
        for index, change in enumerate(self._batch.update):
            path = f"update[{index}]"
            if change.where is None or change.set is None:
                yield path, f"{path}.id", change.id or "", change
                continue
            for number, proxy_id in enumerate(self._selected(change.where, path)):
                place = f"{path}.{proxy_id}"
                yield place, f"{path}.where.ids[{number}]" if change.where.ids else place, proxy_id, change.set
        for index, proxy_id in enumerate(self._batch.delete):
            yield f"delete[{index}]", f"delete[{index}]", proxy_id, None

    def _selected(self, where: ProxySelection, path: str) -> Iterable[str]:
        if where.ids is not None:
            return list(where.ids)
        try:
            return self._find(where)
        except Invalid as error:
            raise Invalid(f"{path}.where.{error.field}", error.error) from error

    def _refuse_many_passwords(self) -> None:
        if sum(_passwords(each.body) for each in self._entries.values()) > PASSWORDS_MAX:
            raise Invalid(None, f"at most {PASSWORDS_MAX} passwords can be set in one request, of all its proxies")

    # --- records ---

    def _steps(self, problems: Problems) -> Iterator[Step[Any]]:
        for entry in self._entries.values():
            try:
                yield Step(PROXIES, entry.path, entry.stored, self._record(entry))
            except InvalidResource as error:
                problems.add(f"{entry.path}.{error.field}", error.error)

    def _record(self, entry: _BatchEntry) -> ProxyRecord | None:
        if isinstance(entry.body, ProxySet):
            assert entry.stored is not None
            return self._changed(entry.stored.record, entry.body)
        return None if entry.body is None else self._services.proxies.new(entry.body, makes=False)

    def _changed(self, record: ProxyRecord, change: ProxySet) -> ProxyRecord:
        if change.model_fields_set - _OTHERWISE:
            record = self._services.proxies.applied(record, change, makes=False)
        update: dict[str, Any] = {}
        if change.add_tags or change.remove_tags:
            if "tags" in change.model_fields_set:
                raise InvalidProxy("tags", "must be left out beside add_tags and remove_tags")
            update["tags"] = retagged(record.tags, change.add_tags or (), change.remove_tags or ())
        if change.status is not None:
            update["status"] = change.status
        return record.model_copy(update={**update, "updated_at": time.time()}) if update else record


def _plan(state: State, steps: list[Step[Any]]) -> ImportPlan:
    none: Mapping[str, list[Step[Any]]] = {name: [] for name in KINDS}
    return ImportPlan(state, {**none, PROXIES.collection: steps}, None)


def _passwords(body: ProxyUpdate | None) -> int:
    """Those in the clear, which are hashed."""
    if body is None:
        return 0
    auth = body.auth is not None and body.auth.password is not None
    return auth + sum(each.password is not None for each in body.accounts or ())
