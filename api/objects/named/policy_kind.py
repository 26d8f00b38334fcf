"""Policies: rules in order, of which the first that matches a request decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from actors.bus.messages.specs import LimitsSpec, PolicySpec, RuleSpec
from actors.net.this_machine import is_local
from api.engine.kind import Texts
from api.engine.responses import OF_INSTALLATION, Moment, ResponseModel, ScheduleView, Warned, one_of, page_of, shows
from api.engine.transfer import Transfer, entry_of
from api.objects.named.named_kind import NamedKind, NamedResource, UsedBy, UsedByThese
from api.objects.proxies.proxy_specs import spec
from config.model.choices import TlsNameCheck
from config.model.object_fields import Named, ObjectName, named_by, named_in
from config.model.plans import schedule_data
from config.model.proxy_parts import FieldWarning, Mode
from config.model.shared_objects.policies import (
    ActionHeaders,
    ActionLimits,
    Policy,
    PolicyCreate,
    PolicyRule,
    PolicyUpdate,
    RuleAction,
    RuleMatch,
    change_policy,
    new_policy,
    policy_warnings,
)
from config.net.entries import is_network, read_egress, usable
from config.net.names import Ports


@shows(RuleMatch, sparse=True)
class RuleMatchView(ResponseModel):
    """What a rule matches: all that is there."""

    schedule: ScheduleView | None = None
    until: Moment | None = None


@shows(ActionHeaders, sparse=True)
class ActionHeadersView(ResponseModel):
    """Header fields that a rule sets and removes."""


@shows(ActionLimits, sparse=True)
class ActionLimitsView(ResponseModel):
    """Limits of a rule."""


@shows(RuleAction, sparse=True)
class RuleActionView(ResponseModel):
    """What a rule does."""

    tls_name: TlsNameCheck | None = None
    headers: ActionHeadersView | None = None
    limits: ActionLimitsView | None = None


class RuleView(ResponseModel):
    """A rule of a policy."""

    name: str
    match: RuleMatchView
    action: RuleActionView
    mode: Mode


@shows(Policy)
class ListedPolicy(ResponseModel):
    """A policy in a list of them."""

    used_by: UsedBy


class PolicyView(ListedPolicy):
    """A policy: the first rule that matches decides."""

    rules: list[RuleView]
    used_by: UsedByThese


@shows(Policy, but=OF_INSTALLATION)
class ExportedPolicy(ResponseModel):
    """A policy."""

    rules: list[RuleView]


class PolicyEntry(PolicyUpdate):
    """A policy, known by its `name`."""

    name: ObjectName


def policy_spec(record: Policy, revision: int) -> PolicySpec:
    """The message about a policy."""
    return spec(PolicySpec, record, revision=revision, rules=tuple(map(_rule_spec, record.rules)))


def _rule_spec(rule: PolicyRule) -> RuleSpec:
    match, action = rule.match, rule.action
    return spec(
        RuleSpec,
        rule,
        match,
        action,
        params=tuple(match.params.items()),
        listen_ports=tuple((ports.first, ports.last) for ports in map(Ports.given, match.listen_ports)),
        schedule=None if match.schedule is None else schedule_data(match.schedule.model_dump()),
        report=rule.mode == "report",
        until=match.ends_at,
        set_headers=tuple(action.headers.set.items()),
        remove_headers=tuple(action.headers.remove),
        limits=spec(LimitsSpec, action.limits),
    )


def _named(policy: Policy) -> Iterator[Named]:
    for index, rule in enumerate(policy.rules):
        path = f"rules[{index}]"
        yield from named_in(rule.match.destinations, f"{path}.match.destinations")
        pool = named_by(rule.action.use, f"{path}.action.use")
        if pool is not None:
            yield pool


def unrouted(entries: str | Iterable[str], field: str) -> list[FieldWarning]:
    """The networks among these entries for which there is no route of the type `local`; `field` is that of them all."""
    found = []
    one = isinstance(entries, str)
    for index, entry in enumerate([entries] if isinstance(entries, str) else entries):
        if is_network(entry) and not _is_routed(entry):
            command = f"ip {'-6 ' if ':' in entry else ''}route add local {entry} dev lo"
            text = f"{entry} is not routed to this machine, so replies get lost: {command}"
            found.append(FieldWarning(field if one else f"{field}[{index}]", text))
    return found


def warnings_of_policy(policy: Policy) -> list[FieldWarning]:
    """All warnings about its rules."""
    found = policy_warnings(policy)
    for index, rule in enumerate(policy.rules):
        found += unrouted(rule.action.egress, f"rules[{index}].action.egress")
    return found


def _is_routed(entry: str) -> bool:
    """Whether the first address of a network is one of this machine; True where that can't be found out."""
    network, (first, _last) = read_egress(entry), usable(entry)
    try:
        return is_local(network.network_address + (first - int(network.network_address)))
    except OSError:
        return True


POLICIES = NamedKind(
    name="policy",
    collection="policies",
    transfer=Transfer(
        model=PolicyEntry,
        exported=ExportedPolicy,
        blank=entry_of(Policy(id="", name="blank", created_at=0.0, updated_at=0.0)),
        restored=lambda before, after, now: after.model_copy(update={"updated_at": now, "ended": before.ended}),
    ),
    model=Policy,
    create=PolicyCreate,
    update=PolicyUpdate,
    new=lambda body, now, _seal: new_policy(body, now),
    change=lambda record, body, now, _seal: change_policy(record, body, now),
    spec=lambda record, revision, _seal, _file_of: policy_spec(record, revision),
    refers=_named,
    warnings=warnings_of_policy,
    resource=NamedResource(
        texts=Texts(
            list="Returns one page of policies, the oldest first, without their rules. Follow `next_cursor` for the "
            "next page.",
            create="Stores rules in order, of which the first that matches a request decides. `warnings` name rules "
            "that do less than they seem to.",
            get="Returns a policy with its rules. What a rule does not say is left out.",
            update="Changes the given fields and keeps all others; `rules` are replaced as a whole. The change holds "
            "for the next request; tunnels that are no longer allowed are ended only with `end_existing`.",
            delete="Deletes a policy that nothing names. If it is in use, the response is 400 with the number of its "
            "users and the first ten.",
        ),
        one=one_of(
            "policy",
            PolicyView,
            "A policy. `warnings` name rules that do less than they seem to.",
            warnings=list[Warned],
        ),
        page=page_of("policy", "policies", ListedPolicy, left_out="rules"),
    ),
)
