"""Planning of accounts of the fleet.

In a document proxies are known by their names. Accounts are known by their user names; where several have the same,
the proxies that they name distinguish them.
"""

from __future__ import annotations

import secrets as random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from api.engine.kind import Kind
from api.engine.objects import load
from api.engine.records import Stored
from api.engine.transfer import PlannedRecord, Planning
from api.import_export.plan import ImportRequest, Problems, Step, plan_kind, records_after
from api.import_export.present_state import State
from api.objects.accounts.account_kind import ACCOUNTS as KIND
from api.objects.accounts.account_kind import AccountEntry, AccountNaming
from api.store import Document
from api.store.accounts import ACCOUNTS, AccountStore
from config.model.fields import InvalidResource
from config.model.fleet_accounts import AccountProxies, FleetAccount, FleetAccountUpdate, change_fleet_account
from config.weak_passwords import weakness_of_account

MOST_PRUNED = 10_000

Found = Stored[FleetAccount]


def names_of(state: State, steps: Mapping[str, list[Step[Any]]]) -> AccountNaming:
    """The names after these steps. What is deleted keeps its name for what is known of it before."""
    plans, proxies = (
        {identifier: record.name for identifier, record in records_after(state, steps, name).items()}
        for name in ("plans", "proxies")
    )
    ids_of_plans, ids_of_proxies = ({name: key for key, name in names.items()} for names in (plans, proxies))
    gone = {step.id: step.name for name in ("plans", "proxies") for step in steps.get(name, ()) if step.after is None}
    return AccountNaming(ids_of_plans, ids_of_proxies, {**gone, **plans}, {**gone, **proxies})


def known_by(naming: AccountNaming, **more: Any) -> Kind[FleetAccount]:
    """The kind whose entries have these names."""
    return replace(KIND, transfer=replace(KIND.transfer, entry=naming.entry, **more))


def plan_accounts(
    request: ImportRequest, context: Planning, store: AccountStore, names: AccountNaming, problems: Problems
) -> list[Step[FleetAccount]]:
    """A step for each entry, in their order; then, to prune, one for each account that has none."""
    entries: list[AccountEntry] | None = request.document.section(ACCOUNTS)
    if entries is None:
        return []
    of_names = [store.accounts_named(name) for name in dict.fromkeys(entry.username for entry in entries)]
    found: Iterable[Document] = chain.from_iterable(of_names)
    if request.prune and store.count(ACCOUNTS) > MOST_PRUNED + len(entries):
        problems.add(ACCOUNTS, f"pruning may delete {MOST_PRUNED} accounts at most")
    elif request.prune:
        found = store.documents(ACCOUNTS)
    planner = _Planner(context, names, entries)
    kind = known_by(names, match=planner.match, wanted=planner.wanted)
    return plan_kind(kind, [load(KIND, each) for each in found], request, context, problems)


class _Planner:
    """The accounts of one document."""

    def __init__(self, context: Planning, names: AccountNaming, entries: Sequence[AccountEntry]) -> None:
        self._context = context
        self._names = names
        self._together = Counter(entry.username for entry in entries)
        self._sealed = {name: iter(hashes) for name, hashes in context.sealed.accounts.items()}

    def match(self, stored: Sequence[Found], entries: Sequence[AccountEntry], _refuse: object) -> dict[int, Found]:
        """The account of an entry: the only one of its name, else the one that names the same proxies."""
        left: dict[str, list[Found]] = {}
        for each in stored:
            left.setdefault(each.record.username, []).append(each)
        alone = {name for name, found in left.items() if len(found) == self._together[name] == 1}
        matched = {}
        for index, entry in enumerate(entries):
            known = left.get(entry.username, [])
            found = next((each for each in known if entry.username in alone or self._is_of(each, entry)), None)
            if found is not None:
                matched[index] = found
                known.remove(found)
        return matched

    def _is_of(self, account: Found, entry: AccountEntry) -> bool:
        """Whether an account names the proxies of an entry. Those that are deleted, which it goes on naming and a
        document leaves out, don't count."""
        try:
            wanted = self._proxies(entry) or AccountProxies(all=True)
        except InvalidResource:
            return False  # of which planning the entry finds the problem
        here, there = (
            each.model_copy(update={"ids": sorted(set(each.ids) & self._names.proxy_names.keys())})
            for each in (account.record.proxies, wanted)
        )
        return here == there

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

    def wanted(self, stored: Found | None, entry: AccountEntry, _planning: Planning) -> PlannedRecord:
        """The account as the entry describes it; the hashes that came sealed are in the order of the entries."""
        sealed = next(self._sealed.get(entry.username, iter(())), None)
        now, proxies = self._context.now, self._proxies(entry)
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
        return PlannedRecord(after if proxies is None else after.model_copy(update={"proxies": proxies}))

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
