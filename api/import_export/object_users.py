"""Checks that the lists, pools and policies are there that others name after an import."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from api.import_export.objects import Names, refuse_missing
from api.import_export.plan import Plan, Problems, Step, pending
from api.import_export.state import StoredRecord
from api.services.object_users import ObjectUsers
from api.services.pool_upstreams import refuse_chain
from api.services.shared_objects import kind_of
from config.model.fields import InvalidProxy
from config.model.object_names import Named, names_of_proxy, names_of_rules
from config.model.proxies import ProxyRecord
from config.net.entries import GEO


def refuse_names_of_nothing(plan: Plan, users: ObjectUsers, problems: Problems) -> None:
    """Add a problem for each name of an object that would not be there."""
    names = {name: _after(found, plan.objects, name) for name, found in plan.state.objects.items()}
    _check("proxy", plan.state.proxies, plan.proxies, names_of_proxy, names, problems)
    _check("plan", plan.state.plans, plan.plans, names_of_rules, names, problems)
    for step in pending(plan.accounts):
        if step.after is not None:
            refuse_missing(names_of_rules(step.after), names, f"account {step.name!r}", step.path, problems)
    _refuse_chains(plan, problems)
    for name, each in sorted(plan.state.objects["lists"].items()):
        after = names["lists"].get(name)
        if after is None:
            _refuse_users("list", name, "be deleted", plan.accounts, users.of_accounts(name), problems)
        elif (after == GEO) != (each.record.kind == GEO):
            _refuse_users("list", name, f"be of kind {after}", plan.accounts, users.of_accounts(name), problems)
    for name in sorted(plan.state.objects["policies"].keys() - names["policies"].keys()):
        _refuse_users("policy", name, "be deleted", plan.accounts, users.with_policy(name), problems)


def _refuse_chains(plan: Plan, problems: Problems) -> None:
    """Of proxies that would have a pool whose upstreams lead back to them."""
    pools = {name: each.record for name, each in plan.state.objects["pools"].items()}
    pools.update({step.name: step.after for step in plan.objects if step.collection == "pools"})
    proxies = {each.record.id: each.record for each in plan.state.proxies.values()}
    for step in plan.proxies:
        proxies.pop(step.id, None)
        if step.after is not None:
            proxies[step.id] = step.after
    paths = {step.id: step.path for step in pending(plan.proxies)}
    for each in proxies.values():
        if each.pool is not None:
            _refuse_chain(each, proxies.values(), pools, paths.get(each.id), problems)


def _refuse_chain(
    proxy: ProxyRecord,
    proxies: Iterable[ProxyRecord],
    pools: Mapping[str, Any],
    path: str | None,
    problems: Problems,
) -> None:
    try:
        refuse_chain(proxy, proxies, lambda name: getattr(pools.get(name), "upstreams", ()))
    except InvalidProxy as error:
        if path is None:
            problems.add("pools", f"the proxy {proxy.name!r} has such a pool: {error.error}")
        else:
            problems.add(f"{path}.{error.field}", error.error)


def _after(stored: Mapping[str, StoredRecord[Any]], steps: Iterable[Step[Any]], collection: str) -> dict[str, str]:
    """The names of all objects of a collection after these steps, with the kind of a list."""
    by_id = {each.record.id: each.record for each in stored.values()}
    for step in steps:
        if step.collection == collection:
            by_id.pop(step.id, None)
            if step.after is not None:
                by_id[step.id] = step.after
    return {each.name: kind_of(each) for each in by_id.values()}


def _check(
    kind: str,
    stored: Mapping[str, StoredRecord[Any]],
    steps: Sequence[Step[Any]],
    find: Callable[[Any], Iterable[Named]],
    names: Names,
    problems: Problems,
) -> None:
    records = {each.record.id: each.record for each in stored.values()}
    records.update({step.id: step.after for step in steps})
    paths = {step.id: step.path for step in pending(steps)}
    for identifier, record in records.items():
        if record is not None:
            refuse_missing(find(record), names, f"{kind} {record.name!r}", paths.get(identifier), problems)


def _refuse_users(
    kind: str,
    name: str,
    fate: str,
    steps: Iterable[Step[Any]],
    users: Iterable[tuple[str, str]],
    problems: Problems,
) -> None:
    """Of accounts that stay as they are, and credentials."""
    gone, changed = set[str](), set[str]()
    for step in pending(list(steps)):
        (gone if step.after is None else changed).add(step.id)
    for account_id, user in users:
        if account_id in gone or (account_id in changed and user.startswith("account ")):
            continue
        section = "lists" if kind == "list" else "policies"
        problems.add(section, f"the {kind} {name!r} would {fate}, and the {user} names it")
