"""Many accounts of the fleet in one change, all or nothing. Passwords are hashed on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from api.cpu_affinity import allowed
from api.errors import Invalid, InvalidMany, NotFound
from api.services.account_names import ERRORS_MAX
from api.services.fleet_accounts import AccountChange, FleetAccounts, StoredAccount
from config.model.account_batches import AccountBatch
from config.model.fields import InvalidResource


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The accounts after the change, in the order of the request; those of a dry run have revision 0.

    `changed` is the number of those `updated` that are other than before.
    """

    created: list[StoredAccount]
    updated: list[StoredAccount]
    deleted: list[str]
    changed: int


class AccountBatches:
    """Raises as `FleetAccounts`, and `InvalidMany`; fields are those of the batch, such as `create[3].username`."""

    def __init__(self, accounts: FleetAccounts) -> None:
        self._accounts = accounts

    def apply(self, batch: AccountBatch, dry_run: bool = False) -> BatchResult:
        """Make the changes, or check them only."""
        _refuse_twice(batch)
        changes = self._prepared(batch)
        if dry_run:
            self._accounts.check(changes)
            after = [None if each.after is None else StoredAccount(each.after, 0) for each in changes]
        else:
            after = self._accounts.commit(changes)
        kept = [each for each in after if each is not None]
        new = len(batch.create)
        changed = sum(each.before is not None and each.after is not None and not each.is_none for each in changes)
        return BatchResult(kept[:new], kept[new:], list(batch.delete), changed)

    def _prepared(self, batch: AccountBatch) -> list[AccountChange]:
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
        return [each for each in results if isinstance(each, AccountChange)]

    def _tasks(self, batch: AccountBatch) -> Iterator[_Task]:
        accounts = self._accounts
        for index, new in enumerate(batch.create):
            yield f"create[{index}]", partial(accounts.prepare_create, new)
        for index, one in enumerate(batch.update):
            yield f"update[{index}]", partial(accounts.prepare_update, one.id, one, None)
        for index, gone in enumerate(batch.delete):
            yield f"delete[{index}]", partial(accounts.prepare_delete, gone, None)


_Task = tuple[str, Callable[[str], AccountChange]]
"""The place of an entry in the batch, and what prepares its change."""


def _attempt(task: _Task) -> AccountChange | Invalid:
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
