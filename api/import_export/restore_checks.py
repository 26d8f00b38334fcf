"""What a restored configuration must fulfil as a whole; an import checks the same by names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.container import Services
from api.import_export.object_users import refuse_names_of_nothing
from api.import_export.objects import refuse_unknown_names
from api.import_export.plan import Plan, Problems, Step, pending
from api.import_export.users import keep_the_caller
from api.services.proxy_upstreams import with_upstreams
from config.files.secret_box import SecretBox
from config.model.fields import InvalidProxy
from config.model.lists import DestinationList, ListUpdate, change_list
from config.model.proxies import ProxyRecord, ProxyUpdate, apply
from config.model.proxy_certificates import check_certificate
from config.model.upstreams import refuse_circle
from config.model.user_names import name_key


def refuse_invalid(services: Services, plan: Plan, caller_id: str, problems: Problems) -> None:
    """Add the errors of the configuration as it would be."""
    state = plan.state
    proxies = _after({each.record.id: each.record for each in state.proxies.values()}, plan.proxies)
    users = _after({each.record.id: each.record for each in state.users.values()}, plan.users)
    plans = _after({each.record.id: each.record for each in state.plans.values()}, plan.plans)
    for name, found in state.objects.items():
        of_kind = [step for step in plan.objects if step.collection == name]
        _refuse_twins(of_kind, _after({each.record.id: each.record for each in found.values()}, of_kind), problems)
    refuse_unknown_names(state, plan.objects, problems)
    refuse_names_of_nothing(plan, services.object_users, problems)
    for steps, records in ((plan.proxies, proxies), (plan.users, users), (plan.plans, plans)):
        _refuse_twins(steps, records, problems)
    keep_the_caller(plan.users, caller_id, problems)
    for step in pending(plan.proxies):
        if step.after is not None:
            _refuse_proxy(services, step, proxies, problems)
    for step in pending(plan.accounts):
        if step.after is not None and step.after.plan and step.after.plan not in plans:
            problems.add(f"{step.path}.plan", "the plan that it had was deleted: restore that, too")


def refuse_misfits(record: Any, now: float, seal: SecretBox) -> None:
    """Raise `InvalidResource` if fields of a record do not fit together that were put together anew.

    A change of nothing is checked as any other change is.
    """
    if isinstance(record, ProxyRecord):
        with_upstreams(apply(record, ProxyUpdate(), now), ProxyUpdate(), seal)
    elif isinstance(record, DestinationList):
        change_list(record, ListUpdate(), now, seal)


def _after(records: Mapping[str, Any], steps: list[Step[Any]]) -> dict[str, Any]:
    """The records by id after these steps."""
    changed = {step.id: step.after for step in steps}
    return {key: each for key, each in {**records, **changed}.items() if each is not None}


def _name(record: Any) -> str:
    return record.name if hasattr(record, "name") else name_key(record.username)


def _refuse_twins(steps: list[Step[Any]], records: Mapping[str, Any], problems: Problems) -> None:
    """Names are unique. An object that comes back may find its name taken."""
    holders: dict[str, list[str]] = {}
    for identifier, record in records.items():
        holders.setdefault(_name(record), []).append(identifier)
    for step in pending(steps):
        others = [] if step.after is None else [each for each in holders[_name(step.after)] if each != step.id]
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
