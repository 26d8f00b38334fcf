"""A plan: what an import would change, found by comparing the present state with the desired one.

Planning changes nothing and sends no message; each kind of resource has its module for it, which share this one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal

from api.errors import InvalidMany
from api.import_export.diff import Difference, differences
from api.import_export.document import ConfigDocument
from api.import_export.sealed_secrets import Secrets
from api.import_export.state import R, State, StoredRecord
from api.security.users import User
from api.services.proxies import ProxyRules
from api.store import Write
from config.files.secret_box import SecretBox
from config.model.fleet_accounts import FleetAccount
from config.settings.runtime import Grouped, Stored

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
class PlanContext:
    """What planning needs besides: the effective settings, the seal of this installation, the time."""

    seal: SecretBox
    settings: Grouped
    rules: ProxyRules
    now: float
    weak_passwords: bool = False
    """Whether accounts may have any password."""


@dataclass(frozen=True, slots=True)
class Step(Generic[R]):
    """One resource: as it is stored, and as it is to be. `path` is where the document has it.

    `secret` was generated for a new resource, and only the response to this import has it.
    """

    kind: str
    collection: str
    path: str
    stored: StoredRecord[R] | None
    after: R | None
    entry: Callable[[R], Mapping[str, Any]]
    secret: str | None = None
    changes: list[Difference] = field(init=False)

    def __post_init__(self) -> None:
        entries = [None if each is None else self.entry(each) for each in (self.before, self.after)]
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
        return self.record.id

    @property
    def name(self) -> str:
        """The name by which the document knows it."""
        record = self.record
        return record.username if isinstance(record, User | FleetAccount) else record.name

    def write(self) -> Write:
        """For the store."""
        body = None if self.after is None else self.after.model_dump(mode="json")
        return Write(self.collection, self.id, body, self.stored.revision if self.stored else 0)


def pending(steps: Sequence[Step[Any]]) -> list[Step[Any]]:
    """The steps that change something."""
    return [step for step in steps if step.action != "unchanged"]


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

    changed: Stored
    stored: Stored
    changes: list[Difference]


@dataclass(frozen=True, slots=True)
class NotCompared:
    """What an import says nothing about.

    `fields`: those that the entries leave out. `objects`: by section the number of those that have no entry.
    """

    fields: bool
    objects: dict[str, int]
    sections: list[str]


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps. `settings` is None when the document has none."""

    state: State
    proxies: list[Step[Any]]
    users: list[Step[Any]]
    webhooks: list[Step[Any]]
    settings: SettingsStep | None
    plans: list[Step[Any]]
    accounts: list[Step[Any]]
    objects: list[Step[Any]]
    """Lists, pools and policies, in the order in which they name each other."""

    def steps(self) -> list[Step[Any]]:
        """The steps of resources that have documents of their own."""
        return [*self.objects, *self.proxies, *self.users, *self.webhooks, *self.plans, *self.accounts]

    def pending(self) -> list[Step[Any]]:
        """The steps that change something."""
        return pending(self.steps())

    @property
    def changed_settings(self) -> Stored:
        """The settings that differ from the effective ones."""
        return {} if self.settings is None else self.settings.changed

    def not_compared(self, document: ConfigDocument, accounts: int) -> NotCompared:
        """What an import of this document leaves alone without a comparison; there were so many `accounts` before."""
        stored = {
            "proxies": len(self.state.proxies),
            "users": len(self.state.users),
            "webhooks": len(self.state.webhooks),
            "plans": len(self.state.plans),
            **{name: len(found) for name, found in self.state.objects.items()},
            "accounts": accounts,
        }
        compared = Counter(step.collection for step in self.steps() if step.before is not None)
        given = {name for name in (*stored, "settings") if getattr(document, name) is not None}
        return NotCompared(
            not document.minimal,
            {name: left for name in stored if name in given and (left := stored[name] - compared[name])},
            [name for name in (*stored, "settings") if name not in given],
        )
