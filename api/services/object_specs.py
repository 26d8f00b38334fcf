"""The messages in which the supervisor and the forwarding actors get pools, lists and policies."""

from __future__ import annotations

from actors.bus.messages.fleet_objects import ListRef, PoolSpec
from actors.bus.messages.policies import PolicySpec, RuleSpec
from actors.bus.messages.specs import LimitsSpec
from actors.bus.messages.upstreams import UpstreamsSpec
from api.services.proxy_specs import spec, upstream_spec
from config.files.secret_box import SecretBox
from config.model.lists import DestinationList
from config.model.policies import Policy, PolicyRule
from config.model.pools import Pool
from config.model.schedules import schedule_data
from config.net.ports import Ports


def list_ref(record: DestinationList, revision: int, file: str = "") -> ListRef:
    """The message about a list, whose compiled file has this name."""
    return spec(ListRef, record, revision=revision, file=file)


def pool_spec(record: Pool, revision: int, seal: SecretBox) -> PoolSpec:
    """The message about a pool, with its secrets. Raises `SecretBoxError`."""
    check, retry = record.check, record.retry
    upstreams = UpstreamsSpec(
        entries=tuple(upstream_spec(each, seal, tuple(each.labels.items())) for each in record.upstreams),
        policy=record.policy,
        check_enabled=check.enabled,
        check_interval=float(check.interval),
        check_timeout=float(check.timeout),
        check_url=check.url,
        check_expect=check.expect,
        fetched=record.source is not None,
    )
    return spec(
        PoolSpec,
        record,
        revision=revision,
        upstreams=upstreams,
        attempts=retry.attempts,
        retry_connect=retry.connect,
        retry_statuses=tuple(retry.statuses),
        cooldown=tuple((kind, float(span[0]), float(span[1])) for kind, span in record.cooldown),
    )


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
        set_headers=tuple(action.headers.set.items()),
        remove_headers=tuple(action.headers.remove),
        limits=spec(LimitsSpec, action.limits),
    )
