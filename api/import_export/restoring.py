"""Restoring an earlier state of the configuration, or undoing one revision: planned from revisions, carried out as an
import is.

Objects are known by their ids. What was created since is deleted, what was deleted comes back with the id that it had,
what was changed gets its fields back; or only the objects that the request names. An undo does the same with what that
one revision did, and keeps what was changed after it (`undoing`). Then, as in an import, all of it is
checked together, and all of it or nothing is changed.

Secrets come back as they were, hashed or sealed, with these exceptions, each of which the response names:

- **API keys** are left as they are: a revoked key stays revoked, and one that was made since stays valid.
- **Passwords** of users, accounts and proxies that are there stay the present ones, unless the request says otherwise:
  an earlier one may have been changed because it was known.
- **Credentials of accounts** are no configuration; those of a deleted account are not made again.
- **Sign-ins** that have ended stay so (`imports.ended_sign_ins`), with an earlier password, too; of a user who comes
  back also those at a node that was cut off when the user was deleted.
- A sealed secret that the key of this installation does not open any more is missing: it has to be entered again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from api.audit.audit_context import origin
from api.audit.masking import difference
from api.container import Services
from api.engine.kind import Kind
from api.engine.objects import load
from api.engine.records import Stored
from api.errors import Invalid, NotFound
from api.history.document_changes import LOST, Body, DocumentChange, is_renewed, kind_of
from api.history.recorder import Purpose
from api.import_export.account_entries import known_by, names_of
from api.import_export.checks import refuse_invalid
from api.import_export.diff import KNOWN_BY, differences
from api.import_export.imports import Outcome, carry_out
from api.import_export.plan import ImportPlan, Problems, SettingsStep, Step
from api.import_export.present_state import read_state
from api.import_export.undoing import PASSWORDS, Undo
from api.objects import live_settings
from api.objects.kinds import KINDS
from api.security import api_keys
from api.store import Document, StoreWriteError
from config.files.secret_box import sealing_as
from config.model import nodes
from config.model.fields import InvalidResource
from config.settings import runtime

_Pair = tuple[Stored[Any] | None, Any]
"""An object as it is stored, and as it is to be; None where there is none."""

MISSING = "the key of this installation does not open it any more: enter it again"
PRESENT_PASSWORD = "the present password stays, since an earlier one may be known to others"  # noqa: S105 - a sentence
KEY_MADE = "the key stays valid until it is revoked"
KEY_REVOKED = "the key was revoked, and stays so"
KEY_CHANGED = "API keys stay as they are"
OF_NODES = "nodes, and settings of one node, stay as they are"


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """The request of the user `caller_id` to restore the state after a revision, or with `undo` to take that one back.

    Of all objects, or of those with the ids `objects`.
    """

    revision: int
    caller_id: str
    undo: bool = False
    dry_run: bool = False
    if_match: int | None = None
    objects: tuple[str, ...] = ()
    with_passwords: bool = False


@dataclass(frozen=True, slots=True)
class RestoreFailure:
    """Something that is not as it was then, and why."""

    kind: str
    id: str
    name: str
    field: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Restored:
    """What was changed, or would be, and what is not restored."""

    outcome: Outcome
    left: list[RestoreFailure]


def restore(services: Services, request: RestoreRequest) -> Restored:
    """Restore a state, undo a revision, or try it. Raises as an import, and `NotFound`."""
    if services.revisions.get(request.revision) is None:
        raise NotFound("The revision")
    left: list[RestoreFailure] = []

    def make() -> ImportPlan:
        objects = RestoredObjects(services, time.time(), request)
        for change in _changes(services, request):
            objects.add(change)
        left[:] = objects.left
        return plan_of(services, objects, request.caller_id)

    purpose = Purpose(undone=request.revision) if request.undo else Purpose(restored=request.revision)
    origin().purpose = purpose
    outcome = carry_out(services, make, request.if_match, request.dry_run)
    if outcome.revision is not None:
        services.taken_back(purpose, outcome.revision)
    return Restored(outcome, left)


def _changes(services: Services, request: RestoreRequest) -> Iterator[DocumentChange]:
    """What is to be taken back, an object at a time. Raises `Invalid` for an object of which there is nothing."""
    reader, number = services.revisions, request.revision
    first, last = (number - 1, number) if request.undo else (number, reader.newest)
    keys = reader.keys(first, last)
    changed = {identifier for _, identifier in keys}
    for each in request.objects:
        if each not in changed:
            raise Invalid(
                "object_id", f"{each!r} was not changed {'by' if request.undo else 'after'} revision {number}"
            )
    for key in keys:
        if not request.objects or key[1] in request.objects:
            yield reader.between(first, last, key)


# --- objects as they are and as they were --------------------------------------------------------------------------


class RestoredObjects:
    """The objects of which changes are taken back: as they are stored, and as they are to be."""

    def __init__(self, services: Services, now: float, request: RestoreRequest) -> None:
        self._store = services.store
        self._seal = services.seal
        self._now = now
        self._with_passwords = request.with_passwords
        self.problems = Problems()
        self._undo: Undo | None = None
        if request.undo:
            self._undo = Undo(services.revisions, request.revision, request.with_passwords, self.problems)
        self.left: list[RestoreFailure] = []
        self.pairs: dict[str, list[_Pair]] = {name: [] for name in KINDS}
        self.settings: runtime.Stored | None = None

    def add(self, change: DocumentChange) -> None:
        """The object as it was before this change. Raises `StoreError`."""
        present = self._store.get(change.collection, change.id)
        body = None if present is None else present.body
        if change.collection in (api_keys.COLLECTION, nodes.COLLECTION) or _is_of_one_node(change):
            self._leave(change, body)
            return
        target = change.before if self._undo is None else self._undo.target(change, body)
        if change.collection == live_settings.COLLECTION:
            self.settings = live_settings.stored_of(target or {})
        elif present is not None or target is not None:
            try:
                with sealing_as(StoreWriteError):
                    self._add_pair(change, present, target)
            except ValidationError as error:
                text = f"is of another release, and this one can't read it: {error.error_count()} fields are wrong"
                self.problems.add(_path(change.collection, change.id), text)

    def _add_pair(self, change: DocumentChange, present: Document | None, target: Body | None) -> None:
        kind = KINDS[change.collection]
        stored = None if present is None else load(kind, present)
        if present is not None and target is not None:
            named = (kind.name, change.id, target.get(kind.transfer.identity, ""))
            target = self._with_present_passwords(present.body, target, named)
        after = None if target is None else kind.model.model_validate(target)
        if stored is not None and after is not None:
            after = kind.transfer.restored(stored.record, after, self._now)
            if self._undo is not None:
                self._refuse_misfits(after, kind)
        elif after is not None:
            after = kind.transfer.brought_back(after, self._now)
        if after is not None:
            after = self._openable(after, kind)
        self.pairs[change.collection].append((stored, after))

    def _refuse_misfits(self, after: Any, kind: Kind[Any]) -> None:
        """A change of nothing is checked as any other change is."""
        try:
            kind.transfer.refit(after, self._now, self._seal)
        except InvalidResource as error:
            self.problems.add(f"{_path(kind.collection, after.id)}.{error.field}", error.error)

    def _openable(self, record: Any, kind: Kind[Any]) -> Any:
        """Without the secrets that can't be opened any more."""
        fields = list(_lost_hashes(record.model_dump()))
        if kind.transfer.openable is not None:
            record, sealed = kind.transfer.openable(record, self._seal)
            fields += sealed
        name = getattr(record, kind.transfer.identity)
        self.left += [RestoreFailure(kind.name, record.id, name, each, MISSING) for each in fields]
        return record

    def _with_present_passwords(self, now: Body, then: Body, named: tuple[str, str, str], path: str = "") -> Body:
        """`then` with the passwords of now, where these stay: its own, those of its parts and of accounts in it."""
        found = dict(then)
        for name, part in then.items():
            if name in KNOWN_BY and isinstance(part, list):
                known = {each.get(KNOWN_BY[name]): each for each in now.get(name) or ()}
                found[name] = [
                    self._with_present_passwords(known.get(key, {}), each, named, f"{path}{name}[{key}].")
                    for key, each in ((each.get(KNOWN_BY[name]), each) for each in part)
                ]
            elif isinstance(part, Mapping) and isinstance(now.get(name), Mapping):
                found[name] = self._with_present_passwords(now[name], part, named, f"{path}{name}.")
        present, previous = now.get("password_hash"), then.get("password_hash")
        is_compared = not path or (present and previous)
        if is_compared and (is_renewed(then, now) or self._keeps(present, previous, (*named, f"{path}password"))):
            found |= {name: now[name] for name in PASSWORDS if name in now}
        return found

    def _keeps(self, present: str | None, then: str | None, named: tuple[str, str, str, str]) -> bool:
        """Whether the present hash stays; `named` is what is not restored then, without the reason."""
        if present == then or (self._with_passwords and then != LOST):
            return False
        self.left.append(RestoreFailure(*named, MISSING if then == LOST else PRESENT_PASSWORD))
        return True

    def _leave(self, change: DocumentChange, present: Mapping[str, Any] | None) -> None:
        then = change.before
        if then is None and present is None:
            return
        reason = KEY_MADE if then is None else KEY_REVOKED if present is None else KEY_CHANGED
        if change.collection != api_keys.COLLECTION:
            reason = OF_NODES
        if then is not None and present is not None and difference(then, present) == ({}, {}):
            return
        name = (then or present or {}).get("name", "")
        self.left.append(RestoreFailure(kind_of(change.collection), change.id, name, None, reason))


def _is_of_one_node(change: DocumentChange) -> bool:
    return change.collection == live_settings.COLLECTION and change.id != live_settings.DOCUMENT


def _lost_hashes(value: Any, path: str = "") -> Iterator[str]:
    """The fields of hashes that can't be opened, by their names in the API."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if item == LOST and name.endswith("_hash"):
                yield f"{path}{name.removesuffix('_hash')}"
            else:
                yield from _lost_hashes(item, f"{path}{name}.")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _lost_hashes(item, f"{path.removesuffix('.')}[{index}].")


# --- the plan ------------------------------------------------------------------------------------------------------


def plan_of(services: Services, objects: RestoredObjects, caller_id: str) -> ImportPlan:
    """Raises `InvalidMany` with all errors, `StoreError`."""
    problems = objects.problems
    problems.refuse()
    state = read_state(services.store)
    of = {name: _steps(objects, kind) for name, kind in KINDS.items() if name != "accounts"}
    of["accounts"] = _steps(objects, known_by(names_of(state, of)))
    plan = ImportPlan(state, of, None if objects.settings is None else _settings_step(state.settings, objects.settings))
    refuse_invalid(services, plan, caller_id, problems)
    return plan


def _steps(objects: RestoredObjects, kind: Kind[Any]) -> list[Step[Any]]:
    """By name, deletions first: what comes back may have the name of what was made since."""
    steps: list[Step[Any]] = []
    for stored, after in objects.pairs[kind.collection]:
        record = after or (stored.record if stored is not None else None)
        assert record is not None
        steps.append(Step(kind, _path(kind.collection, record.id), stored, after))
    return sorted(steps, key=lambda step: (step.after is not None, step.name))


def _path(collection: str, identifier: str) -> str:
    return f"{collection}.{identifier}"


def _settings_step(now: runtime.Stored, then: runtime.Stored) -> SettingsStep:
    """Overrides only: a null stands for the value of the configuration."""
    changed: runtime.Stored = {}
    for group in {**now, **then}:
        before, after = now.get(group, {}), then.get(group, {})
        differing = {key: after.get(key) for key in {**before, **after} if before.get(key) != after.get(key)}
        if differing:
            changed[group] = differing
    return SettingsStep(changed, then, differences(now, then))
