"""Many accounts of the fleet in one change, all of them or none: a batch, or a hundred thousand lines.

Each line is validated and prepared by itself, into a file, without any lock. Then the accounts that share a name are
looked for there, and all of them are stored in one step. So the memory doesn't grow with their number, and others
change accounts meanwhile; they wait only while names are compared and the accounts are copied. Passwords of a batch are
hashed on all cores.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from api.cpu_affinity import allowed
from api.engine.commit import Engine
from api.engine.objects import Objects, Proposal
from api.errors import Invalid, InvalidMany, NotFound
from api.http.body import Line, Lines, validated
from api.objects.accounts.account_names import ERRORS_MAX, AccountNames
from api.objects.accounts.plan_kind import Announced, policies_given
from api.store.accounts import ACCOUNTS, PLANS, Staged, Staging
from config.model.fields import InvalidResource
from config.model.fleet_accounts import (
    READ_ONLY_FIELDS,
    AccountBatch,
    FleetAccount,
    FleetAccountChange,
    FleetAccountCreate,
)
from config.model.object_fields import Named


class ImportCount(NamedTuple):
    """Accounts that are new, those that are other than before, and those that are gone."""

    created: int
    updated: int
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The accounts after the change, in the order of the request; of lines their number alone."""

    count: ImportCount
    created: Sequence[FleetAccount] = ()
    updated: Sequence[FleetAccount] = ()
    deleted: Sequence[str] = ()


class AccountBatches:
    """Raises as `Objects`, and `InvalidMany`; fields are those of the batch, such as `create[3].username`."""

    def __init__(self, accounts: Objects[FleetAccount]) -> None:
        self._accounts = accounts

    def apply(self, batch: AccountBatch, dry_run: bool = False) -> BatchResult:
        """Make the changes, or check them only."""
        _refuse_twice(batch)
        changes = self._prepared(batch)
        if dry_run:
            self._accounts.check(changes)
        else:
            self._accounts.commit(changes)
        after = [each.after for each in changes if each.after is not None]
        new = len(batch.create)
        changed = sum(each.before is not None and each.after is not None and not each.is_none for each in changes)
        count = ImportCount(new, changed, len(batch.delete))
        return BatchResult(count, after[:new], after[new:], batch.delete)

    def _prepared(self, batch: AccountBatch) -> list[Proposal[FleetAccount]]:
        """All of the changes, those of passwords hashed in threads. Raises `InvalidMany`."""
        tasks = list(self._tasks(batch))
        if batch.passwords:
            with ThreadPoolExecutor(len(allowed), "hashing", _use_all_cores) as pool:
                results = list(pool.map(_attempt, tasks))
        else:
            results = [_attempt(each) for each in tasks]
        errors = [each for each in results if isinstance(each, Invalid)]
        if errors:
            raise InvalidMany([(each.field, each.error) for each in errors[:ERRORS_MAX]])
        return [each for each in results if isinstance(each, Proposal)]

    def _tasks(self, batch: AccountBatch) -> Iterator[_Task]:
        accounts = self._accounts
        for index, new in enumerate(batch.create):
            yield f"create[{index}]", partial(accounts.prepare_create, new, None)
        for index, one in enumerate(batch.update):
            yield f"update[{index}]", partial(accounts.prepare_update, one.id, one, None, None)
        for index, gone in enumerate(batch.delete):
            yield f"delete[{index}]", partial(accounts.prepare_delete, gone, None, None)


_Task = tuple[str, Callable[[str], Proposal[FleetAccount]]]
"""The place of an entry in the batch, and what prepares its change."""


def _attempt(task: _Task) -> Proposal[FleetAccount] | Invalid:
    """The prepared change, or what is wrong with it."""
    place, prepare = task
    try:
        return prepare(f"{place}.")
    except Invalid as error:
        return error
    except InvalidResource as error:
        return Invalid(f"{place}.{error.field}", error.error)
    except NotFound:
        return Invalid(place if place.startswith("delete") else f"{place}.id", "there is no such account")


def _refuse_twice(batch: AccountBatch) -> None:
    """An account has one change. Raises `Invalid`."""
    known: set[str] = set()
    places = (
        *((f"update[{index}].id", each.id) for index, each in enumerate(batch.update)),
        *((f"delete[{index}]", each) for index, each in enumerate(batch.delete)),
    )
    for place, account_id in places:
        if account_id in known:
            raise Invalid(place, "is there twice")
        known.add(account_id)


def _use_all_cores() -> None:
    """Of this thread alone: the API stays on one core (`api.cpu_affinity`), and bcrypt needs no lock of Python's."""
    os.sched_setaffinity(0, allowed)


_LINE = re.compile(r"lines\[([0-9]+)\]", re.ASCII)


class AccountImports:
    """Raises as `Objects`, and `InvalidMany`; fields are those of lines, such as `lines[3].username`."""

    def __init__(
        self,
        accounts: Objects[FleetAccount],
        engine: Engine,
        names: AccountNames,
        publish: Callable[[str, dict[str, Any]], None],
        announced: Announced,
        refuse_unknown: Callable[[Iterable[Named]], None],
    ) -> None:
        self._announced = announced
        self._refuse_unknown = refuse_unknown
        self._accounts = accounts
        self._engine = engine
        self._names = names
        self._publish = publish

    def apply(self, lines: Lines, dry_run: bool = False) -> BatchResult:
        """Add the accounts, and change those of lines with an `id`; or check them only."""
        with closing(self._engine.accounts.staging()) as staged:
            problems: dict[str, str] = {}
            policies: set[str] = set()
            count = self._fill(staged, lines, problems, policies)
            staged.finish()
            problems.update(itertools.islice(self._clashes(staged), max(0, ERRORS_MAX - len(problems))))
            _refuse(problems)
            if not dry_run and staged.count:
                self._commit(staged, policies)
                self._publish("account.imported", {"created": count.created, "updated": count.updated})
            return BatchResult(count)

    def _fill(self, staged: Staging, lines: Lines, problems: dict[str, str], policies: set[str]) -> ImportCount:
        """Stage the accounts of all lines, or as many as there are until too many are wrong; add their `policies`."""
        created = updated = 0
        known: set[str] = set()
        for line in lines:
            change = self._prepared(line, known, problems)
            if len(problems) >= ERRORS_MAX:
                break
            if change is None or change.is_none:
                continue
            policies |= policies_given([change])
            staged.add(line.number, change.write(ACCOUNTS))
            created, updated = created + (change.before is None), updated + (change.before is not None)
        return ImportCount(created, updated)

    def _prepared(self, line: Line, known: set[str], problems: dict[str, str]) -> Proposal[FleetAccount] | None:
        """The change of a line; None if there is a problem with it. `known` are the ids in the lines before."""
        path = f"lines[{line.number}]"
        try:
            return self._change(line.content, known, f"{path}.")
        except InvalidResource as error:
            problems[f"{path}.{error.field}"] = error.error
        except NotFound:
            problems[f"{path}.id"] = "there is no such account"
        except InvalidMany as error:
            for field, text in error.problems:
                problems[_within(path, field)] = text
        return None

    def _change(self, content: dict[str, Any] | Invalid, known: set[str], path: str) -> Proposal[FleetAccount]:
        if isinstance(content, Invalid):
            raise content
        if content.get("password") is not None:
            raise Invalid("password", "must be given as password_hash here")
        if "id" not in content:
            return self._accounts.prepare_create(validated(FleetAccountCreate, content, READ_ONLY_FIELDS), path=path)
        body = validated(FleetAccountChange, content, READ_ONLY_FIELDS)
        if body.id in known:
            raise Invalid("id", "is there twice")
        known.add(body.id)
        return self._accounts.prepare_update(body.id, body, path=path)

    def _clashes(self, staged: Staging) -> Iterator[tuple[str, str]]:
        """Fields and errors of all accounts that share a name or an entry for certificates."""
        for name in staged.meeting_names(self._names.of_proxies()):
            yield from self._clashes_of(staged.named(name), staged)
        for entry in staged.meeting_entries():
            yield from self._clashes_of(staged.certified(entry), staged)

    def _clashes_of(self, found: list[Staged], staged: Staging) -> Iterator[tuple[str, str]]:
        paths = {each.body["id"]: f"lines[{each.line}]." for each in found}
        accounts = (FleetAccount.model_validate(each.body) for each in found)
        for error in self._names.clashes(accounts, staged, paths):
            yield str(error.field), error.error

    def _commit(self, staged: Staging, policies: set[str]) -> None:
        """Store them, unless a change of this moment stands against it."""
        self._engine.stage_records(staged)
        with self._announced(policies):
            at = self._engine.file.last_number
            self._check(staged, policies)

            def check_again() -> None:
                if self._engine.file.last_number != at:  # others wait for it
                    self._check(staged, policies)

            with self._engine.rechecked(check_again):
                self._engine.commit_staged(staged)

    def _check(self, staged: Staging, policies: set[str]) -> None:
        self._refuse_unknown(Named("policies", name, "policy") for name in sorted(policies))
        _refuse(dict(itertools.islice(self._clashes(staged), ERRORS_MAX)))
        for plan, line in staged.plans():
            if not self._engine.revision_of(PLANS, plan):
                raise Invalid(f"lines[{line}].plan", "was deleted at this moment")


def _within(path: str, field: str | None) -> str:
    """A field of a line, or the line itself."""
    if field is None:
        return path
    return field if field.startswith(path) else f"{path}.{field}"


def _refuse(problems: dict[str, str]) -> None:
    """Raise `InvalidMany` with all problems, those of the first lines first."""

    def line(field: str) -> int:
        found = _LINE.match(field)
        return int(found[1]) if found is not None else 0

    if problems:
        raise InvalidMany([(field, problems[field]) for field in sorted(problems, key=line)])
