"""The order of decisions: which of several stages that would refuse decides, and what is counted by that."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.specs import AccessSpec, AccountSpec, EgressSpec, LimitsSpec, PolicySpec, RuleSpec
from actors.forwarding.access.policy import Decision
from actors.forwarding.access.rules import OwnRules, own_rules
from actors.forwarding.access.username_parameters import ParameterNames, Parameters
from actors.forwarding.context import ForwardingContext
from actors.forwarding.decision import (
    ANONYMOUS,
    ClientIdentity,
    Subject,
    decide_by_addresses,
    decide_by_name,
    decide_other_name,
    refused_before_target,
)
from actors.forwarding.fleet_objects import FleetObjects
from actors.forwarding.net.dialer import decide_addresses
from actors.forwarding.net.source_address import plain_source
from actors.forwarding.policies.judge import Judge
from actors.forwarding.policies.masks import at_once
from actors.forwarding.protocols.http.targets import Authority, parse_authority
from tests.kit.clocks import Clock
from tests.kit.forwarding_rig import spec
from tests.kit.tables import table

CLIENT, HASH = "192.0.2.1", b"hash"
PUBLIC, OTHER, PRIVATE = "93.184.215.14", "8.8.8.8", "10.0.0.1"
EGRESS = EgressSpec("public_only", (), ())
ANN = ClientIdentity("ann", HASH)
DENY_A = AccessSpec(deny_destinations=("a.example",))


def target(written: str = "a.example:443") -> Authority:
    return parse_authority(written.encode(), None)


def stage(decision: Decision | None) -> str:
    """Which stage refuses or, behind a plus, allows; empty when it is not decided yet."""
    if decision is None:
        return ""
    return decision.stage if decision.failure is not None else f"+{decision.stage}"


class World:
    """A proxy, with the user ann in an account of its own where it wants credentials."""

    def __init__(self) -> None:
        self.loop = Loop(Clock(100.0))
        self.context = ForwardingContext(self.loop, lambda _row: None, 10, 10.0)

    def configure(self, *rules: RuleSpec, account: dict[str, Any] | None = None, **changes: Any) -> None:
        """`account` has what the account says beside its name and password; None: no credentials are wanted."""
        if account is not None:
            accounts = (AccountSpec("acc_1", "ann", HASH.decode(), **account),)
            changes = {"accounts": accounts, "auth_required": True, **changes}
        policies = (PolicySpec("policy_1", "office", rules),) if rules else ()
        proxy = spec(1, policy="office" if rules else "", **changes)
        objects = FleetObjects(policies=policies)
        self.context.configure(proxy, EGRESS, objects, at_once(self.context.compiling(proxy, objects)))

    def judge(self, host: str = "a.example:443") -> Judge:
        found = Subject(CLIENT, 3128, "", None).judge(self.context, target(host))
        assert found is not None
        return found

    def by_name(self, judge: Judge | None, own: OwnRules = (), host: str = "a.example:443") -> str:
        return stage(decide_by_name(self.context, target(host), own, judge))

    def by_addresses(self, judge: Judge, *addresses: str) -> str:
        return stage(decide_by_addresses(self.context, target(), (), judge, addresses))


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.loop.close()


def own(*deny: str) -> OwnRules:
    return own_rules(AccountSpec("acc_1", "ann", None, deny_destinations=deny), None)


def test_a_rule_for_some_proxies_follows_what_these_are_called(world: World) -> None:
    rule = RuleSpec("berlin", proxies=("tag:berlin", "office"), use="deny")
    for changes, expected in (({}, ""), ({"tags": ("berlin",)}, "policy"), ({}, ""), ({"name": "office"}, "policy")):
        world.configure(rule, **changes)
        assert world.by_name(world.judge()) == expected


# --- up to the target ---


def test_the_first_stage_that_refuses_decides(world: World) -> None:
    def decide(who: ClientIdentity) -> str:
        return stage(refused_before_target(world.context, who, CLIENT))

    access = AccessSpec(deny_clients=(CLIENT,))
    world.configure(account={"enabled": False}, access=access)
    assert decide(ANONYMOUS) == "client"
    world.configure(account={"enabled": False})
    assert decide(ANONYMOUS) == "user"
    assert decide(ClientIdentity("ann", b"another hash")) == "user"
    assert decide(ANN) == "account"
    world.configure(account={})
    assert decide(ANN) == ""
    world.configure()
    assert decide(ANONYMOUS) == ""


def test_unknown_parameters_are_refused_when_the_user_is_known(world: World) -> None:
    world.configure(account={})
    world.context.names = ParameterNames("-", reject_unknown=True)
    parameters = Parameters(unknown=("colour=blue",))
    unknown = refused_before_target(world.context, ClientIdentity(parameters=parameters), CLIENT)
    known = refused_before_target(world.context, ClientIdentity("ann", HASH, parameters=parameters), CLIENT)
    assert (unknown and unknown.rule) == ""
    assert known is not None
    assert known.rule.startswith("username_params.reject_unknown: ")


def test_another_time_is_asked_about_without_an_effect_on_usage(world: World) -> None:
    """At night the account is closed, in a year it has ended, and until then its quota is used up this month."""
    now, hour = time.time(), 3600.0
    today = datetime.fromtimestamp(now, UTC)
    minutes = today.hour * 60 + today.minute
    schedule = ("UTC", ((tuple(range(7)), (minutes - 60) % 1440, (minutes + 60) % 1440),))
    account = {"schedule": schedule, "expires_at": now + 365 * 24 * hour, "quota": 1000, "period": "month"}
    world.configure(RuleSpec("for now", until=now + 48 * hour, use="deny"), account=account)

    def reason(at: float) -> str:
        decision = refused_before_target(world.context, ANN, CLIENT, at=at)
        return "" if decision is None else decision.reason

    assert [reason(at) for at in (0.0, now + 12 * hour, now + 24 * hour)] == ["", "outside_schedule", ""]
    assert reason(now + 400 * 24 * hour) == "account_expired"
    spent = world.context.limits.account("ann")
    assert spent is not None
    spent.count(True, 2000)
    assert [reason(at) for at in (now + 90 * 24 * hour, 0.0)] == ["account_quota_reached"] * 2
    judges = [Subject(CLIENT, 3128, "", None, at=at).judge(world.context, target()) for at in (0.0, now + 49 * hour)]
    assert [world.by_name(judge) for judge in judges] == ["policy", ""]


def test_what_is_only_asked_about_does_not_count(world: World) -> None:
    world.configure(account={"limits": LimitsSpec(requests_per_minute=1)})
    for _ in range(3):
        assert refused_before_target(world.context, ANN, CLIENT) is None
    meter = world.context.limits.meter()
    connection: Any = SimpleNamespace(client_ip=CLIENT, metered=lambda: meter)
    assert refused_before_target(world.context, ANN, CLIENT, connection) is None
    meter.exchange_over()
    again = refused_before_target(world.context, ANN, CLIENT, connection, meter)
    assert (again and again.reason) == "account_request_limit"
    assert refused_before_target(world.context, ANN, CLIENT) is None, "rates depend on the moment"


# --- the target ---


def test_own_rules_come_before_policies_and_these_before_access_rules(world: World) -> None:
    world.configure(RuleSpec("no", use="deny"), access=DENY_A)
    assert world.by_name(world.judge(), own("a.example")) == "name"
    assert world.by_name(world.judge()) == "policy"
    world.configure(RuleSpec("marks", tls_name="off"), access=DENY_A)
    assert world.by_name(world.judge()) == "name"
    world.configure(RuleSpec("way", use="direct"), access=DENY_A)
    assert world.by_name(world.judge()) == "", "a rule that says the way passes over them"
    world.configure(access=DENY_A)
    assert world.by_name(None) == "name"
    assert world.by_name(None, host="b.example:443") == ""


def test_while_the_addresses_decide_about_the_way_nothing_behind_policies_is_asked(world: World) -> None:
    world.configure(RuleSpec("net", destinations=("8.8.8.0/24",), use="deny"), access=DENY_A)
    judge = world.judge()
    assert (world.by_name(judge), judge.settled) == ("", None)
    assert world.by_name(judge, own("a.example")) == "name"
    assert (world.by_addresses(judge, PUBLIC), judge.addresses) == ("", (PUBLIC,))
    access, source = world.context.policy.access.for_request((), judge), plain_source("")
    assert stage(decide_addresses(access, target(), judge.addresses, source).outcome(source)) == "address"


@table(
    ("addresses", "decides", "goes_to"),
    [
        ((PUBLIC,), "", (PUBLIC,)),
        ((OTHER,), "policy", ()),
        ((OTHER, PUBLIC), "", (PUBLIC,)),
        ((PRIVATE, OTHER), "policy", ()),  # what the guard refuses says nothing about the way
    ],
)
def test_the_verdict_is_that_at_the_first_address_that_may_be_connected_to(
    addresses: tuple[str, ...], decides: str, goes_to: tuple[str, ...]
) -> None:
    world = World()
    world.configure(RuleSpec("net", destinations=("8.8.8.0/24",), use="deny"))
    judge = world.judge()
    assert (world.by_addresses(judge, *addresses), judge.addresses) == (decides, goes_to)
    world.loop.close()


def test_an_upstream_gets_no_name_of_which_an_address_is_refused(world: World) -> None:
    far = RuleSpec("far", use="pool:paris")
    world.configure(RuleSpec("net", destinations=("8.8.8.0/24",), use="deny"), far)
    assert world.by_addresses(world.judge(), PUBLIC, OTHER) == "policy"
    assert world.by_addresses(world.judge(), PUBLIC) == "+policy"


# --- addresses ---


@table(
    ("addresses", "own_address", "decides", "usable"),
    [
        ((PRIVATE, PUBLIC), "", "+address", [PUBLIC]),
        ((PRIVATE, OTHER), "", "egress_guard", []),
        ((OTHER, PRIVATE), "", "address", []),
        (("2606:2800::1",), "192.0.2.9", "source", []),
        ((OTHER, "2606:2800::1"), "192.0.2.9", "address", []),
        ((), "", "resolve", []),
    ],
)
def test_an_address_is_used_that_all_allow_and_the_first_refusal_decides_without_one(
    addresses: tuple[str, ...], own_address: str, decides: str, usable: list[str]
) -> None:
    world, source = World(), plain_source(own_address)
    world.configure(access=AccessSpec(deny_destinations=("8.8.8.0/24",)))
    found = decide_addresses(world.context.policy.access, target(), addresses, source)
    assert (stage(found.outcome(source)), found.usable) == (decides, usable)
    world.loop.close()


# --- another name in the handshake ---


def test_another_name_is_judged_by_all_that_judged_the_request(world: World) -> None:
    def decide(address: str | None, rules: OwnRules = ()) -> str:
        judge = world.judge()
        world.by_name(judge)
        subject = Subject(CLIENT, 3128, "", None)
        return stage(decide_other_name(world.context, subject, target("b.example:443"), address, rules, judge))

    world.configure(RuleSpec("no", destinations=("b.example",), use="deny"))
    assert decide(PUBLIC) == "policy"
    assert decide(PUBLIC, own("b.example")) == "address"
    assert decide(PRIVATE) == "egress_guard"
    world.configure(RuleSpec("far", destinations=("b.example",), use="pool:paris"))
    assert decide(PUBLIC) == "policy", "it would go another way"
    assert decide(None) == "policy"
