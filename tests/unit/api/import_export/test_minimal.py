"""Minimal documents: what they leave out is the default, so an import finds and undoes each change by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.import_export.document import ConfigDocument
from api.import_export.minimal import completed, minimal
from api.import_export.plan import Problems
from api.objects.proxies.proxy_service import ProxyRules
from tests.kit.api_stage import Api, error_of
from tests.kit.tables import table
from tests.unit.api.importing import HEAD, Importing

BASE: dict[str, Any] = {
    "lists": [{"name": "bad", "kind": "domains", "entries": ["bad.example"]}],
    "pools": [{"name": "exits", "upstreams": [{"protocol": "http", "host": "192.0.2.1", "port": 1}]}],
    "policies": [{"name": "agents", "rules": [{"name": "all", "match": {}, "action": {"use": "deny"}}]}],
    "proxies": [{"name": "office", "port": 3128, "protocol": "http"}],
    "plans": [{"name": "basic", "quota": {"bytes": 5, "period": "month"}}],
    "accounts": [{"username": "cust003", "password": "a good password", "quota": {"bytes": 7}}],
    "webhooks": [{"name": "alerts", "url": "https://hooks.example/", "events": ["*"]}],
    "users": [{"username": "bob", "password": "a good password", "role": "user"}],
}
UPSTREAM = {"protocol": "http", "host": "192.0.2.9", "port": 21202, "auth": {"username": "u", "password": "secret"}}

BY_HAND: list[tuple[str, dict[str, Any], set[str]]] = [
    ("proxies", {"upstreams": [UPSTREAM]}, {"upstreams[http://192.0.2.9:21202]"}),
    ("proxies", {"access": {"deny_destinations": ["*.bank.test"]}}, {"access.deny_destinations"}),
    ("proxies", {"access": {"mode": "report"}}, {"access.mode"}),
    ("proxies", {"accounts": [{"username": "x", "password": "another one"}]}, {"accounts[x]", "auth.enabled"}),
    ("proxies", {"auth": {"enabled": True, "username": "u", "password": "p p p p"}},
     {"auth.enabled", "auth.username", "auth.password"}),
    ("proxies", {"auth": {"backend": {"url": "https://b.example/"}}}, {"auth.backend", "auth.enabled"}),
    ("proxies", {"policy": "agents"}, {"policy"}),
    ("proxies", {"pool": "exits"}, {"pool"}),
    ("proxies", {"tls": {"client_ca": "/ca.pem"}}, {"tls"}),
    ("proxies", {"host": "127.0.0.2"}, {"host"}),
    ("proxies", {"bind_address": "127.0.0.1"}, {"bind_address"}),
    ("proxies", {"bind_policy": "session"}, {"bind_policy"}),
    ("proxies", {"limits": {"bandwidth_in": 4096}}, {"limits.bandwidth_in"}),
    ("proxies", {"dns": {"hosts": {"a.example": "192.0.2.1"}}}, {"dns.hosts.a.example"}),
    ("proxies", {"headers": {"via": "off"}}, {"headers.via"}),
    ("proxies", {"username_params": {"enabled": True}}, {"username_params.enabled"}),
    ("proxies", {"upstream_check": {"enabled": False}}, {"upstream_check.enabled"}),
    ("proxies", {"settings": {"timeout": 5}}, {"settings.timeout"}),
    ("proxies", {"settings": {"keep_alive": False}}, {"settings.keep_alive"}),
    ("proxies", {"sleep_after": 60}, {"sleep_after"}),
    ("proxies", {"workers": 2}, {"workers"}),
    ("proxies", {"tls_name": "match"}, {"tls_name"}),
    ("proxies", {"tls_ports": []}, {"tls_ports"}),
    ("proxies", {"tags": ["x"], "description": "x"}, {"tags", "description"}),
    ("proxies", {"accept_proxy_protocol": True}, {"accept_proxy_protocol"}),
    ("accounts", {"enabled": False}, {"enabled"}),
    ("accounts", {"plan": "basic"}, {"plan"}),
    ("accounts", {"quota": None}, {"quota"}),
    ("accounts", {"quota": {"period": "day"}}, {"quota.period"}),
    ("accounts", {"limits": {"connections": 3}}, {"limits.connections"}),
    ("accounts", {"expires_at": "2096-01-01T00:00:00Z"}, {"expires_at"}),
    ("accounts", {"proxies": {"tags": ["x"]}}, {"proxies.all", "proxies.tags"}),
    ("accounts", {"metadata": {"customer": "1"}}, {"metadata.customer"}),
    ("accounts", {"allow_destinations": ["*.example.com"]}, {"allow_destinations"}),
    ("accounts", {"schedule": {"timezone": "UTC", "windows": [{"days": ["mon"], "from": "08:00", "to": "09:00"}]}},
     {"schedule"}),
    ("plans", {"policy": "agents"}, {"policy"}),
    ("plans", {"egress": ["127.0.0.1"]}, {"egress"}),
    ("plans", {"disclose": False}, {"disclose"}),
    ("plans", {"self_service": {"password": True}}, {"self_service.password"}),
    ("plans", {"quota": {"period": "day"}}, {"quota.period"}),
    ("lists", {"description": "x"}, {"description"}),
    ("lists", {"source": {"url": "https://lists.example/"}}, {"source", "entries"}),
    ("pools", {"upstreams": [UPSTREAM]}, {"upstreams[http://192.0.2.9:21202]", "upstreams[http://192.0.2.1:1]"}),
    ("pools", {"policy": "sticky"}, {"policy"}),
    ("pools", {"retry": {"attempts": 2}}, {"retry.attempts"}),
    ("pools", {"cooldown": {"407": [1, 2]}}, {"cooldown.407"}),
    ("policies", {"rules": []}, {"rules[all]"}),
    ("policies", {"description": "x"}, {"description"}),
    ("users", {"role": "operator"}, {"role"}),
    ("users", {"permissions": ["proxy.read"]}, {"permissions"}),
    ("users", {"email": "b@example.com"}, {"email"}),
    ("users", {"status": "disabled"}, {"status"}),
    ("webhooks", {"enabled": False}, {"enabled"}),
    ("webhooks", {"headers": {"X-Token": "secret"}}, {"headers.X-Token"}),
    ("webhooks", {"events": ["proxy.*"]}, {"events"}),
    ("settings", {"logging": {"level": "debug"}}, {"logging.level"}),
    ("settings", {"proxy": {"default_timeout": 99}}, {"proxy.default_timeout"}),
]  # fmt: skip


@pytest.fixture(scope="module")
def here() -> Iterator[Importing]:
    api = Api()
    made = Importing(api)
    made.apply(sections=BASE)
    yield made
    api.close()


@pytest.fixture
def before(here: Importing) -> Any:
    """All that there is."""
    return here.export()


def identifier(here: Importing, section: str) -> str:
    name = next(each.get("name") or each["username"] for each in BASE[section])
    found = here.api.get(f"/{section}", here.headers).json["data"][section]
    return next(str(each["id"]) for each in found if name in (each.get("name"), each.get("username")))


def fields(response: Any) -> set[str]:
    return {each["field"] for change in response["changes"] for each in change["fields"]}


@table(("section", "body", "expected"), BY_HAND, ids=[f"{section}-{'-'.join(body)}" for section, body, _ in BY_HAND])
def test_a_change_by_hand_is_found_and_undone(
    here: Importing, before: Any, section: str, body: dict[str, Any], expected: set[str]
) -> None:
    """Each row finds its own fields alone, so the one before it has left nothing."""
    document = minimal(before)
    path = "/settings" if section == "settings" else f"/{section}/{identifier(here, section)}"
    if "host" in body:
        here.api.post(f"{path}/stop", headers=here.headers)
    changed = here.api.patch(path, body, here.headers)
    assert changed.status_code == 200, changed.text
    if "host" in body:
        here.api.post(f"{path}/start", headers=here.headers)
    assert fields(here.apply("dry_run=true", sections=document)) == expected
    here.apply(sections=document)
    assert here.export() == before


BY_HAND_OF_SOURCES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "nothing": ({}, set()),
    "another URL": ({"source": {"url": "https://pools.example/b"}}, {"source.url"}),
    "how often": ({"source": {"interval": 900}}, {"source.interval"}),
    "headers": ({"source": {"headers": {"X-Key": "k"}}}, {"source.headers"}),
    "upstreams of its own": ({"upstreams": [UPSTREAM]}, {"source", "upstreams"}),
}


@table("whole", [True, False], ids=["exported", "with the URL alone"])
@table(("body", "expected"), BY_HAND_OF_SOURCES.values(), ids=BY_HAND_OF_SOURCES)
def test_a_change_by_hand_of_a_pool_with_a_source_is_found_and_undone(
    here: Importing, whole: bool, body: dict[str, Any], expected: set[str]
) -> None:
    pool = {"name": "rented", "source": {"url": "https://pools.example/a"}}
    here.apply("prune=true", sections={"pools": [*BASE["pools"], pool]})
    before = here.export()
    document = minimal(before) if whole else {"minimal": True, "pools": [*minimal(before)["pools"][:-1], pool]}
    assert here.api.patch("/pools/rented", body, here.headers).status_code == 200
    assert fields(here.apply("dry_run=true", sections=document)) == expected
    here.apply(sections=document)
    assert here.export() == before
    here.apply("prune=true", sections={"pools": BASE["pools"]})


def test_a_proxy_that_was_stopped_by_hand_is_started(here: Importing) -> None:
    document = minimal(here.export())
    here.api.post(f"/proxies/{identifier(here, 'proxies')}/stop", headers=here.headers)
    assert fields(here.apply(sections=document)) == {"status"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({}, set()),
        ({"interval": 60}, {"source.interval"}),
        ({"format": "csv", "protocol": "socks5"}, {"source.format", "source.protocol"}),
        ({"headers": {"X-Key": "secret"}}, {"source.headers"}),
    ],
)
def test_a_pool_with_a_source_is_compared_field_by_field(
    here: Importing, source: dict[str, Any], expected: set[str]
) -> None:
    url = "https://provider.example/exits"
    here.apply(sections={"pools": [{"name": "rented", "source": {"url": url}}]})
    document = minimal(here.export())
    assert here.api.patch("/pools/rented", {"source": source}, here.headers).status_code == 200
    assert fields(here.apply("dry_run=true", sections=document)) == expected
    here.apply(sections=document)
    assert minimal(here.export()) == document
    assert here.api.request("DELETE", "/pools/rented", here.headers).status_code == 200


def test_what_was_not_compared_is_named(here: Importing) -> None:
    whole = minimal(here.export())
    assert here.apply(sections=whole)["not_compared"] == {"fields": False, "objects": {}, "sections": []}
    sparse = {**HEAD, "proxies": [], "users": [{"username": "bob"}]}
    assert here.apply(sections=sparse)["not_compared"] == {
        "fields": True,
        "objects": {"proxies": 1, "users": 1},
        "sections": ["webhooks", "plans", "lists", "pools", "policies", "accounts", "settings"],
    }
    there = len(whole["accounts"])
    more = {**HEAD, "accounts": [{"username": "new", "password": "correct horse battery"}]}
    less = {**HEAD, "accounts": whole["accounts"]}
    for query, sections, left in (("dry_run=true", more, there), ("", more, there), ("prune=true", less, 0)):
        assert here.apply(query, sections=sections)["not_compared"]["objects"] == ({"accounts": left} if left else {})


def test_a_file_by_hand_may_be_minimal_and_names_what_has_no_default(here: Importing) -> None:
    entries = {"proxies": [{"name": "office"}], "webhooks": [{"name": "alerts", "url": "https://hooks.example/"}]}
    refused = here.post({**HEAD, "minimal": True, **entries, "lists": [{"name": "bad", "entries": []}]})
    status, _, details = error_of(refused)
    assert status == 400
    found = {each["field"] for each in details["errors"]}
    assert found == {"proxies[0].port", "proxies[0].protocol", "webhooks[0].events", "lists[0].kind"}
    assert here.apply("dry_run=true", sections={**entries, "lists": [{"name": "bad"}]})["changed"] is False


def test_of_a_file_by_hand_parts_of_objects_have_their_defaults_too(here: Importing) -> None:
    here.api.patch(f"/plans/{identifier(here, 'plans')}", {"quota": {"bytes": 5, "period": "day"}}, here.headers)
    plan = {"name": "basic", "quota": {"bytes": 5}}
    response = here.apply("dry_run=true", minimal=True, plans=[plan])
    assert [(each["before"], each["after"]) for each in response["changes"][0]["fields"]] == [("day", "total")]
    here.apply(sections={"plans": BASE["plans"]})


# --- the two are each other's reverse -----------------------------------------------------------------------------


def entry_of(usual: dict[str, Any], **others: list[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Entries whose fields are the usual ones, or some of these others."""
    choices = {name: st.sampled_from([usual[name], *others.get(name, [])]) for name in usual}
    return st.fixed_dictionaries(choices)


def documents(full: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Variations of an exported document."""
    rules: dict[str, list[Any]] = {
        "limits": [
            {
                "bandwidth_in": 0,
                "bandwidth_out": None,
                "connections": 4,
                "requests_per_minute": None,
                "clients": 3,
                "clients_window": None,
            }
        ],
        "quota": [None, {"bytes": 0, "period": "total"}, {"bytes": 1, "period": "day"}],
        "allow_destinations": [[], ["*.example"]],
        "description": ["x"],
    }
    auth = [{"enabled": True}, {"enabled": True, "username": "u", "password": None}, {"enabled": False}]
    settings = {"timeout": 9, "keep_alive": False, "max_connections": 1000}
    check = {"enabled": False, "interval": 30, "timeout": 5, "url": "", "expect": 204}
    proxies = entry_of(
        full["proxies"][0],
        auth=auth,
        accounts=[[{"username": "x", "password": None}]],
        upstreams=[[UPSTREAM]],
        settings=[settings],
        policy=["agents"],
        workers=["auto", 3],
        status=["inactive"],
        host=["::1"],
        tags=[["a"]],
        description=["x"],
    )
    accounts = entry_of(
        full["accounts"][0],
        proxies=[{"all": True, "tags": ["x"]}, {"names": []}, {"names": ["office"]}, {"tags": ["x"]}],
        plan=["basic"],
        enabled=[False],
        metadata=[{"all": "1"}],
        **rules,
    )
    users = entry_of(full["users"][1], role=["auditor"], permissions=[[], ["proxy.read"]], email=["a@example.com"])
    pools = entry_of(full["pools"][0], upstreams=[[]], policy=["sticky"], check=[check])
    plans = entry_of(full["plans"][0], policy=["agents"], egress=[[], ["127.0.0.1"]], **rules)
    hooks = entry_of(full["webhooks"][0], headers=[{}, {"X-Token": None}], enabled=[False])
    sections = {"proxies": proxies, "accounts": accounts, "users": users, "pools": pools, "plans": plans,
                "webhooks": hooks}  # fmt: skip
    return st.fixed_dictionaries({name: st.lists(entries, max_size=1) for name, entries in sections.items()})


@pytest.fixture(scope="module")
def exported(here: Importing) -> dict[str, Any]:
    document: dict[str, Any] = here.export()
    return document


@given(data=st.data())
def test_a_minimal_document_says_the_same_as_the_whole_one(exported: dict[str, Any], data: st.DataObject) -> None:
    full = {**exported, **data.draw(documents(exported))}
    problems = Problems()
    made = completed(ConfigDocument.model_validate(minimal(full)), ProxyRules(), problems)
    problems.refuse()
    for section, entries in full.items():
        if isinstance(entries, list):
            assert said(made, section) == said(ConfigDocument.model_validate(full), section)


def said(document: ConfigDocument, section: str) -> list[dict[str, Any]]:
    """All that the entries say, without nulls and what consists of them."""
    dumped = [each.model_dump(exclude_none=True) for each in getattr(document, section)]
    return [{name: value for name, value in each.items() if (name, value) != ("tls", {})} for each in dumped]
