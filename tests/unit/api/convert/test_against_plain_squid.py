"""Converted policies decide as squid does; where the report says that they can't, they refuse what squid might."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from actors.forwarding.fleet_objects import NO_LISTS
from actors.forwarding.policies.compiled import CompiledPolicy, compile_policy
from actors.forwarding.policies.facts import Facts
from api.import_export.convert import Converted, converted
from api.import_export.convert.statements import Effect
from api.objects.named.policy_kind import policy_spec
from config.model.shared_objects.policies import PolicyCreate, new_policy
from tests.unit.api.convert.plain_squid import Acl, Request, Rule, Ways, allows, way

MONDAY = datetime(2026, 6, 1, tzinfo=UTC)
HOSTS = {
    "a.example": "203.0.113.1",
    "b.a.example": "198.51.100.7",
    "c.example": "203.0.113.130",
    "xa.example": "198.51.100.9",
}
CLEAR = (
    Acl("office", "src", ("10.0.0.0/8",)),
    Acl("boss", "src", ("10.1.0.0/16", "192.0.2.7")),
    Acl("nets", "dst", ("203.0.113.0/25",)),
    Acl("sites", "dstdomain", (".a.example",)),
    Acl("site", "dstdomain", ("a.example", "c.example")),
    Acl("safe", "port", ("80", "443", "1025-65535")),
    Acl("ssl", "port", ("443",)),
    Acl("CONNECT", "method", ("CONNECT",)),
    Acl("reads", "method", ("GET", "HEAD", "CONNECT")),
    Acl("alice", "proxy_auth", ("alice",)),
    Acl("known", "proxy_auth", ("REQUIRED",)),
)
UNCLEAR = (
    Acl("inside", "dstdom_regex", ("exam", r"^a\.example$")),
    Acl("ends", "dstdom_regex", ("c\\.example$",)),
    Acl("work", "time", ("MTWHF", "08:00-17:59")),
)
KNOWN = {acl.name: acl for acl in (*CLEAR, *UNCLEAR)}


def rules(acls: tuple[Acl, ...], most: int) -> st.SearchStrategy[list[Rule]]:
    names = st.sampled_from([acl.name for acl in acls]).flatmap(lambda name: st.sampled_from([name, f"!{name}"]))
    lines = st.builds(Rule, st.booleans(), st.lists(names, min_size=1, max_size=3, unique=True).map(tuple))
    return st.lists(lines, min_size=1, max_size=most)


def requests() -> st.SearchStrategy[Request]:
    hosts = st.sampled_from(sorted(HOSTS))
    methods = st.sampled_from(["GET", "HEAD", "POST", "CONNECT", "PROPFIND", "TRACE"])
    clients = st.sampled_from(["10.1.0.1", "10.2.0.1", "192.0.2.7", "192.0.2.8", "2001:db8::1"])
    ports = st.sampled_from([80, 443, 22, 8080])
    users, minutes = st.sampled_from(["alice", "bob"]), st.sampled_from([479, 480, 1079, 1080, 6 * 1440 + 600])
    made = st.builds(Request, clients, hosts, st.just(""), ports, methods, users, minutes)
    return made.map(lambda one: replace(one, address=HOSTS[one.host]))


def convert_text(text: str) -> Converted:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "squid.conf"
        file.write_text(text)
        return converted(file, "squid")


def configuration(lines: list[Rule], acls: tuple[Acl, ...]) -> str:
    defined = [acl.text() for acl in acls if acl.name != "CONNECT"]
    auth = "auth_param basic program /usr/lib/squid/basic_fake_auth"
    return "\n".join([auth, *defined, *(each.text("http_access") for each in lines), "http_port 3128"])


def use_of(policy: CompiledPolicy, request: Request) -> str:
    method = "" if request.method == "CONNECT" else request.method
    now = (MONDAY + timedelta(minutes=request.minute)).timestamp()
    facts = Facts(request.host, request.port, False, request.client, now, user=request.user, method=method)
    rule = policy.find(facts, ip_address(request.address)).rule
    assert rule is not None, "the rules decide every request"
    return rule.spec.use


def compiled(found: Converted) -> CompiledPolicy:
    assert found.problems == []
    [entry] = found.document["policies"]
    return compile_policy(policy_spec(new_policy(PolicyCreate.model_validate(entry), 0.0), 1), NO_LISTS)


def grave(found: Converted) -> list[str]:
    return [
        each.text()
        for each in found.report.remarks
        if each.effect in (Effect.REFUSES, Effect.LOST) and each.directive != "auth_param"
        and "without a password need one" not in each.why
    ]  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(st.one_of(rules(CLEAR, 6), rules((*CLEAR, *UNCLEAR), 5)), st.lists(requests(), min_size=1, max_size=40))
def test_policies_decide_as_squid_or_refuse_what_cannot_be_expressed(lines: list[Rule], asked: list[Request]) -> None:
    found = convert_text(configuration(lines, (*CLEAR, *UNCLEAR)))
    policy, exact = compiled(found), not grave(found)
    for request in asked:
        wanted, got = allows(lines, request, KNOWN), use_of(policy, request) != "deny"
        assert got == wanted or (wanted and not exact), (request, found.document["policies"])


def ways() -> st.SearchStrategy[Ways]:
    lists = st.one_of(st.just(list[Rule]()), rules(CLEAR, 2))
    return st.builds(Ways, lists, lists, st.lists(lists, max_size=3))


A_NAME_AND_AN_ADDRESS = (
    [Rule(False, ("!nets",))],
    Ways([], [Rule(True, ("sites",))], [[]]),
    [Request("10.1.0.1", "b.a.example", "198.51.100.7", 80, "GET", "alice", 479)],
)
"""What must not go directly is named, and what is allowed is an address: no rule can ask for both."""


@example(*A_NAME_AND_AN_ADDRESS)
@settings(max_examples=50, deadline=None)
@given(rules(CLEAR, 2), ways(), st.lists(requests(), min_size=1, max_size=40))
def test_requests_go_the_ways_that_squid_chooses(lines: list[Rule], chosen: Ways, asked: list[Request]) -> None:
    found = convert_text(f"{configuration(lines, CLEAR)}\n{chosen.text()}\n")
    policy, exact = compiled(found), not grave(found)
    pools = {each["name"]: [one["name"] for one in each["upstreams"]] for each in found.document.get("pools", [])}
    for request in asked:
        allowed = allows(lines, request, KNOWN)
        wanted = way(chosen, request, KNOWN) if allowed else "deny"
        got = use_of(policy, request)
        assert pools.get(got.removeprefix("pool:"), got) == wanted or not exact, (request, found.document)
        assert allowed or got == "deny", (request, found.document)


def test_what_squid_can_send_nowhere_is_refused_and_reported() -> None:
    """The most usual split: some through the upstream, the rest directly; and its opposite."""
    lines = (
        "acl intern dstdomain -n .intern.example\ncache_peer 192.0.2.1 parent 3128 0 name=gw\nhttp_access allow all\n"
    )
    access = "cache_peer_access gw allow intern\ncache_peer_access gw deny all\nhttp_port 3128\n"
    usual = convert_text(f"{lines}never_direct allow intern\n{access}")
    assert not any("no upstream" in rule["name"] for rule in usual.document["policies"][0]["rules"])
    opposite = convert_text(f"{lines}never_direct deny intern\n{access}")
    assert any("no upstream" in rule["name"] for rule in opposite.document["policies"][0]["rules"])
    assert [each.place.line for each in opposite.report.remarks if each.directive == "never_direct" and each.place] == [
        4
    ]
