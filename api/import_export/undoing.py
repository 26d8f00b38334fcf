"""Taking one revision back, as `git revert` does: what it changed gets its previous value, and all later changes stay.

Documents are compared field by field. In maps each key is a field, in lists whose elements have an identity (rules by
their names, tags by themselves) each element is, and the order of those that are in both. A field that has got a third
value since stands in the way; the error names it, and the revisions that changed it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import Any, Literal

from api.audit.masking import BOOKKEEPING, STORED_AS
from api.history.document_changes import Body, DocumentChange, is_renewed, kind_of
from api.history.reader import Reader, Revision
from api.import_export.diff import KNOWN_BY
from api.import_export.plan import MOST_PROBLEMS, Problems
from api.objects import live_settings

NAMED = 3
"""Later revisions that an error names."""
SEARCHED = 100
"""Later changes of an object in which those of a field are looked for."""

OF_NOW = BOOKKEEPING | {"ended", "previous_secrets"}
"""Fields that are never put back: times, the counter of a policy (`Policy.ended`), and secrets on their way out."""
PASSWORDS = frozenset({"password_hash", "renewal_hash"})
_UNITS = (PASSWORDS, frozenset({"protocol", "host", "port", "username", "password"}), frozenset({"url", "headers"}))
"""Fields that are one: a secret must not get to a place that it was not given for."""


class _Absent(Enum):
    ABSENT = "absent"


ABSENT: Literal[_Absent.ABSENT] = _Absent.ABSENT
Path = tuple[str, ...]
"""Names of fields, and elements of lists as `[no ads]`."""


class Reversal:
    """Values of a document without one change, and the `conflicts`: fields that have a third value."""

    def __init__(self, present_passwords: bool) -> None:
        """With `present_passwords` no password is a conflict: the caller keeps the present one."""
        self._kept: frozenset[str] = PASSWORDS if present_passwords else frozenset()
        self.conflicts: list[Path] = []

    def value(self, before: Any, after: Any, present: Any, path: Path = ()) -> Any:
        """`present` without what was changed from `before` to `after`; each may be `ABSENT`."""
        if before in (after, present):
            return present
        if present == after or self._kept.intersection(path[-1:]):
            return before
        if all(isinstance(each, Mapping) for each in (before, after, present)):
            return self._map(before, after, present, path)
        then, changed, now = (_elements(path[-1] if path else "", each) for each in (before, after, present))
        if then is not None and changed is not None and now is not None:
            return self._list(then, changed, now, path)
        if isinstance(before, list) and isinstance(after, list):
            self.conflicts.append(path)
        else:
            self.conflicts += changed_paths(before if after is ABSENT else after, present, path)
        return present

    def _map(self, before: Any, after: Any, present: Any, path: Path) -> dict[str, Any]:
        found, done = dict(present), set[str]()
        names = dict.fromkeys((*present, *after, *before))
        for unit in _UNITS:
            if unit <= names.keys():
                done |= unit
                found |= self._unit(unit, before, after, present, path)
        for name in names:
            if name not in done:
                then, changed, now = (each.get(name, ABSENT) for each in (before, after, present))
                found[name] = self.value(then, changed, now, (*path, name))
        return {name: each for name, each in found.items() if each is not ABSENT}

    def _unit(self, names: frozenset[str], before: Any, after: Any, present: Any, path: Path) -> dict[str, Any]:
        then, changed, now = ({name: each.get(name) for name in names} for each in (before, after, present))
        if then in (changed, now):
            return now
        if now == changed or names <= self._kept:
            return then
        self.conflicts += changed_paths(changed, now, path)
        return now

    def _list(self, before: dict[Any, Any], after: dict[Any, Any], present: dict[Any, Any], path: Path) -> list[Any]:
        """Of elements by their identities."""
        found = {}
        for key in dict.fromkeys((*present, *after, *before)):
            then, changed, now = (each.get(key, ABSENT) for each in (before, after, present))
            found[key] = self.value(then, changed, now, (*path, f"[{key}]"))
        common = before.keys() & after.keys() & present.keys()
        orders = [[key for key in each if key in common] for each in (before, after, present)]
        is_moved = orders[0] not in orders[1:]
        if is_moved and orders[1] != orders[2]:
            self.conflicts.append(path)
        keys = _in_order([*before], [*present]) if is_moved else _in_order([*present], [*before])
        return [found[key] for key in keys if found[key] is not ABSENT]


def _in_order(first: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """The keys in the order of `first`, and those of `others` alone each behind the one that precedes it there."""
    known = set(first)
    behind: dict[Any, list[Any]] = {}
    last: Any = ABSENT
    for key in others:
        if key in known:
            last = key
        else:
            behind.setdefault(last, []).append(key)
    return [*behind.get(ABSENT, ()), *(each for key in first for each in (key, *behind.get(key, ())))]


def _elements(name: str, value: Any) -> dict[Any, Any] | None:
    """The elements of a list by their identities; None if it is no list, or they have none."""
    if not isinstance(value, list):
        return None
    keys = [each.get(KNOWN_BY.get(name, "")) if isinstance(each, Mapping) else each for each in value]
    if any(isinstance(each, (list, Mapping)) or each is None for each in keys) or len(set(keys)) != len(keys):
        return None
    return dict(zip(keys, value, strict=True))


def _parts(name: str, value: Any) -> dict[str, Any] | None:
    """What has a path of its own within a value of the field `name`; None for a value that is one."""
    if isinstance(value, Mapping):
        return dict(value)
    elements = _elements(name, value)
    return None if elements is None else {f"[{key}]": each for key, each in elements.items()}


def changed_paths(before: Any, after: Any, path: Path = ()) -> list[Path]:
    """The fields that differ, as deep as they have names."""
    if before == after:
        return []
    name = path[-1] if path else ""
    one, other = _parts(name, before), _parts(name, after)
    if one is None or other is None:
        return [path]
    found = [
        each
        for key in dict.fromkeys((*one, *other))
        for each in changed_paths(one.get(key, ABSENT), other.get(key, ABSENT), (*path, key))
    ]
    return found or [path]  # of a list the order alone


def value_at(value: Any, path: Path) -> Any:
    """What a document has there, `ABSENT` for nothing."""
    name = ""
    for part in path:
        value = (_parts(name, value) or {}).get(part, ABSENT)
        name = part
    return value


class Undo:
    """What documents are to be without the changes of one revision; `problems` gets what stands in the way."""

    def __init__(self, reader: Reader, revision: int, with_passwords: bool, problems: Problems) -> None:
        self._reader = reader
        self._revision = revision
        self._present_passwords = not with_passwords
        self._problems = problems

    def target(self, change: DocumentChange, present: Body | None) -> Body | None:
        """The document as it is to be, None for none. Raises `StoreError`."""
        reversal = Reversal(self._present_passwords)
        before, after, now = (_compared(change.collection, each) for each in (change.before, change.after, present))
        if present is not None:
            before, after = (_renewed(each, present) for each in (before, after))
        found = reversal.value(before, after, now)
        if reversal.conflicts:
            self._add_problems(change, present, reversal.conflicts)
            return present
        if found is ABSENT:
            return None
        return {**{name: each for name, each in (present or change.before or {}).items() if name in OF_NOW}, **found}

    def _add_problems(self, change: DocumentChange, present: Body | None, conflicts: Sequence[Path]) -> None:
        """An error for each field, with the revisions that changed it."""
        causes: dict[Path, list[Revision]] = {path: [] for path in conflicts[:MOST_PROBLEMS]}
        later = self._reader.later((change.collection, change.id), self._revision)
        for revision, each in islice(later, SEARCHED):
            wanted = [path for path, found in causes.items() if len(found) <= NAMED]
            if not wanted:
                break
            did = _Later(each)
            for path in wanted:
                if did.has_changed(path):
                    causes[path].append(revision)
        for path, found in causes.items():
            is_gone = value_at(ABSENT if present is None else present, path) is ABSENT
            self._problems.add(_field(change, path), _error(change, path, found, is_gone))


class _Later:
    """What a later change of the document changed."""

    def __init__(self, change: DocumentChange) -> None:
        self._bodies = [ABSENT if each is None else each for each in (change.before, change.after)]
        self._changed = frozenset(changed_paths(self._bodies[0], self._bodies[1]))
        self._above = frozenset(path[:length] for path in self._changed for length in range(len(path)))

    def has_changed(self, path: Path) -> bool:
        """Whether it changed something there; of a list with identities only the order counts."""
        if not self._changed.isdisjoint(path[:length] for length in range(len(path) + 1)):
            return True
        if path not in self._above:
            return False
        name = path[-1] if path else ""
        before, after = (_elements(name, value_at(each, path)) for each in self._bodies)
        return before is None or after is None or [*before] != [*after]


def _compared(collection: str, body: Body | None) -> Any:
    """Without the fields that are never put back. No overrides of settings are none, not no document."""
    if body is None:
        return {"id": live_settings.DOCUMENT} if collection == live_settings.COLLECTION else ABSENT
    return {name: each for name, each in body.items() if name not in OF_NOW}


def _renewed(body: Any, present: Body) -> Any:
    """With the present hash in place of one of the same password."""
    if body is ABSENT or not is_renewed(body, present):
        return body
    return {**body, **{name: present[name] for name in PASSWORDS}}


def _error(change: DocumentChange, path: Path, causes: Sequence[Revision], is_gone: bool) -> str:
    """What was done with the field since, by whom, and what to undo first; newest first."""
    is_settings = change.collection == live_settings.COLLECTION
    where = "" if is_settings else f"{' in' if path else ':'} the {kind_of(change.collection)} {change.name!r}"
    by_hand = "delete it by hand" if change.before is None and not is_settings else "change it by hand"
    deed, causes = ("removed", causes[:1]) if is_gone else ("changed", causes)
    named = ", ".join(f"{each.number} ({_person(each)})" for each in causes[:NAMED])
    more = " and earlier ones" if len(causes) > NAMED else ""
    if len(causes) > 1:
        return f"was {deed} since{where} by the revisions {named}{more}; undo these first, in this order, or {by_hand}"
    return f"was {deed} since{where}{f' by revision {named}; undo that first, or' if causes else ';'} {by_hand}"


def _person(revision: Revision) -> str:
    actor = revision.author["actor"]
    return str(actor["username"] or actor["type"])


def _field(change: DocumentChange, path: Path) -> str:
    """As the errors of a restore name it: `policies.policy_1.rules[no ads].mode`."""
    parts = [STORED_AS.sub("", each) for each in path]
    start = change.collection if change.collection == live_settings.COLLECTION else f"{change.collection}.{change.id}"
    return start + "".join(each if each.startswith("[") else f".{each}" for each in parts)
