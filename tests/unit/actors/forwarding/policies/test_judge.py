"""The policies of a request in their order, and what a refusal says."""

from __future__ import annotations

from typing import Any

import pytest

from actors.bus.messages.specs import PolicySpec, RuleSpec
from actors.forwarding.explain import explained_rules
from actors.forwarding.policies.compiled import CompiledPolicy, compile_policy
from actors.forwarding.policies.facts import Facts
from actors.forwarding.policies.judge import Judge, PolicySet
from actors.forwarding.protocols.http.error_body import error_response
from tests.kit.tables import table
from tests.unit.actors.forwarding.policies.plain_model import NO_LISTS


def policy(name: str, *rules: RuleSpec) -> CompiledPolicy:
    return compile_policy(PolicySpec(f"policy_{name}", name, rules), NO_LISTS)


def facts(host: str = "a.example", **given: Any) -> Facts:
    return Facts(**{"port": 443, "literal": False, "client_ip": "192.0.2.1", "now": 0.0, "host": host, **given})


def judge(*policies: CompiledPolicy, **given: Any) -> Judge:
    return Judge(policies, facts(**given))


DENY, DIRECT, POOL = RuleSpec("no", use="deny"), RuleSpec("direct", use="direct"), RuleSpec("far", use="pool:paris")


def test_the_plan_is_asked_before_the_proxy() -> None:
    verdict = judge(policy("plan", POOL), policy("proxy", DENY)).by_name()
    assert verdict is not None
    assert (verdict.use, verdict.pool, verdict.failure, verdict.decided) == ("pool:paris", "paris", None, True)


@table(
    "first, of_account, expected",
    [
        ("", ("own", "plan", "own"), ["own", "plan", "proxy"]),
        ("all", ("own",), ["all", "own", "proxy"]),
        ("all", (), ["all", "proxy"]),
        ("proxy", ("own",), ["proxy", "own"]),
    ],
)
def test_that_of_all_proxies_and_those_of_an_account_come_before_that_of_the_proxy_each_once(
    first: str, of_account: tuple[str, ...], expected: list[str]
) -> None:
    known = {name: (PolicySpec(name, name), policy(name)) for name in ("all", "own", "plan", "proxy")}
    assert [each.name for each in PolicySet(known, (first, "proxy")).applying(of_account)] == expected


def test_a_policy_of_all_proxies_that_is_not_there_refuses_everything() -> None:
    verdict = PolicySet({}, ("gone", "")).judge(facts(), (), "direct").by_name()
    assert verdict is not None
    assert (verdict.use, verdict.applied[0].policy) == ("deny", "gone")


def test_a_draft_of_the_policy_of_all_proxies_takes_its_place() -> None:
    known = {name: (PolicySpec(name, name), policy(name)) for name in ("all", "proxy")}
    tried = PolicySet(known, ("all", "proxy")).with_draft(PolicySpec("", "all", (DENY,)), (), NO_LISTS)
    assert [(each.name, len(each.rules)) for each in tried.applying(())] == [("all", 1), ("proxy", 0)]


def test_a_rule_without_a_way_leaves_the_decision_to_the_next_policy() -> None:
    header = RuleSpec("mark", set_headers=(("X-A", "1"),))
    verdict = judge(policy("plan", header, DIRECT), policy("proxy", DENY), method="GET").by_name()
    assert verdict is not None
    assert [each.entry for each in verdict.applied] == ["policy plan[0] mark", "policy proxy[0] no"]
    assert verdict.failure is not None


def test_without_a_matching_rule_the_access_rules_decide() -> None:
    verdict = judge(policy("proxy", RuleSpec("b", destinations=("b.example",), use="deny"))).by_name()
    assert verdict is not None
    assert (verdict.decided, verdict.failure, verdict.counted) == (False, None, ())


def test_a_refusal_names_policy_and_rule_and_has_the_reason_of_the_operator() -> None:
    verdict = judge(policy("proxy", RuleSpec('docs "only"', use="deny", reason="ask IT\r\nX-Injected: 1"))).by_name()
    assert verdict is not None
    failure = verdict.failure
    assert failure is not None
    assert (failure.status, failure.reason, failure.entry) == (403, "policy_denied", 'policy proxy[0] docs "only"')
    head = error_response(failure, keep_alive=True).partition(b"\r\n\r\n")[0]
    assert rb'(policy proxy, rule \"docs \"only\"\")"; rule=policy_denied' in head
    assert b"\r\nX-Injected" not in head


def test_rules_in_report_mode_decide_nothing_and_are_known() -> None:
    report = RuleSpec("tried", use="deny", report=True)
    verdict = judge(policy("proxy", RuleSpec("way", use="direct", report=True), report, DIRECT)).by_name()
    assert verdict is not None
    assert verdict.use == "direct"
    assert verdict.reported is not None
    assert verdict.reported.rule.spec.name == "tried"
    assert [(each.rule.spec.name, only) for each, only in verdict.counted] == [
        ("way", True),
        ("tried", True),
        ("direct", False),
    ]


def test_a_rule_for_networks_waits_for_the_address() -> None:
    inside = RuleSpec("inside", destinations=("10.0.0.0/8",), use="deny")
    asked = judge(policy("proxy", inside, DIRECT))
    assert asked.by_name() is None
    assert asked.by_address("10.1.2.3").use == "deny"
    assert asked.by_address("192.0.2.1").use == "direct"
    assert judge(policy("proxy", DIRECT, inside)).by_name() is not None


def test_an_address_in_an_ipv6_one_is_refused_and_never_allowed() -> None:
    def use(rule: RuleSpec, address: str) -> str:
        return judge(policy("proxy", rule)).by_address(address).use

    networks = ("192.0.2.0/24",)
    for address in ("64:ff9b::c000:207", "2002:c000:207::1", "::ffff:192.0.2.7"):
        assert use(RuleSpec(destinations=networks, use="deny"), address) == "deny"
    assert use(RuleSpec(destinations=networks, use="direct"), "64:ff9b::c000:207") == ""
    assert use(RuleSpec(destinations=networks, use="direct"), "::ffff:192.0.2.7") == "direct"


@pytest.mark.parametrize("host", ["A.EXAMPLE", "a.example.", "A.example."])
def test_letters_and_a_dot_at_the_end_make_no_difference(host: str) -> None:
    verdict = judge(policy("proxy", RuleSpec(destinations=("a.example",), use="deny")), host=host).by_name()
    assert verdict is not None
    assert verdict.use == "deny"


def test_a_target_by_address_is_none_of_a_name() -> None:
    rules = RuleSpec(destinations=("a.example",), use="direct"), DENY
    verdict = judge(policy("proxy", *rules), host="192.0.2.7", literal=True).by_name()
    assert verdict is not None
    assert verdict.use == "deny"


@table("path", ["/a%2f..%2fadmin", "//admin", "/x/..;/admin", "/%2e%2e/admin", "/admin;x", "/x/../admin"])
def test_no_spelling_of_a_path_gets_past_a_refusal_or_into_an_exception(path: str) -> None:
    refused = policy("proxy", RuleSpec(paths=("/admin*",), use="deny"), DIRECT)
    excepted = policy("proxy", RuleSpec(paths=("/public/*",), use="direct"), DENY)
    for each in (refused, excepted):
        for method in ("GET", "get"):
            verdict = judge(each, method=method, path=path + "?/public/").by_name()
            assert verdict is not None
            assert verdict.use == "deny"


def test_a_method_in_small_letters_gets_past_no_refusal_and_into_no_exception() -> None:
    refused, excepted = RuleSpec(methods=("POST",), use="deny"), RuleSpec(methods=("GET",), use="direct")
    for rules in ((refused, DIRECT), (excepted, DENY)):
        verdict = judge(policy("proxy", *rules), method="post" if refused in rules else "get").by_name()
        assert verdict is not None
        assert verdict.use == "deny"


def test_a_rule_ends_at_its_moment_and_the_next_decides() -> None:
    policies = policy("proxy", RuleSpec("hour", use="deny", until=100.5), DIRECT)

    def use(now: float) -> str:
        verdict = judge(policies, now=now).by_name()
        assert verdict is not None
        return verdict.use

    assert [use(now) for now in (0.0, 100.4, 100.5, 119.0, 4000.0)] == ["deny", "deny", *["direct"] * 3]
    ended = explained_rules([policies], facts(now=101.0), None)[0]
    assert (ended.matches, ended.why) == ("no", "until: the rule has ended")


@table("proxies, expected", [(("office",), "deny"), (("tag:berlin", "x"), "deny"), (("berlin", "lab"), "")])
def test_a_rule_for_some_proxies_holds_on_these_alone(proxies: tuple[str, ...], expected: str) -> None:
    rules = (RuleSpec("some", proxies=proxies, use="deny"),)
    compiled = compile_policy(PolicySpec("p", "p", rules), NO_LISTS, frozenset({"prx_1", "office", "tag:berlin"}))
    verdict = judge(compiled).by_name()
    assert verdict is not None
    assert verdict.use == expected
    explained = explained_rules([compiled], facts(), None)[0]
    assert explained.why == ("all of it matches" if expected else "proxies: this one is none of them")


def test_a_schedule_follows_summer_time() -> None:
    night = ("Europe/Berlin", ((tuple(range(7)), 120, 180),))  # 02:00 to 03:00
    policies = policy("proxy", RuleSpec(schedule=night, use="deny"))

    def use(now: float) -> str:
        verdict = judge(policies, now=now).by_name()
        assert verdict is not None
        return verdict.use

    spring, autumn = 1_774_746_000, 1_792_890_000  # 2026-03-29 and 2026-10-25, 01:00 UTC
    assert [use(spring - 1), use(spring), use(spring + 60)] == ["", "", ""]  # 02:00 does not exist on that day
    assert [use(autumn - 3601), use(autumn - 3600), use(autumn), use(autumn + 3599), use(autumn + 3600)] == [
        "",
        "deny",
        "deny",
        "deny",
        "",
    ]


def test_every_rule_is_explained() -> None:
    rules = (
        RuleSpec("person", accounts=("alice",), clients=("10.0.0.0/8",), use="deny"),
        RuleSpec("docs", methods=("GET",), use="direct"),
        RuleSpec("nets", destinations=("10.0.0.0/8",), use="deny", report=True),
        RuleSpec("all", use="deny"),
    )
    each = explained_rules([policy("proxy", *rules)], facts(), None)
    assert [(rule.name, rule.matches, rule.why) for rule in each] == [
        ("person", "no", "accounts: the request is of no account; clients: 192.0.2.1 is in none of them"),
        ("docs", "no", "the rule is about plain HTTP, and this is a tunnel"),
        ("nets", "unknown", "destinations: the address of the target decides"),
        ("all", "yes", "all of it matches"),
    ]
