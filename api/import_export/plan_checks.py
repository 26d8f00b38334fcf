"""What a configuration must fulfil as a whole: of the proxies and users of an import, and after a restore.

A restore is checked by names as an import is (`api.import_export.references`), and names may have been taken since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from api.container import Services
from api.engine.kind import Kind
from api.engine.transfer import Planning
from api.import_export.plan import Plan, Problems, Step, pending
from api.import_export.references import records_after, refuse_names_of_nothing, refuse_unknown_names
from api.import_export.state import State
from api.objects.kinds import KINDS
from api.objects.named_kinds import NAMED
from api.security.permissions import ADMIN, holds
from api.security.users import User
from config.model.fields import InvalidProxy
from config.model.proxies import ProxyRecord
from config.model.proxy_certificates import check_certificate
from config.model.upstreams import refuse_circle


def usable_proxies(
    steps: list[Step[ProxyRecord]], planning: Planning, problems: Problems
) -> Iterator[Step[ProxyRecord]]:
    """Those whose certificates can be used."""
    for step in steps:
        try:
            if step.action != "unchanged" and step.after is not None:
                check_certificate(step.after, planning.rules.tls)
            yield step
        except InvalidProxy as error:
            problems.add(f"{step.path}.{error.field}", error.error)


def refuse_addresses(state: State, steps: list[Step[ProxyRecord]], planning: Planning, problems: Problems) -> None:
    """Circles of upstreams among the proxies as they would be, and upstreams and name servers that may not be used."""
    wanted = {each.record.name: each.record for each in state.records["proxies"]}
    for step in steps:
        if step.after is None:
            del wanted[step.name]
        else:
            wanted[step.name] = step.after
    for step in steps:
        if step.after is None or step.action == "unchanged":
            continue
        try:
            if step.before is None or step.before.dns.servers != step.after.dns.servers:
                planning.rules.upstream_policy.refuse_name_servers(step.after, wanted.values())
            if step.after.upstreams:
                refuse_circle(step.after, wanted.values())
            if step.before is None or step.before.upstreams != step.after.upstreams:
                planning.rules.upstream_policy.refuse(step.after, wanted.values())
        except InvalidProxy as error:
            problems.add(f"{step.path}.{error.field}", error.error)


def keep_the_caller(steps: list[Step[User]], caller_id: str, problems: Problems) -> None:
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


# --- after a restore ----------------------------------------------------------------------------------------------


def refuse_invalid(services: Services, plan: Plan, caller_id: str, problems: Problems) -> None:
    """Add the errors of the configuration as it would be."""
    state, of = plan.state, plan.of
    for name in NAMED:
        _refuse_twins(KINDS[name], plan, problems)
    refuse_unknown_names(NAMED.values(), state, of, problems)
    refuse_names_of_nothing(plan, services.object_users, problems)
    for name in ("proxies", "users", "plans"):
        _refuse_twins(KINDS[name], plan, problems)
    keep_the_caller(of["users"], caller_id, problems)
    proxies, plans = records_after(state, of, "proxies"), records_after(state, of, "plans")
    for step in pending(of["proxies"]):
        if step.after is not None:
            _refuse_proxy(services, step, proxies, problems)
    for step in pending(of["accounts"]):
        if step.after is not None and step.after.plan and step.after.plan not in plans:
            problems.add(f"{step.path}.plan", "the plan that it had was deleted: restore that, too")


def _refuse_twins(kind: Kind[Any], plan: Plan, problems: Problems) -> None:
    """Names are unique. An object that comes back may find its name taken."""
    key, holders = kind.transfer.key, dict[Any, list[str]]()
    for identifier, record in records_after(plan.state, plan.of, kind.collection).items():
        holders.setdefault(key(record), []).append(identifier)
    for step in pending(plan.of[kind.collection]):
        others = [] if step.after is None else [each for each in holders[key(step.after)] if each != step.id]
        if others:
            problems.add(f"{step.path}.name", f"the name {step.name!r} is that of {others[0]} now")


def _refuse_proxy(
    services: Services, step: Step[ProxyRecord], proxies: Mapping[str, ProxyRecord], problems: Problems
) -> None:
    record, rules = step.record, services.proxies.rules
    try:
        check_certificate(record, rules.tls)
        if record.upstreams:
            refuse_circle(record, proxies.values())
            rules.upstream_policy.refuse(record, proxies.values())
        rules.upstream_policy.refuse_name_servers(record, proxies.values())
    except InvalidProxy as error:
        problems.add(f"{step.path}.{error.field}", error.error)
