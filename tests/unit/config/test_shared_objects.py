"""Pools, lists and policies: what is accepted as one, what is stored of it, and the errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from actors.bus.messages.specs import LimitsSpec
from api.errors import InvalidMany
from api.http.body import validated
from api.objects.named.list_kind import list_ref
from api.objects.named.policy_kind import policy_spec
from api.objects.named.pool_kind import pool_spec
from config.files.secret_box import SecretBox
from config.model.fields import InvalidResource, example_of
from config.model.shared_objects.lists import DestinationList, ListCreate, ListUpdate, change_list, new_list
from config.model.shared_objects.policies import (
    Policy,
    PolicyCreate,
    PolicyUpdate,
    change_policy,
    new_policy,
    policy_warnings,
)
from config.model.shared_objects.pools import Pool, PoolCreate, PoolUpdate, change_pool, new_pool
from tests.kit.tables import table

UNUSED = SecretBox(Path("unused"))
"""For lists without headers."""
UPSTREAM = {"protocol": "http", "host": "exit.example", "port": 3128}


@pytest.fixture
def seal(tmp_path: Path) -> SecretBox:
    return SecretBox(tmp_path / "keys" / "secrets.key")


def errors(model: type[BaseModel], body: dict[str, Any]) -> dict[str | None, str]:
    """By field, what is wrong with a body."""
    with pytest.raises(InvalidMany) as caught:
        validated(model, body, frozenset())
    return dict(caught.value.problems)


def a_list(**fields: Any) -> DestinationList:
    return new_list(validated(ListCreate, {"name": "a", "kind": "domains", **fields}, frozenset()), 1.0, UNUSED)


def a_policy(*rules: dict[str, Any]) -> Policy:
    whole = [{"name": f"r{index}", "match": {}, "action": {}, **rule} for index, rule in enumerate(rules)]
    return new_policy(validated(PolicyCreate, {"name": "a", "rules": whole}, frozenset()), 1.0)


def a_pool(seal: SecretBox, **fields: Any) -> Pool:
    return new_pool(validated(PoolCreate, {"name": "a", **fields}, frozenset()), 1.0, seal)


# --- pools --------------------------------------------------------------------------------------------------------


def test_a_pool_has_what_the_example_says_and_sends_it_with_its_secrets(seal: SecretBox) -> None:
    pool = new_pool(PoolCreate.model_validate(example_of(PoolCreate)), 1.0, seal)
    spec = pool_spec(Pool.model_validate(pool.model_dump(mode="json")), 7, seal)
    assert (spec.name, spec.revision, spec.upstreams.policy, spec.attempts) == ("paris", 7, "latency", 5)
    assert spec.cooldown == (("connect", 1.0, 60.0), ("407", 60.0, 600.0), ("429", 30.0, 300.0), ("5xx", 5.0, 60.0))
    (upstream,) = spec.upstreams.entries
    assert (upstream.password, upstream.labels) == ("correct horse", (("country", "fr"), ("city", "paris")))
    assert "correct horse" not in pool.model_dump_json()


def test_a_part_of_a_pool_is_changed_and_a_password_stays(seal: SecretBox) -> None:
    pool = a_pool(seal, upstreams=[{**UPSTREAM, "auth": {"username": "u", "password": "p"}}])
    again = {**UPSTREAM, "auth": {"username": "u"}, "labels": {"country": "de"}}
    body = {"upstreams": [again], "cooldown": {"429": [0, 0]}, "retry": {"connect": False}}
    after = change_pool(pool, validated(PoolUpdate, body, frozenset()), 2.0, seal)
    assert after.upstreams[0].password == pool.upstreams[0].password is not None
    assert after.upstreams[0].view()["labels"] == {"country": "de"}
    assert after.cooldown.model_dump() == {**pool.cooldown.model_dump(), "429": [0, 0]}
    assert (after.retry.connect, after.retry.attempts) == (False, 5)


@table(
    ("fields", "field"),
    [
        ({"name": "two words"}, "name"),
        ({"name": "pool_0123456789abcdef"}, "name"),
        ({"policy": "random"}, "policy"),
        ({"retry": {"attempts": 0}}, "retry.attempts"),
        ({"retry": {"statuses": [200]}}, "retry.statuses[0]"),
        ({"retry": {"statuses": [502, 502]}}, "retry.statuses"),
        ({"cooldown": {"407": [600, 60]}}, "cooldown.407"),
        ({"cooldown": {"404": [1, 2]}}, "cooldown.404"),
        ({"cooldown": {"connect": [1]}}, "cooldown.connect"),
        ({"upstreams": [{**UPSTREAM, "labels": {"country": ""}}]}, "upstreams[0].labels.country"),
        ({"upstreams": [{**UPSTREAM, "label": {}}]}, "upstreams[0].label"),
    ],
)
def test_what_is_wrong_with_a_pool_is_named(fields: dict[str, Any], field: str) -> None:
    assert list(errors(PoolCreate, {"name": "a", **fields})) == [field]


def test_a_parameter_of_another_meaning_is_no_label() -> None:
    (error,) = errors(PoolUpdate, {"upstreams": [{**UPSTREAM, "labels": {"session": "1"}}]}).values()
    assert "session, ttl and rotate" in error


# --- lists --------------------------------------------------------------------------------------------------------


def test_a_list_has_entries_or_a_source_and_either_takes_the_place_of_the_other() -> None:
    first = a_list(entries=["example.com"])
    source = {"url": "https://lists.example/hosts", "format": "hosts"}
    fetched = change_list(first, validated(ListUpdate, {"source": source}, frozenset()), 2.0, UNUSED)
    assert fetched.source is not None
    assert fetched.entries == []
    slower = change_list(fetched, validated(ListUpdate, {"source": {"interval": 3600}}, frozenset()), 3.0, UNUSED)
    assert slower.source is not None
    assert (slower.source.url, slower.source.interval) == (source["url"], 3600)
    inline = change_list(slower, validated(ListUpdate, {"entries": []}, frozenset()), 4.0, UNUSED)
    assert (inline.source, inline.entries) == (None, [])
    assert list_ref(inline, 4, "a.list").file == "a.list"


@table(
    ("fields", "field"),
    [
        ({}, "entries"),
        ({"entries": ["a.example"], "source": {"url": "http://a/"}}, "source"),
        ({"source": {"format": "hosts"}}, "source.url"),
        ({"entries": ["a.example", "10.0.0.0/8"]}, "entries[1]"),
        ({"kind": "networks", "entries": ["a.example"]}, "entries[0]"),
        ({"entries": ["*.a.example"]}, "entries[0]"),
    ],
)
def test_what_is_wrong_with_a_list_is_named(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidResource) as caught:
        a_list(**fields)
    assert caught.value.field == field


@table(
    ("fields", "field"),
    [
        ({"kind": "files"}, "kind"),
        ({"source": {"url": "ftp://a/"}}, "source.url"),
        ({"source": {"url": "http://a/", "interval": 59}}, "source.interval"),
        ({"source": {"url": "http://a/", "max_bytes": 1}}, "source.max_bytes"),
        ({"source": {"url": "http://a/", "format": "csv"}}, "source.format"),
        ({"entries": ["a.example", 3]}, "entries[1]"),
    ],
)
def test_what_is_wrong_with_fields_of_a_list_is_named(fields: dict[str, Any], field: str) -> None:
    assert list(errors(ListCreate, {"name": "a", "kind": "domains", **fields})) == [field]


# --- policies -----------------------------------------------------------------------------------------------------


def test_a_policy_comes_back_as_it_was_given_and_is_sent_in_order() -> None:
    given = example_of(PolicyCreate)
    policy = new_policy(PolicyCreate.model_validate(given), 1.0)
    stored = Policy.model_validate(policy.model_dump(mode="json"))
    assert [each.view() for each in stored.rules] == [{"mode": "enforce", **each} for each in given["rules"]]
    spec = policy_spec(stored, 7)
    assert [(each.name, each.use) for each in spec.rules] == [("packages", "direct"), ("everything else", "deny")]
    assert spec.rules[0].schedule == ("Europe/Berlin", (((0, 1), 480, 1080),))


def test_all_of_an_action_is_sent() -> None:
    headers = {"set": {"X-Team": "ci"}, "remove": ["Cookie"]}
    limits = {"connections": 3, "bandwidth_out": 2048}
    action = {"use": "direct", "headers": headers, "egress": ["127.0.0.1", "192.0.2.0/24"], "limits": limits}
    (rule,) = policy_spec(a_policy({"action": action, "mode": "report"}), 1).rules
    assert (rule.use, rule.report) == ("direct", True)
    assert rule.egress == ("127.0.0.1", "192.0.2.0/24")
    assert rule.limits == LimitsSpec(connections=3, bandwidth_out=2048)
    assert (rule.set_headers, rule.remove_headers) == ((("X-Team", "ci"),), ("Cookie",))


@table(
    ("rule", "field"),
    [
        ({"action": {"reason": "no"}}, "rules[0].action.reason"),
        ({"action": {"use": "deny", "headers": {"remove": ["Cookie"]}}}, "rules[0].action.headers"),
        ({"action": {"use": "deny", "egress": ["127.0.0.1"]}}, "rules[0].action.egress"),
        ({"action": {"use": "deny", "limits": {"connections": 1}}}, "rules[0].action.limits"),
        ({"action": {"egress": ["203.0.113.9"]}}, "rules[0].action.egress[0]"),
        ({"match": {"tunnel": True, "methods": ["*"]}}, "rules[0].match.tunnel"),
        ({"match": {"tunnel": True, "paths": ["/*"]}}, "rules[0].match.tunnel"),
        ({"match": {"tunnel": True}, "action": {"headers": {"remove": ["Cookie"]}}}, "rules[0].match.tunnel"),
        ({"action": {"use": "deny", "tls_name": "match"}}, "rules[0].action.tls_name"),
        ({"match": {"methods": ["GET"]}, "action": {"tls_name": "match"}}, "rules[0].action.tls_name"),
        ({"match": {"paths": ["/*"]}, "action": {"tls_name": "off"}}, "rules[0].action.tls_name"),
        ({"action": {"tls_name": "off", "headers": {"remove": ["Cookie"]}}}, "rules[0].action.tls_name"),
    ],
)
def test_an_action_that_says_two_things_is_refused(rule: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidResource) as caught:
        a_policy(rule)
    assert caught.value.field == field


def test_rules_are_about_any_method_of_plain_http_or_about_tunnels() -> None:
    plain, tunnels = policy_spec(
        a_policy({"name": "plain", "match": {"methods": ["*"]}}, {"name": "tunnels", "match": {"tunnel": True}}), 1
    ).rules
    assert (plain.methods, plain.tunnel) == (("*",), False)
    assert (tunnels.methods, tunnels.tunnel) == ((), True)


def test_a_rule_says_what_becomes_of_the_name_in_a_handshake_or_leaves_it_to_the_proxy() -> None:
    policy = a_policy({"name": "a", "action": {"tls_name": "allowed"}}, {"name": "b", "action": {"use": "direct"}})
    assert [rule.tls_name for rule in policy_spec(policy, 1).rules] == ["allowed", ""]
    assert [rule.view()["action"] for rule in policy.rules] == [{"tls_name": "allowed"}, {"use": "direct"}]
    assert policy_warnings(policy) == []


def test_two_rules_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidResource) as caught:
        a_policy({"name": "a"}, {"name": "b"}, {"name": "a"})
    assert (caught.value.field, caught.value.error) == ("rules[2].name", "is the name of rules[0], too")


def test_a_policy_has_so_many_entries_in_all_and_lists_are_for_more() -> None:
    clients = [f"10.0.{number // 256}.{number % 256}" for number in range(1_000)]
    rules = [{"name": str(index), "match": {"clients": clients}, "action": {}} for index in range(51)]
    new_policy(PolicyCreate(name="many", rules=rules[:50]), 1.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidResource, match="have 51,000 entries in all, and 50,000 are allowed") as caught:
        new_policy(PolicyCreate(name="many", rules=rules), 1.0)  # type: ignore[arg-type]
    assert caught.value.field == "rules"


@table(
    ("rule", "field"),
    [
        ({"match": {"destinations": ["a b"]}}, "match.destinations[0]"),
        ({"match": {"destinations": []}}, "match.destinations"),
        ({"match": {"accounts": ["a:b"]}}, "match.accounts[0]"),
        ({"match": {"methods": ["GET", "CONNECT"]}}, "match.methods[1]"),
        ({"match": {"paths": ["simple"]}}, "match.paths[0]"),
        ({"match": {"tunnel": False}}, "match.tunnel"),
        ({"match": {"tunnel": "yes"}}, "match.tunnel"),
        ({"match": {"clients": ["10.0.0.0/33"]}}, "match.clients[0]"),
        ({"match": {"schedule": {"timezone": "Mars"}}}, "match.schedule.timezone"),
        ({"match": {"hosts": ["a"]}}, "match.hosts"),
        ({"match": {"clients": None}}, "match.clients"),
        ({"match": {"destinations": ["a.example", "geo:world:country=de"]}}, "match.destinations[1]"),
        ({"match": {"params": {}}}, "match.params"),
        ({"match": {"params": {"Country": "de"}}}, "match.params.Country"),
        ({"match": {"params": {"session": "7"}}}, "match.params.session"),
        ({"match": {"params": {"country": "d\ne"}}}, "match.params.country"),
        ({"action": {"use": "pool:"}}, "action.use"),
        ({"action": {"tls_name": "strict"}}, "action.tls_name"),
        ({"action": {"tls_name": ""}}, "action.tls_name"),
        ({"action": {"egress": []}}, "action.egress"),
        ({"action": {"egress": ["127.0.0.1", "a.example"]}}, "action.egress[1]"),
        ({"action": {"limits": {"bandwidth_in": 5}}}, "action.limits.bandwidth_in"),
        ({"action": {"limits": {"quota": 5}}}, "action.limits.quota"),
        ({"action": {"headers": {"remove": ["Host"]}}}, "action.headers.remove[0]"),
        ({"action": {"headers": {"set": {"X-A": "b\nc"}}}}, "action.headers.set.X-A"),
        ({"action": {"headers": {"remove": ["x-a", "X-A"]}}}, "action.headers.remove"),
        ({"mode": "off"}, "mode"),
    ],
)
def test_what_is_wrong_with_a_rule_is_named(rule: dict[str, Any], field: str) -> None:
    whole = {"name": "r", "match": {}, "action": {}, **rule}
    assert f"rules[0].{field}" in errors(PolicyUpdate, {"rules": [whole]})


def test_existing_tunnels_are_ended_by_a_change_that_says_so_once() -> None:
    policy = a_policy({})
    ending = change_policy(policy, validated(PolicyUpdate, {"end_existing": True}, frozenset()), 2.0)
    after = change_policy(ending, validated(PolicyUpdate, {"description": "later"}, frozenset()), 3.0)
    assert [policy_spec(each, 1).ended for each in (policy, ending, after)] == [0, 1, 1]


def test_rules_that_do_less_than_they_seem_to_are_warned_about() -> None:
    policy = a_policy({"match": {"paths": ["/a"]}, "action": {"use": "deny"}}, {}, {"action": {"use": "direct"}})
    assert [each.field for each in policy_warnings(policy)] == ["rules[0].match.paths", "rules[1].action"]


@table(
    ("rule", "field", "said"),
    [
        ({"match": {"methods": ["GET"]}, "action": {"use": "direct"}}, "match.methods", "a tunnel (CONNECT, SOCKS)"),
        (
            {"match": {"methods": ["POST", "PUT"]}, "action": {"use": "deny"}},
            "match.methods",
            "so over HTTPS all POST, PUT requests pass",
        ),
        (
            {"match": {"paths": ["/a", "/b", "/c", "/d"]}, "action": {"use": "deny"}},
            "match.paths",
            "so over HTTPS all requests for /a, /b, /c and 1 more pass",
        ),
        (
            {"match": {"methods": ["POST"], "paths": ["/a"]}, "action": {"use": "deny"}},
            "match.methods",
            "so over HTTPS all POST requests for /a pass",
        ),
        ({"match": {}, "action": {"headers": {"remove": ["cookie"]}}}, "action.headers", "(CONNECT, SOCKS)"),
    ],
)
def test_a_rule_of_plain_http_warns_that_it_never_matches_a_tunnel(rule: dict[str, Any], field: str, said: str) -> None:
    (warned,) = policy_warnings(a_policy(rule))
    assert (warned.field, warned.warning.endswith(said)) == (f"rules[0].{field}", True)
    assert "never" in warned.warning
    assert "tunnel" in warned.warning
