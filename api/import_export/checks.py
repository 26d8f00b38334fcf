"""What a configuration must fulfil as a whole: names that others name, proxies and users of an import, and after a
restore.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from api.container import Services
from api.engine.kind import Kind
from api.errors import Invalid
from api.import_export.plan import ImportPlan, Problems, Step, pending, records_after
from api.objects.accounts.plan_kind import PLANS
from api.objects.kinds import KINDS, NAMED
from api.objects.named.object_users import ObjectUser, ObjectUsers
from api.objects.named.shared_objects import kind_of
from api.objects.proxies.proxy_cache import StoredProxy
from api.objects.proxies.proxy_changes import listeners_of, refuse_chain
from api.objects.proxies.proxy_kind import PROXIES
from api.objects.proxies.proxy_service import processes_of, refuse_too_many
from api.security.permissions import ADMIN, holds
from api.security.users import User
from api.store.accounts import ACCOUNTS, AccountStore
from config.model.fields import InvalidProxy
from config.model.object_fields import Named, names_of_rules, names_of_settings
from config.model.proxies import ProxyRecord
from config.model.proxy_parts import check_certificate
from config.model.shared_objects.upstreams import ProxyUpstream
from config.net.entries import GEO
from config.text.formatting import counted

Steps = Mapping[str, list[Step[Any]]]
Names = Mapping[str, Mapping[str, str]]
"""By collection the names of objects, with the kind of a list."""


def refuse_invalid(services: Services, plan: ImportPlan, caller_id: str, problems: Problems) -> None:
    """Add the errors of the configuration as it would be, and raise `InvalidMany` if there are any."""
    proxies = records_after(plan.state, plan.of, "proxies")
    here = {name: services.nodes.for_clients(each) for name, each in proxies.items()}
    for step in pending(plan.of["proxies"]):
        if step.after is not None:
            _refuse_unusable(services, step, here, problems)
    _refuse_names_of_nothing(plan, services.object_users, services.live.names(), problems)
    _refuse_chains(plan, here.values(), problems)
    for name, kind in KINDS.items():
        if name != ACCOUNTS:
            _refuse_twins(kind, plan, problems)
    _keep_the_caller(plan.of["users"], caller_id, problems)
    _refuse_plans_in_use(plan, services.account_store, problems)
    problems.refuse()
    _refuse_clashes(services, plan, proxies)


# --- names --------------------------------------------------------------------------------------------------------


def _refuse_names_of_nothing(
    plan: ImportPlan, users: ObjectUsers, of_settings: Iterable[tuple[str, Named]], problems: Problems
) -> None:
    """Add a problem for each name of an object that would not be there; `of_settings` are those of settings now."""
    state, steps = plan.state, plan.of
    names: Names = {
        name: {each.name: kind_of(each) for each in records_after(state, steps, name).values()} for name in NAMED
    }
    for kind in (*NAMED.values(), PROXIES, PLANS):
        paths = {step.id: step.path for step in pending(steps[kind.collection])}
        for identifier, record in records_after(state, steps, kind.collection).items():
            user = f"{kind.name} {record.name!r}"
            _refuse_missing(kind.refers(record), names, user, paths.get(identifier), problems)
    _refuse_missing(names_of_settings(plan.changed_settings), names, "setting", "settings", problems)
    for node, named in of_settings:
        if node or named.field not in plan.changed_keys:
            setting = f"setting {named.field}{f' of {node}' if node else ''}"
            _refuse_missing([named], names, setting, None, problems)
    for step in pending(steps["accounts"]):
        if step.after is not None:
            _refuse_missing(names_of_rules(step.after), names, f"account {step.name!r}", step.path, problems)
    for name, each in sorted(state.by_key("lists").items()):
        after = names["lists"].get(name)
        if after is None:
            _refuse_users("list", name, "be deleted", steps["accounts"], users.of_accounts(name), problems)
        elif (after == GEO) != (each.record.kind == GEO):
            _refuse_users("list", name, f"be of kind {after}", steps["accounts"], users.of_accounts(name), problems)
    for name in sorted(state.by_key("policies").keys() - names["policies"].keys()):
        _refuse_users("policy", name, "be deleted", steps["accounts"], users.with_policy(name), problems)


_LEADING = ("host", "port", "last_port", "upstreams", "pool", "nodes")
"""Fields of a proxy that decide what leads where."""


def _refuse_chains(plan: ImportPlan, proxies: Iterable[ProxyRecord], problems: Problems) -> None:
    """Of proxies whose upstreams, or those of their pool, would lead back to them.

    A chain that closes has a part that is new: it begins or ends at one of these.
    """
    pools = {name: each.record for name, each in plan.state.by_key("pools").items()}
    pools.update({step.name: step.after for step in plan.of["pools"]})
    changed = {step.name for step in pending(plan.of["pools"])}
    paths = {step.id: step.path for step in pending(plan.of["proxies"]) if _leads_otherwise(step)}
    found = [each for each in proxies if each.id in paths or each.pool in changed]

    def of_pool(name: str) -> Sequence[ProxyUpstream]:
        return getattr(pools.get(name), "upstreams", ())

    listeners = listeners_of(proxies if found else (), of_pool)
    for each in found:
        try:
            refuse_chain(each, listeners, of_pool)
        except InvalidProxy as error:
            if each.id in paths:
                problems.add(f"{paths[each.id]}.{error.field}", error.error)
            else:
                problems.add("pools", f"the proxy {each.name!r} has such a pool: {error.error}")


def _leads_otherwise(step: Step[ProxyRecord]) -> bool:
    before, after = step.before, step.after
    return before is None or any(getattr(before, name) != getattr(after, name, None) for name in _LEADING)


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
    users: Iterable[tuple[str, ObjectUser]],
    problems: Problems,
) -> None:
    """Of accounts that stay as they are, and credentials."""
    gone, changed = set[str](), set[str]()
    for step in pending(list(steps)):
        (gone if step.after is None else changed).add(step.id)
    for account_id, user in users:
        if account_id in gone or (account_id in changed and user.kind == "account"):
            continue
        section = "lists" if kind == "list" else "policies"
        problems.add(section, f"the {kind} {name!r} would {fate}, and the {user.text} names it")


def _refuse_twins(kind: Kind[Any], plan: ImportPlan, problems: Problems) -> None:
    """Names are unique. An object that comes back may find its name taken."""
    if kind.transfer.match is not None:
        return
    key, holders = kind.transfer.key, dict[Any, list[str]]()
    for identifier, record in records_after(plan.state, plan.of, kind.collection).items():
        holders.setdefault(key(record), []).append(identifier)
    for step in pending(plan.of[kind.collection]):
        others = [] if step.after is None else [each for each in holders[key(step.after)] if each != step.id]
        if others:
            problems.add(f"{step.path}.name", f"the name {step.name!r} is that of {others[0]} now")


# --- proxies, users, plans of accounts ----------------------------------------------------------------------------


def _refuse_unusable(
    services: Services, step: Step[ProxyRecord], proxies: Mapping[str, ProxyRecord], problems: Problems
) -> None:
    """Certificates, upstreams and name servers that may not be used."""
    record, before, rules = step.record, step.before, services.proxies.rules
    try:
        services.nodes.refuse_unfit(record, before)
        here = services.nodes.as_here(record)
        if here is not None and (before is None or _needs_certificate(before, record)):
            check_certificate(here, rules.tls)
        record = here or record
        if before is None or before.dns.servers != record.dns.servers:
            rules.upstream_policy.refuse_name_servers(record, proxies.values())
        if before is None or before.upstreams != record.upstreams:
            rules.upstream_policy.refuse(record, proxies.values())
    except (InvalidProxy, Invalid) as error:
        problems.add(f"{step.path}.{error.field}", error.error)


def _needs_certificate(before: ProxyRecord, after: ProxyRecord) -> bool:
    """Whether a proxy would begin to serve with a certificate, or with another one."""
    starts = after.status == "active" and before.status != "active"
    return starts or (before.protocol, before.tls) != (after.protocol, after.tls)


def _keep_the_caller(steps: list[Step[User]], caller_id: str, problems: Problems) -> None:
    """Refuse an import after which the caller, maybe the only administrator, could not sign in."""
    for step in steps:
        if step.before is None or step.before.id != caller_id:
            continue
        if step.after is None:
            problems.add("users", f"your own account {step.name!r} is missing: pruning would delete it")
        elif step.after.status != "active":
            problems.add(f"{step.path}.status", "you can't disable your own account")
        elif not holds(step.after.granted(), ADMIN):
            field = "role" if step.after.permissions is None else "permissions"
            problems.add(f"{step.path}.{field}", "you can't take administration from your own account")


def _refuse_plans_in_use(plan: ImportPlan, store: AccountStore, problems: Problems) -> None:
    """Refuse accounts whose plan is not there, and to delete a plan that an account would have."""
    plans, accounts = {step.id: step for step in plan.of["plans"]}, plan.of["accounts"]
    known = plans.keys() | plan.state.by_id("plans").keys() | {""}
    for step in pending(accounts):
        if step.after is not None and step.after.plan not in known:
            problems.add(f"{step.path}.plan", "the plan that it had was deleted: restore that, too")
    gone = [step for step in plans.values() if step.after is None]
    if not gone:
        return
    used = Counter(store.users_by_plan())
    used.subtract(step.before.plan for step in accounts if step.before is not None)
    used.update(step.after.plan for step in accounts if step.after is not None)
    for step in gone:
        if used[step.id] > 0:
            users = counted(used[step.id], "account")
            text = f"the plan {step.name!r} is missing, and pruning would take it from {users}"
            problems.add("plans", text)


def _refuse_clashes(services: Services, plan: ImportPlan, proxies: Mapping[str, ProxyRecord]) -> None:
    """One user name is one account, for any one proxy as it would be. Raises `InvalidMany`."""
    problems, names = Problems(), services.account_names
    stored = plan.state.records["proxies"]
    known, wanted = processes_of(each.record for each in stored), processes_of(proxies.values())
    if wanted > known:
        refuse_too_many(services.nodes.most_on_a_node(proxies.values(), processes_of), "proxies")
    places = {step.id: step.path for step in pending(plan.of["proxies"])}
    services.nodes.refuse_together("proxies", list(proxies.values()), places)
    changed = {step.id: step.after for step in pending(plan.of["accounts"])}
    paths = {step.id: f"{step.path}." for step in plan.of["accounts"]}
    names.refuse_accounts(changed, paths, [StoredProxy(each, 0) for each in proxies.values()])
    for step in pending(plan.of["proxies"]):
        try:
            if step.after is not None:
                names.refuse_proxy(step.before, step.after, changed.keys())
        except InvalidProxy as error:
            problems.add(f"{step.path}.{error.field}", error.error)
    problems.refuse()
