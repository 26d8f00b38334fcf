"""Plans: rules that accounts inherit. A change holds for all accounts of a plan at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from api.errors import Invalid, NotFound, StaleRevision
from api.services.account_names import AccountNames
from api.services.shared_objects import SharedObjects
from api.store import Document, Store
from api.store.accounts import PLANS, AccountStore
from api.store.records import Loaded, is_same
from config.model.object_names import names_of_rules
from config.model.plans import Plan, PlanCreate, PlanUpdate, change_plan, new_plan

MAX_PLANS = 1_000


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan, its revision and the number of its accounts."""

    record: Plan
    revision: int
    accounts: int


def _load(document: Document) -> Plan:
    return Plan.model_validate(document.body)


class Plans:
    """Reads and changes. Thread-safe.

    Changes raise `Invalid`, `NotFound`, `StaleRevision`, `PeerUnavailable` and `StoreWriteError`.
    """

    def __init__(self, store: Store, accounts: AccountStore, names: AccountNames, objects: SharedObjects) -> None:
        """`store` is `accounts` with an audit trail."""
        self._objects = objects
        self._store = store
        self._accounts = accounts
        self._names = names
        self._loaded = Loaded(PLANS, _load)

    def all(self) -> list[StoredPlan]:
        """All of them, oldest first."""
        used = self._accounts.users_by_plan()
        found = [StoredPlan(_load(each), each.revision, used.get(each.id, 0)) for each in self._store.find(PLANS)]
        return sorted(found, key=lambda plan: (plan.record.created_at, plan.record.id))

    def get(self, plan_id: str) -> StoredPlan:
        """One of them. Raises `NotFound`."""
        document = self._store.get(PLANS, plan_id)
        if document is None:
            raise NotFound("The plan")
        return StoredPlan(_load(document), document.revision, self._accounts.plan_users(plan_id))

    def known(self, plan_id: str) -> Plan | None:
        """The plan with this id, or None. It is shared and must not be altered."""
        return self._loaded.get(self._store, plan_id) if plan_id else None

    def id_of(self, name: str, field: str = "plan") -> str:
        """The id of the plan with this name. Raises `Invalid` on `field`."""
        found = self._accounts.plan_named(name)
        if found is None:
            raise Invalid(field, f"there is no plan {name!r}")
        return found.id

    def create(self, body: PlanCreate) -> StoredPlan:
        """A new plan."""
        record = new_plan(body, time.time())
        with self._changing(body):
            if self._accounts.count(PLANS) >= MAX_PLANS:
                raise Invalid(None, f"there are {MAX_PLANS} plans already")
            self._refuse_taken_name(record)
            self._check_objects(record, body)
            document = self._store.put(PLANS, record.model_dump(mode="json"), expect=0)
        return StoredPlan(record, document.revision, 0)

    def update(self, plan_id: str, body: PlanUpdate, if_match: int | None) -> StoredPlan:
        """Change any part."""
        with self._changing(body):
            before = self._matching(plan_id, if_match)
            record = change_plan(before.record, body, time.time())
            self._refuse_taken_name(record)
            if is_same(before.record, record):
                return before
            self._check_objects(record, body)
            document = self._store.put(PLANS, record.model_dump(mode="json"), before.revision)
        return StoredPlan(record, document.revision, before.accounts)

    def delete(self, plan_id: str, if_match: int | None) -> None:
        """Delete a plan that no account has."""
        with self._names.lock:
            before = self._matching(plan_id, if_match)
            if before.accounts:
                raise Invalid(None, f"the plan has {before.accounts} accounts; give them another one first")
            self._store.delete(PLANS, plan_id, before.revision)

    @contextmanager
    def _changing(self, body: PlanUpdate) -> Iterator[None]:
        """Holds up other changes; of objects as well, if the plan gets a policy. Raises `PeerUnavailable`."""
        with nullcontext() if body.policy is None else self._objects.lock(), self._names.lock:
            yield

    def _check_objects(self, record: Plan, body: PlanUpdate) -> None:
        """Refuse names of no object. A new policy is at the proxies before an account can need it."""
        self._objects.refuse_unknown(names_of_rules(record))
        if body.policy is not None:
            self._objects.send_policies([body.policy])

    def _matching(self, plan_id: str, if_match: int | None) -> StoredPlan:
        stored = self.get(plan_id)
        if if_match not in (None, stored.revision):
            raise StaleRevision(stored.revision)
        return stored

    def _refuse_taken_name(self, record: Plan) -> None:
        found = self._accounts.plan_named(record.name)
        if found is not None and found.id != record.id:
            raise Invalid("name", f'the name "{record.name}" is in use')
