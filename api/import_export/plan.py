"""A plan: what an import would change, found by comparing the present state with the desired one.

Planning changes nothing and sends no message; each kind of resource has its module for it, which share this one. That
of settings is at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal

from api.engine.kind import Kind
from api.engine.records import R, Stored
from api.engine.transfer import PlannedRecord, Planning
from api.errors import InvalidMany
from api.import_export.diff import Difference, differences
from api.import_export.document import ConfigDocument, Secrets
from api.import_export.present_state import State
from api.objects.kinds import KINDS, NAMED, OBJECT_KINDS
from api.objects.proxies.proxy_service import ProxyRules
from api.store import StoreWriteError, Write
from config.files.secret_box import sealing_as
from config.model.fields import InvalidResource
from config.settings import runtime
from config.settings.runtime import (
    Grouped,
    ReadOnlySetting,
    SettingsUpdate,
    changes,
    merge,
    visible_settings,
)

IN_ORDER = (*NAMED, *(name for name in KINDS if name not in NAMED))
MOST_PROBLEMS = 100
PASSWORDS_MAX = 100
"""Passwords in the clear in one import, each of which takes a good part of a tenth of a second to hash."""

Action = Literal["create", "update", "delete", "unchanged"]


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """The request of the user `caller_id`: a document with its secrets opened, and the options."""

    document: ConfigDocument
    secrets: Secrets
    caller_id: str
    prune: bool
    dry_run: bool
    if_match: int | None


@dataclass(frozen=True, slots=True)
class Step(Generic[R]):
    """One resource: as it is stored, and as it is to be. `path` is where the document has it.

    `secret` was generated for a new resource, and only the response to this import has it.
    """

    kind: Kind[R]
    path: str
    stored: Stored[R] | None
    after: R | None
    secret: str | None = None
    changes: list[Difference] = field(init=False)

    def __post_init__(self) -> None:
        entries: list[Any] = [None, None]
        if self.before is not self.after:
            entries = [None if each is None else self.kind.transfer.entry(each) for each in (self.before, self.after)]
        object.__setattr__(self, "changes", differences(*entries))

    @property
    def before(self) -> R | None:
        """As it is stored; None for a new one."""
        return None if self.stored is None else self.stored.record

    @property
    def action(self) -> Action:
        """What the import does with it."""
        if self.before is None:
            return "create"
        if self.after is None:
            return "delete"
        return "update" if self.changes else "unchanged"

    @property
    def record(self) -> R:
        """As it is to be; as it was, if it is to go."""
        record = self.after or self.before
        assert record is not None
        return record

    @property
    def id(self) -> str:
        """Its identifier in this installation."""
        return str(getattr(self.record, "id"))  # noqa: B009 - which all records have

    @property
    def name(self) -> str:
        """The name by which the document knows it."""
        return str(getattr(self.record, self.kind.transfer.identity))

    def write(self) -> Write:
        """For the store."""
        body = None if self.after is None else self.after.model_dump(mode="json")
        return Write(self.kind.collection, self.id, body, self.stored.revision if self.stored else 0)


def pending(steps: Sequence[Step[Any]]) -> list[Step[Any]]:
    """The steps that change something."""
    return [step for step in steps if step.action != "unchanged"]


def records_after(state: State, steps: Mapping[str, list[Step[Any]]], collection: str) -> dict[str, Any]:
    """The records of a kind by id after these steps."""
    changed = {step.id: step.after for step in steps.get(collection, ())}
    return {key: each for key, each in {**state.by_id(collection), **changed}.items() if each is not None}


class Problems:
    """All errors of a document."""

    def __init__(self) -> None:
        self._found: list[tuple[str, str]] = []

    def add(self, path: str, error: str) -> None:
        """`path` is a field of the document, as `proxies[3].port`."""
        self._found.append((path, error))

    def refuse(self) -> None:
        """Raise `InvalidMany` if there are any errors."""
        if self._found:
            raise InvalidMany(self._found[:MOST_PROBLEMS])


@dataclass(frozen=True, slots=True)
class SettingsStep:
    """The settings that the document names, flat; `changed` are those that differ, `stored` what would be stored."""

    changed: runtime.Stored
    stored: runtime.Stored
    changes: list[Difference]


@dataclass(frozen=True, slots=True)
class Omissions:
    """What an import says nothing about.

    `fields`: those that the entries leave out. `objects`: by section the number of those that have no entry.
    """

    fields: bool
    objects: dict[str, int]
    sections: list[str]


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """All steps, by collection. `settings` is None when the document has none."""

    state: State
    of: Mapping[str, list[Step[Any]]]
    settings: SettingsStep | None

    def steps(self) -> list[Step[Any]]:
        """The steps of resources that have documents of their own; named ones come before those that name them."""
        return [step for name in IN_ORDER for step in self.of[name]]

    @property
    def objects(self) -> list[Step[Any]]:
        """Those of lists, pools and policies, in the order in which they name each other."""
        return [step for name in NAMED for step in self.of[name]]

    def pending(self) -> list[Step[Any]]:
        """The steps that change something."""
        return pending(self.steps())

    @property
    def changed_settings(self) -> runtime.Stored:
        """The settings that differ from the effective ones."""
        return {} if self.settings is None else self.settings.changed

    @property
    def changed_keys(self) -> set[str]:
        """Their keys, as `proxy.policy`."""
        return {f"{group}.{key}" for group, values in self.changed_settings.items() for key in values}

    def not_compared(self, document: ConfigDocument, accounts: int) -> Omissions:
        """What an import of this document leaves alone without a comparison; there were so many `accounts` before."""
        stored = {**{name: len(found) for name, found in self.state.records.items()}, "accounts": accounts}
        compared = Counter(step.kind.collection for step in self.steps() if step.before is not None)
        given = {name for name in (*stored, "settings") if getattr(document, name) is not None}
        return Omissions(
            not document.minimal,
            {name: left for name in stored if name in given and (left := stored[name] - compared[name])},
            [name for name in (*stored, "settings") if name not in given],
        )


# --- one kind ------------------------------------------------------------------------------------------------------


def plan_kind(
    kind: Kind[Any], found: Sequence[Stored[Any]], request: ImportRequest, planning: Planning, problems: Problems
) -> list[Step[Any]]:
    """A step for each entry, in their order; then, to prune, one for each object of `found` that has none."""
    entries, key = request.document.section(kind.collection), kind.transfer.key
    if entries is None:
        return []
    matched = _matched(kind, found, entries, problems)
    steps = [_planned(kind, index, stored, entries[index], planning, problems) for index, stored in matched.items()]
    known = {stored.record.id for stored in matched.values() if stored is not None}
    left = [each for each in found if each.record.id not in known]
    if kind.transfer.match is None:
        left.sort(key=lambda each: key(each.record))
    if request.prune:
        steps += [Step(kind, kind.collection, each, None) for each in left]
    if kind.most is not None and len(entries) + (0 if request.prune else len(left)) > kind.most:
        problems.add(kind.collection, f"there may be {kind.most} at most")
    return [step for step in steps if step is not None]


def _matched(
    kind: Kind[Any], found: Sequence[Stored[Any]], entries: Sequence[Any], problems: Problems
) -> dict[int, Stored[Any] | None]:
    """The stored object of each entry, by index, without entries of a name that another one has."""
    transfer = kind.transfer
    if transfer.match is not None:
        matched = transfer.match(found, entries, problems.add)
        return {index: matched.get(index) for index in range(len(entries))}
    known = {transfer.key(each.record): each for each in found}
    named, first = dict[int, Stored[Any] | None](), dict[Any, int]()
    for index, entry in enumerate(entries):
        key = transfer.key(entry)
        if key in first:
            path = f"{kind.collection}[{index}].{transfer.identity}"
            problems.add(path, f"is the name of {kind.collection}[{first[key]}], too")
            continue
        first[key] = index
        named[index] = known.get(key)
    return named


def _planned(
    kind: Kind[Any], index: int, stored: Stored[Any] | None, entry: Any, planning: Planning, problems: Problems
) -> Step[Any] | None:
    path = f"{kind.collection}[{index}]"
    planning = replace(planning, refuse=lambda field, error: problems.add(f"{path}.{field}", error))
    try:
        with sealing_as(StoreWriteError):
            wanted = _wanted(kind, stored, entry, planning)
    except InvalidResource as error:
        planning.refuse(error.field, error.error)
        return None
    return None if wanted is None else Step(kind, path, stored, wanted.record, wanted.secret)


def _wanted(kind: Kind[Any], stored: Stored[Any] | None, entry: Any, planning: Planning) -> PlannedRecord | None:
    if kind.transfer.wanted is not None:
        return kind.transfer.wanted(stored, entry, planning)
    made = OBJECT_KINDS[kind.collection]
    if stored is None:
        return PlannedRecord(made.new(entry, planning.now, planning.seal))
    return PlannedRecord(made.change(stored.record, entry, planning.now, planning.seal))


# --- settings -----------------------------------------------------------------------------------------------------


def plan_settings(state: State, request: ImportRequest, effective: Grouped, problems: Problems) -> SettingsStep | None:
    """What is to change of the effective settings; None when the document has none.

    An export names those that were set through the API, since the others are the configuration file's. They are never
    pruned; a minimal document with settings forgets those that it leaves out, as `proxyfleet settings unset` does.
    """
    wanted = request.document.settings
    if wanted is None:
        return None
    now = visible_settings(effective)
    try:
        changed = changes(now, wanted)
    except ReadOnlySetting as error:
        problems.add(f"settings.{error.field}", error.error)
        return None
    forgotten = _left_out(state.settings, wanted) if request.document.minimal else {}
    kept = {
        group: {key: value for key, value in values.items() if key not in forgotten.get(group, {})}
        for group, values in state.settings.items()
    }
    stored = {group: values for group, values in merge(kept, changed).items() if values}
    changed = merge(changed, forgotten)
    before = {group: {key: now[group][key] for key in values} for group, values in changed.items()}
    return SettingsStep(changed, stored, differences(before, changed))


def _left_out(stored: runtime.Stored, wanted: SettingsUpdate) -> runtime.Stored:
    """The overrides that the document does not have, as null: the configuration's values are to apply again."""
    given = wanted.model_dump(exclude_none=True)
    left = {group: dict.fromkeys(values.keys() - given.get(group, {}).keys()) for group, values in stored.items()}
    return {group: values for group, values in left.items() if values}


def rules_with(changed: runtime.Stored, now: ProxyRules) -> ProxyRules:
    """The settings that new proxies have, with changes of them. `proxy.workers` is the configuration file's alone."""
    proxy = changed.get("proxy", {})
    known = {name: proxy[name] for name in ("default_timeout", "sleep_after") if proxy.get(name) is not None}
    return replace(now, **known)
