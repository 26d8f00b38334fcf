"""Planning of accounts of the fleet.

In a document proxies are known by their names. Accounts are known by their user names; where several have the same,
the proxies that they name distinguish them.
"""

from __future__ import annotations

import secrets as random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from api.engine.objects import load
from api.engine.records import Stored
from api.engine.transfer import Planning
from api.import_export.plan import ImportRequest, Problems, Step
from api.import_export.state import State
from api.objects.accounts import ACCOUNTS as KIND
from api.objects.accounts import AccountEntry, AccountNaming
from api.store.accounts import ACCOUNTS, AccountStore
from config.model.fields import InvalidResource
from config.model.fleet_accounts import AccountProxies, FleetAccount, FleetAccountUpdate, change_fleet_account
from config.model.plans import Plan
from config.model.proxies import ProxyRecord
from config.weak_passwords import weakness_of_account

MOST_PRUNED = 10_000

Found = Stored[FleetAccount]


def names_of(state: State, proxies: list[Step[ProxyRecord]], plans: list[Step[Plan]]) -> AccountNaming:
    """The names after these steps. What is deleted keeps its name for what is known of it before."""
    of_plans, of_proxies = _ids(state, "plans", plans), _ids(state, "proxies", proxies)
    known = {step.id: step.name for step in plans if step.after is None}
    gone = {step.id: step.name for step in proxies if step.after is None}
    return AccountNaming(
        of_plans,
        of_proxies,
        {**known, **{identifier: name for name, identifier in of_plans.items()}},
        {**gone, **{identifier: name for name, identifier in of_proxies.items()}},
    )


def _ids(state: State, collection: str, steps: list[Step[Any]]) -> dict[str, str]:
    found = {name: each.record.id for name, each in state.by_key(collection).items()}
    for step in steps:
        found.pop(step.name, None)
        if step.after is not None:
            found[step.name] = step.id
    return found


def refuse_plans_in_use(
    plans: list[Step[Plan]], accounts: list[Step[FleetAccount]], store: AccountStore, problems: Problems
) -> None:
    """Refuse to delete a plan that an account has after the import."""
    gone = [step for step in plans if step.after is None]
    if not gone:
        return
    used = Counter(store.users_by_plan())
    used.subtract(step.before.plan for step in accounts if step.before is not None)
    used.update(step.after.plan for step in accounts if step.after is not None)
    for step in gone:
        if used[step.id] > 0:
            text = f"the plan {step.name!r} is missing, and pruning would delete it: {used[step.id]} accounts have it"
            problems.add("plans", text)


def plan_accounts(
    request: ImportRequest, context: Planning, store: AccountStore, names: AccountNaming, problems: Problems
) -> list[Step[FleetAccount]]:
    """A step for each entry, in their order; then, to prune, one for each account that has none."""
    entries = request.document.section("accounts")
    if entries is None:
        return []
    planner = _Planner(request, context, store, names, problems)
    steps = [step for index, entry in enumerate(entries) if (step := planner.step(index, entry)) is not None]
    return [*steps, *planner.pruned()] if request.prune else steps


class _Planner:
    """The accounts of one document."""

    def __init__(
        self, request: ImportRequest, context: Planning, store: AccountStore, names: AccountNaming, problems: Problems
    ) -> None:
        self._context = context
        self._store = store
        self._names = names
        self._problems = problems
        self._sealed = request.secrets.accounts
        self._together = Counter(entry.username for entry in request.document.section("accounts") or ())
        self._seen: Counter[str] = Counter()
        self._matched: set[str] = set()

    def step(self, index: int, entry: AccountEntry) -> Step[FleetAccount] | None:
        """The step of an entry; None if there is a problem with it."""
        path = f"accounts[{index}]"
        hashes = self._sealed.get(entry.username, [])
        place = self._seen[entry.username]
        self._seen[entry.username] += 1
        try:
            proxies = self._proxies(entry)
            stored = self._match(entry, proxies)
            sealed = hashes[place] if place < len(hashes) else None
            return self._step(path, stored, self._wanted(entry, stored, proxies, sealed))
        except InvalidResource as error:
            self._problems.add(f"{path}.{error.field}", error.error)
            return None

    def pruned(self) -> Iterator[Step[FleetAccount]]:
        """Deletions of all accounts that no entry is about."""
        if self._store.count(ACCOUNTS) - len(self._matched) > MOST_PRUNED:
            self._problems.add("accounts", f"pruning may delete {MOST_PRUNED} accounts at most")
            return
        for document in self._store.documents(ACCOUNTS):
            if document.id not in self._matched:
                yield self._step("accounts", load(KIND, document), None)

    def _step(self, path: str, stored: Found | None, after: FleetAccount | None) -> Step[FleetAccount]:
        return Step(KIND, path, stored, after, entry=self._names.entry)

    def _match(self, entry: AccountEntry, proxies: AccountProxies | None) -> Found | None:
        """The account of an entry: the only one of its name, else the one that names the same proxies."""
        found = self._store.accounts_named(entry.username)
        known = [load(KIND, each) for each in found]
        if len(known) > 1 or self._together[entry.username] > 1:
            wanted = self._that_exist(proxies or AccountProxies(all=True))
            known = [each for each in known if self._that_exist(each.record.proxies) == wanted]
        match = next((each for each in known if each.record.id not in self._matched), None)
        if match is not None:
            self._matched.add(match.record.id)
        return match

    def _that_exist(self, proxies: AccountProxies) -> AccountProxies:
        """Without those that are deleted, which an account goes on naming and a document leaves out; in one order."""
        ids = sorted(each for each in proxies.ids if each in self._names.proxy_names)
        return proxies.model_copy(update={"ids": ids})

    def _proxies(self, entry: AccountEntry) -> AccountProxies | None:
        """Raises `InvalidResource` for a name of no proxy."""
        given = entry.proxies
        if given is None:
            return None
        for index, name in enumerate(given.names or ()):
            if name not in self._names.proxies:
                raise InvalidResource(f"proxies.names[{index}]", f"there is no proxy {name!r}")
        ids = [self._names.proxies[name] for name in given.names or ()]
        return AccountProxies(all=given.all or False, ids=ids, tags=given.tags or [])

    def _wanted(
        self, entry: AccountEntry, stored: Found | None, proxies: AccountProxies | None, sealed: str | None
    ) -> FleetAccount:
        now = self._context.now
        blank = FleetAccount(id="acc_" + random.token_hex(8), username=entry.username, created_at=now, updated_at=now)
        record = blank if stored is None else stored.record
        if entry.password is None and sealed is not None:
            record = record.model_copy(update={"password_hash": sealed})
        if entry.hides_password and record.password_hash is None:
            raise InvalidResource("password", "is null, and no such password is known here")
        if entry.expires_at is not None:  # it may have passed already
            record = record.model_copy(update={"expires_at": entry.expires_at})
        after = change_fleet_account(record, _body(entry), self._plan(entry, record), now)
        why = weakness_of_account(entry.password, entry.username, record.password_hash, after.password_hash)
        if why is not None and not self._context.weak_passwords:
            raise InvalidResource("password", why)
        return after if proxies is None else after.model_copy(update={"proxies": proxies})

    def _plan(self, entry: AccountEntry, record: FleetAccount) -> str:
        if "plan" not in entry.model_fields_set:
            return record.plan
        if entry.plan is None:
            return ""
        if entry.plan not in self._names.plans:
            raise InvalidResource("plan", f"there is no plan {entry.plan!r}")
        return self._names.plans[entry.plan]


def _body(entry: AccountEntry) -> FleetAccountUpdate:
    """The change that an entry is, without its proxies; a password that is null stays."""
    left_out = {"proxies", *(("password",) if entry.password is None else ())}
    values: dict[str, Any] = {name: getattr(entry, name) for name in entry.model_fields_set - left_out}
    return FleetAccountUpdate.model_construct(_fields_set=set(values), **values)
