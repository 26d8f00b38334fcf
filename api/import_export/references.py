"""Checks that the lists, pools and policies are there that others name after an import."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from api.engine.kind import Kind
from api.import_export.plan import Plan, Problems, Step, pending
from api.import_export.state import State
from api.objects.named_kinds import NAMED
from api.objects.plans.kind import PLANS
from api.objects.proxies import PROXIES
from api.services.object_users import ObjectUsers
from api.services.proxy_changes import refuse_chain
from api.services.shared_objects import kind_of
from config.model.fields import InvalidProxy
from config.model.object_names import Named, names_of_rules
from config.model.proxies import ProxyRecord
from config.net.entries import GEO

Steps = Mapping[str, list[Step[Any]]]
Names = Mapping[str, Mapping[str, str]]
"""By collection the names of objects, with the kind of a list."""


def records_after(state: State, steps: Steps, collection: str) -> dict[str, Any]:
    """The records of a kind by id after these steps."""
    changed = {step.id: step.after for step in steps[collection]}
    return {key: each for key, each in {**state.by_id(collection), **changed}.items() if each is not None}


def refuse_unknown_names(kinds: Iterable[Kind[Any]], state: State, steps: Steps, problems: Problems) -> None:
    """Add a problem for each name of no object that one of these kinds would have."""
    names = _names(state, steps)
    for kind in kinds:
        paths = {step.id: step.path for step in pending(steps[kind.collection])}
        for identifier, record in records_after(state, steps, kind.collection).items():
            user = f"{kind.name} {record.name!r}"
            _refuse_missing(kind.refers(record), names, user, paths.get(identifier), problems)


def _names(state: State, steps: Steps) -> Names:
    return {name: {each.name: kind_of(each) for each in records_after(state, steps, name).values()} for name in NAMED}


def refuse_names_of_nothing(plan: Plan, users: ObjectUsers, problems: Problems) -> None:
    """Add a problem for each name of an object that would not be there."""
    refuse_unknown_names((PROXIES, PLANS), plan.state, plan.of, problems)
    names = _names(plan.state, plan.of)
    for step in pending(plan.of["accounts"]):
        if step.after is not None:
            _refuse_missing(names_of_rules(step.after), names, f"account {step.name!r}", step.path, problems)
    _refuse_chains(plan, problems)
    for name, each in sorted(plan.state.by_key("lists").items()):
        after = names["lists"].get(name)
        if after is None:
            _refuse_users("list", name, "be deleted", plan.of["accounts"], users.of_accounts(name), problems)
        elif (after == GEO) != (each.record.kind == GEO):
            _refuse_users("list", name, f"be of kind {after}", plan.of["accounts"], users.of_accounts(name), problems)
    for name in sorted(plan.state.by_key("policies").keys() - names["policies"].keys()):
        _refuse_users("policy", name, "be deleted", plan.of["accounts"], users.with_policy(name), problems)


def _refuse_chains(plan: Plan, problems: Problems) -> None:
    """Of proxies that would have a pool whose upstreams lead back to them."""
    pools = {name: each.record for name, each in plan.state.by_key("pools").items()}
    pools.update({step.name: step.after for step in plan.of["pools"]})
    proxies = records_after(plan.state, plan.of, "proxies")
    paths = {step.id: step.path for step in pending(plan.of["proxies"])}
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


def _refuse_missing(found: Iterable[Named], names: Names, user: str, path: str | None, problems: Problems) -> None:
    """Add a problem for each of these that can't be named; `path` is that of `user`, None if it stays."""
    for each in found:
        kind = names[each.collection].get(each.name)
        misfit = "" if kind is None else each.misfit(kind)
        if misfit:
            problems.add(f"{path}.{each.field}" if path else each.collection, f"{misfit} ({user})")
        if kind is not None:
            continue
        if path is not None:
            problems.add(f"{path}.{each.field}", f"there is no {each.kind} {each.name!r}")
        else:
            problems.add(each.collection, f"the {each.kind} {each.name!r} would be deleted, and the {user} names it")


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
