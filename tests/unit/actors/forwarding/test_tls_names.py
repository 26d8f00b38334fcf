"""What is in force for the name in the TLS handshake of a tunnel, and what a handshake is judged to be."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import pytest

from actors.bus.messages.specs import AccessSpec, AccountSpec, EgressSpec, PolicySpec, RuleSpec
from actors.forwarding.access.policy import AccessPolicy, Decision
from actors.forwarding.access.rules import CREDENTIAL, AccessRules, OwnRules, own_rules
from actors.forwarding.access.tls_names import Judgement, TlsCheck, check_in_force, decide_name, refusal
from actors.forwarding.policies.compiled import CompiledPolicy, compile_policy
from actors.forwarding.policies.facts import Facts
from actors.forwarding.policies.judge import Judge, PolicyVerdict
from actors.forwarding.protocols.http.targets import Authority, authority_of_name
from actors.net.egress_guard import EgressGuard
from tests.kit.tables import table
from tests.unit.actors.forwarding.rule_lists import LISTS

PEER, ELSEWHERE = "93.184.215.14", "8.8.8.8"


def target(host: str, port: int = 443) -> Authority:
    return authority_of_name(host.encode(), port)


def rules(*allow: str, deny: tuple[str, ...] = (), mode: str = "enforce") -> AccessRules:
    return AccessRules(AccessSpec(mode=mode, allow_destinations=allow, deny_destinations=deny), lists=LISTS)


def account(*allow: str, deny: tuple[str, ...] = ()) -> OwnRules:
    return own_rules(_spec(*allow, deny=deny), None, LISTS)


def _spec(*allow: str, deny: tuple[str, ...] = ()) -> AccountSpec:
    return AccountSpec("acc_1", "alice", "hash", allow_destinations=allow, deny_destinations=deny)


def policy(*specs: RuleSpec, name: str = "p") -> CompiledPolicy:
    return compile_policy(PolicySpec(f"policy_{name}", name, specs), LISTS)


def judge(host: str, *policies: CompiledPolicy) -> Judge:
    of = target(host)
    return Judge(policies, Facts(of.host, of.port, of.literal, "192.0.2.1", 0.0))


def verdict(host: str, *specs: RuleSpec, address: str = PEER) -> PolicyVerdict:
    return judge(host, policy(*specs)).by_address(address)


def in_force(
    tls_name: str = "auto",
    access: AccessRules | None = None,
    own: OwnRules = (),
    *specs: RuleSpec,
    host: str = "a.example",
) -> TlsCheck:
    judged = verdict(host, *specs) if specs else None
    return check_in_force(tls_name, access or rules(), own, judged, target(host))


# --- what is in force ---


@pytest.mark.parametrize("tls_name", ["off", "record", "match", "allowed"])
def test_what_the_proxy_says_is_in_force_whatever_lets_the_request_through(tls_name: str) -> None:
    assert in_force(tls_name) == TlsCheck(tls_name, "tls_name")
    assert in_force(tls_name, rules("a.example"), account("a.example")) == TlsCheck(tls_name, "tls_name")


RECORD = TlsCheck("record", "tls_name")


@table(
    ("allow", "host", "by"),
    [
        ((), "a.example", None),
        (("a.example",), "a.example", "[0] a.example"),
        (("a.example",), "A.Example.", "[0] a.example"),
        (("A.Example.",), "a.example", "[0] A.Example."),
        (("a.example:443",), "a.example", "[0] a.example:443"),
        (("*", "b.example", "*.example"), "a.example", "[2] *.example"),
        (("*.b.example", "*.example"), "a.b.example", "[0] *.b.example"),
        (("list:work",), "a.work.example", "[0] list:work (work.example)"),
        (("list:work",), "a.example", None),
        (("93.184.215.0/24", "a.example"), "a.example", "[1] a.example"),
        (("*", "a.example:80"), "a.example", None),
        (("*",), "a.example", None),
        (("*:443",), "a.example", None),
        ((":443",), "a.example", None),
        (("93.184.215.0/24",), "a.example", None),
        (("list:lan",), "a.example", None),
        (("geo:world:country=DE",), "a.example", None),
        (("93.184.215.14",), "93.184.215.14", None),
        (("*", "a.example"), "93.184.215.14", None),
    ],
)
def test_auto_is_match_where_an_entry_that_names_hosts_lets_the_request_through(
    allow: tuple[str, ...], host: str, by: str | None
) -> None:
    def found(owner: str) -> TlsCheck:
        return RECORD if by is None else TlsCheck("match", f"{owner}.allow_destinations{by}")

    credential = own_rules(None, _spec(*allow), LISTS)
    assert in_force(access=rules(*allow), host=host) == found("access")
    assert in_force(own=account(*allow), host=host) == found("account")
    assert in_force(own=account("*") + credential, host=host) == found(CREDENTIAL)


def test_entries_that_deny_name_nothing() -> None:
    assert in_force(access=rules(deny=("b.example",)), own=account(deny=("*.c.example",))) == RECORD


NAMES = RuleSpec("names", destinations=("93.184.215.0/24", "*.example"), use="direct")


@table(
    ("specs", "host", "found"),
    [
        ((NAMES,), "a.example", TlsCheck("match", "policy p[0] names")),
        ((NAMES,), "a.test", RECORD),  # by the network
        ((NAMES,), PEER, RECORD),
        ((RuleSpec("b", destinations=("b.example",)), NAMES), "a.example", TlsCheck("match", "policy p[1] names")),
        ((RuleSpec(destinations=("a.example",)),), "a.example", TlsCheck("match", "policy p[0]")),
        ((RuleSpec("l", destinations=("list:work",)),), "a.work.example", TlsCheck("match", "policy p[0] l")),
        ((RuleSpec("l", destinations=("list:work:80", "*")),), "a.work.example", RECORD),
        ((RuleSpec("lan", destinations=("list:lan", "*:443")),), "a.example", RECORD),
        ((RuleSpec("any", use="direct"),), "a.example", RECORD),
        ((RuleSpec("ports", destinations=(":443",), use="pool:far"),), "a.example", RECORD),
        ((RuleSpec("tried", destinations=("a.example",), report=True),), "a.example", RECORD),
        ((RuleSpec("tried", report=True, tls_name="match"),), "a.example", RECORD),
    ],
)
def test_auto_is_match_where_a_rule_that_applies_names_the_host(
    specs: tuple[RuleSpec, ...], host: str, found: TlsCheck
) -> None:
    assert in_force("auto", None, (), *specs, host=host) == found


@pytest.mark.parametrize("tls_name", ["off", "record", "match", "allowed"])
def test_what_a_rule_says_wins_over_the_proxy(tls_name: str) -> None:
    rule = RuleSpec("says", tls_name=tls_name)
    for of_proxy in ("auto", "off", "match"):
        found = in_force(of_proxy, rules("a.example", mode="report"), account("a.example"), rule)
        assert found == TlsCheck(tls_name, "policy p[0] says")


def test_the_first_rule_that_says_something_wins() -> None:
    says_nothing, first, second = policy(RuleSpec("x")), policy(RuleSpec("f", tls_name="off"), name="f"), NAMES
    found = judge("a.example", says_nothing, first, policy(second, name="s")).by_name()
    assert check_in_force("match", rules(), (), found, target("a.example")) == TlsCheck("off", "policy f[0] f")


def test_auto_in_a_rule_is_that_of_a_proxy() -> None:
    rule = RuleSpec("says", tls_name="auto")
    assert in_force("off", None, (), rule) == TlsCheck("record", "policy p[0] says")
    assert in_force("off", None, account("*.example"), rule).entry == "account.allow_destinations[0] *.example"
    assert in_force("off", rules("*.example"), (), rule).entry == "access.allow_destinations[0] *.example"


def test_entries_of_the_proxy_that_a_rule_passes_over_let_nothing_through() -> None:
    assert in_force("auto", rules("a.example"), (), RuleSpec("way", use="direct")) == RECORD
    assert in_force("auto", rules("a.example"), (), RuleSpec("none")).check == "match"


def test_in_report_mode_what_the_proxy_says_is_reported_and_what_others_say_refused() -> None:
    report = rules("a.example", mode="report")
    assert in_force("auto", report) == TlsCheck("match", "access.allow_destinations[0] a.example", reported=True)
    assert in_force("match", report) == TlsCheck("match", "tls_name", reported=True)
    assert in_force("allowed", report) == TlsCheck("allowed", "tls_name", reported=True)
    assert in_force("record", report) == TlsCheck("record", "tls_name")
    of_account = TlsCheck("match", "account.allow_destinations[0] a.example")
    assert in_force("auto", report, account("a.example")) == of_account
    assert in_force("match", report, account("a.example")) == of_account
    assert in_force("allowed", report, account("a.example")) == of_account._replace(check="allowed")
    assert in_force("allowed", report, account("8.8.0.0/16")).reported
    assert in_force("auto", report, (), NAMES) == TlsCheck("match", "policy p[0] names")


# --- what a handshake is judged to be ---


class World(NamedTuple):
    """All that judged a request."""

    access: AccessRules
    own: OwnRules = ()
    policies: tuple[CompiledPolicy, ...] = ()
    address: str | None = PEER
    through_upstream: bool = False

    def decide(self, requested: str, named: Authority) -> Decision:
        guard = AccessPolicy(EgressGuard(EgressSpec("public_only", (), ())), self.access)
        about = judge(requested, *self.policies).by_address(self.address or PEER) if self.policies else None
        asked = judge(named.host, *self.policies) if self.policies else None
        return decide_name(guard, self.own, asked, named, self.address, self.through_upstream, about)


def hello(
    check: str, requested: str, name: str | None, world: World | None = None, otherwise: str = "no_name", **of: Any
) -> Judgement:
    judging = world or World(rules())
    in_force = TlsCheck(check, "tls_name", **of)
    return refusal(in_force, target(requested), name, otherwise, lambda named: judging.decide(requested, named))


def kind(judgement: Judgement) -> tuple[str, bool]:
    """With whether it is refused or reported."""
    return judgement.kind, judgement.failure is not None


@table(
    ("requested", "name", "refused"),
    [
        ("a.example", "a.example", None),
        ("A.Example.", "a.example", None),
        ("a.example", "a.EXAMPLE.", None),
        ("a.example", "a.example..", "mismatch"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example", None),
        ("a.example", "b.example", "mismatch"),
        ("a.example", "a.example.evil.test", "mismatch"),
        ("a.example", PEER, "mismatch"),
        ("a.example", "localhost", "mismatch"),
        (PEER, "b.example", None),  # judged as for `allowed`, and nothing denies it
        (PEER, PEER, None),
        (PEER, ELSEWHERE, "mismatch"),
        ("2606:2800::1", "2606:2800:0::1", None),
        ("2606:2800::1", "2606:2800::2", "mismatch"),
        (PEER, "127.1", "mismatch"),
        (PEER, "*.example", "mismatch"),
        (PEER, "bücher.example", "mismatch"),
    ],
)
def test_a_name_under_match_is_the_host_that_was_requested(requested: str, name: str, refused: str | None) -> None:
    assert kind(hello("match", requested, name)) == (refused or "match", refused is not None)


@table("otherwise", ["no_name", "not_tls", "malformed", "timeout"])
@table("requested", ["a.example", PEER])
def test_without_a_name_it_is_refused(otherwise: str, requested: str) -> None:
    for check in ("match", "allowed"):
        failure = hello(check, requested, None, otherwise=otherwise).failure
        assert failure is not None
        assert (failure.reason, failure.entry) == ("tls_name_denied", "tls_name")
        assert failure.detail.startswith(f"{otherwise}: ")
        assert requested in failure.detail
    assert hello("record", requested, None, otherwise=otherwise) == Judgement(otherwise)


def test_nothing_is_refused_under_record_and_the_kind_is_that_of_match() -> None:
    assert hello("record", "a.example", "a.example") == Judgement("match")
    assert hello("record", "a.example", "b.example") == Judgement("mismatch")
    only_network = World(rules("8.8.0.0/16"))
    assert hello("record", PEER, "b.example", only_network) == Judgement("mismatch")


def test_a_refusal_has_both_names_and_what_wants_the_check() -> None:
    failure = hello("match", "good.example", "evil.example").failure
    assert failure is not None
    assert failure.detail == "mismatch: the handshake names evil.example, and good.example was requested"
    assert (failure.status, failure.rule, failure.entry) == (403, "tls_name_denied", "tls_name")


B = "b.example"
DENY_B = RuleSpec("no", destinations=(B,), use="deny")
NAMES_B = RuleSpec("yes", destinations=("a.example", B), use="direct")


@table(
    ("world", "allowed"),
    [
        (World(rules()), True),
        (World(rules("*.example")), True),
        (World(rules("a.example")), False),
        (World(rules("b.example:80", "a.example")), False),  # for that port
        (World(rules("93.184.215.0/24")), True),  # its address is the origin's
        (World(rules("93.184.215.0/24"), address=ELSEWHERE), False),
        (World(rules(deny=(B,))), False),
        (World(rules(), account("a.example", B)), True),
        (World(rules(), account("a.example")), False),
        (World(rules(), account(deny=(B,))), False),
        (World(rules(), own_rules(None, _spec("a.example"))), False),
        (World(rules(), own_rules(_spec("*.example"), _spec(deny=(B,)))), False),
        (World(rules(), (), (policy(DENY_B),)), False),
        (World(rules(), (), (policy(NAMES_B, RuleSpec("else", use="deny")),)), True),
        (World(rules("a.example"), (), (policy(NAMES_B),)), True),  # the rule passes over the access rules
        (World(rules(), (), (policy(NAMES_B), policy(DENY_B))), True),  # the first policy has decided
        (World(rules(), (), (policy(RuleSpec("far", destinations=(B,), use="pool:far")),)), False),  # another way
        (World(rules(), (), (policy(RuleSpec("net", destinations=("8.8.8.0/24",), use="deny")),)), True),
        (World(rules(), (), (policy(RuleSpec("net", destinations=("93.184.0.0/16",), use="deny")),)), False),
        (World(rules("a.example", "93.184.215.0/24"), address=None, through_upstream=True), False),
        (World(rules("a.example", B), address=None, through_upstream=True), True),
        (World(rules(), account("a.example"), address=None, through_upstream=True), False),
        (World(rules(), (), (policy(DENY_B),), None, True), False),
        (World(rules(), (), (policy(RuleSpec("net", destinations=("8.8.8.0/24",), use="deny")),), PEER, True), True),
        (World(rules(), (), (policy(RuleSpec("net", destinations=("8.8.8.0/24",), use="deny")),), None, True), False),
    ],
)
def test_another_name_under_allowed_is_judged_by_all_that_judged_the_request(world: World, allowed: bool) -> None:
    judged = hello("allowed", "a.example", B, world)
    assert kind(judged) == (("match", False) if allowed else ("mismatch", True))
    assert not judged.reported
    assert kind(hello("allowed", "a.example", "a.example", world)) == ("match", False)
    assert kind(hello("match", "a.example", B, world)) == ("mismatch", True)


def test_the_guard_judges_a_name_of_this_machine() -> None:
    for through_upstream in (False, True):
        world = World(rules(), address="127.0.0.1", through_upstream=through_upstream)
        assert kind(hello("allowed", "a.example", "localhost", world)) == ("mismatch", True)


def test_in_report_mode_a_name_that_only_the_proxy_denies_is_reported() -> None:
    report = rules("a.example", mode="report")
    assert hello("allowed", "a.example", B, World(report), reported=True).reported
    assert hello("allowed", "a.example", B, World(report)).reported
    assert hello("allowed", "a.example", None, World(report), reported=True).reported
    assert not hello("allowed", "a.example", B, World(report, account("a.example")), reported=True).reported
    assert not hello("allowed", "a.example", None, World(report, account("a.example"))).reported
    assert hello("allowed", "a.example", B, World(report, account("a.example", B))).reported
    assert hello("match", "a.example", B, World(report), reported=True).reported


def test_where_nothing_names_hosts_the_check_costs_next_to_nothing() -> None:
    access, asked = rules(), target("a.example")
    began = time.process_time()
    for _ in range(10_000):
        check_in_force("auto", access, (), None, asked)
    assert time.process_time() - began < 10_000 * 5e-6
