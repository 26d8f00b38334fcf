"""Access rules over the API: stored, merged, sent to the supervisor, and refused by name."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from actors.bus.messages.common import forwarding_name
from actors.bus.messages.forwarding import (
    Explain,
    ExplainedAddress,
    RequestExplanation,
    RuleExplanation,
    SourceExplanation,
    TlsNameExplanation,
)
from actors.bus.messages.specs import AccessSpec, RuleSpec
from tests.kit.api_stage import PROXY, Api, error_of
from tests.kit.tables import table
from tests.unit.api.creating import create

OPEN = {
    "allow_clients": [],
    "deny_clients": [],
    "allow_destinations": [],
    "deny_destinations": [],
    "mode": "enforce",
}


def test_without_rules_everybody_may_go_everywhere(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers)
    assert proxy["access"] == OPEN
    assert api.fleet.desired[proxy["id"]].access == AccessSpec()


def test_rules_are_in_the_detailed_view_and_sent_to_the_supervisor(api: Api, headers: dict[str, str]) -> None:
    access = {"deny_clients": ["192.0.2.0/24"], "allow_destinations": ["*.example.com:443"], "mode": "report"}
    proxy = create(api, headers, access=access)
    assert api.get(f"/proxies/{proxy['id']}", headers).json["data"]["proxy"]["access"] == {**OPEN, **access}
    assert "access" not in api.get("/proxies", headers).json["data"]["proxies"][0]
    expected = AccessSpec(deny_clients=("192.0.2.0/24",), allow_destinations=("*.example.com:443",), mode="report")
    assert api.fleet.desired[proxy["id"]].access == expected


def test_an_update_replaces_the_lists_that_are_given_and_keeps_the_others(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers, access={"deny_clients": ["192.0.2.1"], "deny_destinations": [":25", ":26"]})
    body = {"access": {"deny_destinations": [":27"], "mode": "report"}}
    view = api.patch(f"/proxies/{proxy['id']}", body, headers).json["data"]["proxy"]["access"]
    assert view == {**OPEN, "deny_clients": ["192.0.2.1"], "deny_destinations": [":27"], "mode": "report"}
    view = api.patch(f"/proxies/{proxy['id']}", {"access": {"deny_clients": []}}, headers).json["data"]["proxy"]
    assert view["access"]["deny_clients"] == []


@table(
    ("access", "field"),
    [
        ({"deny_destinations": [":25", "*.a.example", "a*b"]}, "access.deny_destinations[2]"),
        ({"allow_destinations": ["10.0.0.0/33"]}, "access.allow_destinations[0]"),
        ({"allow_destinations": [25]}, "access.allow_destinations[0]"),
        ({"allow_destinations": [None]}, "access.allow_destinations[0]"),
        ({"allow_clients": ["10.0.0.0/8", "example.com"]}, "access.allow_clients[1]"),
        ({"deny_clients": ["10.0.0.1:80"]}, "access.deny_clients[0]"),
        ({"deny_clients": "10.0.0.1"}, "access.deny_clients"),
        ({"deny_clients": None}, "access.deny_clients"),
        ({"deny_clients": ["10.0.0.1"] * 10_001}, "access.deny_clients"),
        ({"mode": "dream"}, "access.mode"),
        ({"colour": "red"}, "access.colour"),
        ([], "access"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_bad_rule_is_400_naming_it(api: Api, headers: dict[str, str], access: Any, field: str) -> None:
    status, code, details = error_of(api.post("/proxies", {**PROXY, "access": access}, headers))
    assert (status, code, details["field"]) == (400, "INVALID_REQUEST", field)
    assert details["error"]
    assert api.store.find("proxies") == []


# --- explain ---

QUESTION = {"client_ip": "192.0.2.1", "target": "https://a.example/"}
EXPLAINED = RequestExplanation(
    "deny", "destination_denied", "access.deny_destinations[0] *", "name", "enforce", "a.example", 443, ()
)


def test_explain_asks_the_proxys_own_process(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers)
    api.fleet.others[forwarding_name(proxy["id"])] = lambda _question: EXPLAINED
    data = api.post(f"/proxies/{proxy['id']}/explain", {**QUESTION, "user": "ada"}, headers).json["data"]
    assert api.fleet.received[-1] == (
        forwarding_name(proxy["id"]),
        Explain("192.0.2.1", "ada", "https://a.example/", listen_port=PROXY["port"]),
    )
    assert data == {
        "decision": "deny",
        "reason": "destination_denied",
        "rule": "access.deny_destinations[0] *",
        "stage": "name",
        "mode": "enforce",
        "target": {"host": "a.example", "port": 443},
        "addresses": [],
        "rules": [],
        "headers": {"set": {}, "remove": []},
        "account": None,
        "credential": None,
        "source": None,
        "name": None,
        "upstreams": None,
        "tls_name": {
            "check": "record",
            "rule": "tls_name",
            "port_checked": False,
            "name": None,
            "kind": None,
            "detail": "",
        },
        "assumed": [],
    }


def test_explain_asks_about_another_time(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers)
    api.fleet.others[forwarding_name(proxy["id"])] = lambda _question: EXPLAINED
    path = f"/proxies/{proxy['id']}/explain"
    assert api.post(path, {**QUESTION, "at": "2030-01-31T12:00:00Z"}, headers).status_code == 200
    asked = api.fleet.received[-1][1]
    assert isinstance(asked, Explain)
    assert asked.at == datetime(2030, 1, 31, 12, tzinfo=UTC).timestamp()
    assert error_of(api.post(path, {**QUESTION, "at": "tomorrow"}, headers))[2]["field"] == "at"


@pytest.mark.parametrize("name", ["other.example", "192.0.2.1", "2001:db8::1", "xn--bcher-kva.example", ""])
def test_explain_judges_a_name_of_a_handshake(api: Api, headers: dict[str, str], name: str) -> None:
    proxy = create(api, headers)
    found = TlsNameExplanation("match", "tls_name", True, name, "mismatch", "mismatch: …")
    api.fleet.others[forwarding_name(proxy["id"])] = lambda _question: replace(EXPLAINED, tls_name=found)
    data = api.post(f"/proxies/{proxy['id']}/explain", {**QUESTION, "tls_name": name and f"{name}."}, headers).json[
        "data"
    ]
    assert api.fleet.received[-1][1].tls_name == name
    assert data["tls_name"] == {
        "check": "match",
        "rule": "tls_name",
        "port_checked": True,
        "name": name,
        "kind": "mismatch",
        "detail": "mismatch: …",
    }


@pytest.mark.parametrize("name", ["a b", "bücher.example", "127.1", "*.example", "a.example:443", "a" * 254, None, 7])
def test_explain_refuses_what_is_no_name(api: Api, headers: dict[str, str], name: Any) -> None:
    proxy = create(api, headers)
    refused = api.post(f"/proxies/{proxy['id']}/explain", {**QUESTION, "tls_name": name}, headers)
    assert error_of(refused)[2]["field"] == "tls_name"


@pytest.mark.parametrize(
    ("fields", "question", "stage", "assumed"),
    [
        ({}, {"user": "ada"}, "name", []),
        ({"auth": {"enabled": True}}, {"user": "ada"}, "name", ["password"]),
        ({"auth": {"enabled": True}}, {"credential": "crd_1"}, "account", ["credential"]),
        ({"auth": {"enabled": True}}, {"user": "eve"}, "user", []),
        ({"auth": {"enabled": True}}, {"user": "ada"}, "client", []),
        ({"auth": {"enabled": True}, "protocol": "socks4"}, {"user": "ada"}, "name", []),
    ],
)
def test_explain_names_what_only_the_client_knows(
    api: Api,
    headers: dict[str, str],
    fields: dict[str, Any],
    question: dict[str, Any],
    stage: str,
    assumed: list[str],
) -> None:
    proxy = create(api, headers, **fields)
    api.fleet.others[forwarding_name(proxy["id"])] = lambda _question: replace(EXPLAINED, stage=stage)
    found = api.post(f"/proxies/{proxy['id']}/explain", {**QUESTION, **question}, headers).json["data"]
    assert found["assumed"] == assumed


def test_explain_says_where_a_request_would_leave_from(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers)
    source = SourceExplanation("bind_address", "session", ("192.0.2.0/24",), "192.0.2.7")
    api.fleet.others[forwarding_name(proxy["id"])] = lambda _question: replace(EXPLAINED, source=source)
    said = api.post(f"/proxies/{proxy['id']}/explain", QUESTION, headers).json["data"]["source"]
    assert said == {
        "rule": "bind_address",
        "policy": "session",
        "entries": ["192.0.2.0/24"],
        "ipv4": "192.0.2.7",
        "ipv6": None,
    }


def test_explain_lists_the_rules_of_policies(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers)
    rule = RuleExplanation("office", 0, "docs only", "no", "methods: POST is none of them", "", "enforce")
    api.fleet.others[forwarding_name(proxy["id"])] = lambda _question: replace(EXPLAINED, rules=(rule,))
    question = {**QUESTION, "target": "http://a.example/", "method": "POST"}
    data = api.post(f"/proxies/{proxy['id']}/explain", question, headers).json["data"]
    assert api.fleet.received[-1][1].method == "POST"
    assert data["rules"] == [
        {
            "policy": "office",
            "index": 0,
            "name": "docs only",
            "matches": "no",
            "why": "methods: POST is none of them",
            "use": None,
            "mode": "enforce",
        }
    ]
    refused = api.post(f"/proxies/{proxy['id']}/explain", {**QUESTION, "method": "A B"}, headers)
    assert error_of(refused)[2]["field"] == "method"


def test_explain_tries_a_policy_that_is_not_stored_with_the_lists_that_it_names(
    api: Api, headers: dict[str, str]
) -> None:
    proxy = create(api, headers)
    body = {"name": "ads", "kind": "domains", "entries": ["ads.example"]}
    stored = api.post("/lists", body, headers).json["data"]["list"]
    api.fleet.others[forwarding_name(proxy["id"])] = lambda _question: EXPLAINED
    rule = {"name": "no ads", "match": {"destinations": ["list:ads"]}, "action": {"use": "deny"}}
    question = {**QUESTION, "draft": {"name": "new", "rules": [rule]}}
    assert api.post(f"/proxies/{proxy['id']}/explain", question, headers).status_code == 200
    sent = api.fleet.received[-1][1]
    assert (sent.draft.name, sent.draft.rules) == ("new", (RuleSpec("no ads", (), ("list:ads",), use="deny"),))
    assert [(each.id, each.name, each.kind) for each in sent.lists] == [(stored["id"], "ads", "domains")]
    assert sent.lists[0].file
    assert api.store.find("policies") == []
    rule["match"] = {"destinations": ["list:none"]}
    refused = error_of(api.post(f"/proxies/{proxy['id']}/explain", question, headers))
    assert refused[2] == {"field": "draft.rules[0].match.destinations[0]", "error": "there is no list 'none'"}
    rule["action"] = {"use": "direct", "reason": "no"}
    refused = error_of(api.post(f"/proxies/{proxy['id']}/explain", question, headers))
    assert refused[2]["field"] == "draft.rules[0].action.reason"


def test_a_policy_is_tried_only_for_those_who_may_give_the_proxy_one(api: Api, headers: dict[str, str]) -> None:
    """To compile it keeps the process of the proxy from all else."""
    proxy = create(api, headers)
    api.fleet.others[forwarding_name(proxy["id"])] = lambda _question: EXPLAINED
    api.add_user("reader", role="user", permissions=["proxy.read"])
    path, reader = f"/proxies/{proxy['id']}/explain", api.token("reader")
    assert api.post(path, QUESTION, reader).status_code == 200
    asked = len(api.fleet.received)
    refused = api.post(path, {**QUESTION, "draft": {"name": "new", "rules": []}}, reader)
    assert (refused.status_code, refused.json["error"]["message"]) == (403, "The permission proxy.write is required")
    assert len(api.fleet.received) == asked


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"client_ip": "192.0.2.1"}, "target"),
        ({**QUESTION, "client_ip": "a.example"}, "client_ip"),
        ({**QUESTION, "target": "127.1"}, "target"),
        ({**QUESTION, "target": "ftp://a.example"}, "target"),
        ({**QUESTION, "user": None}, "user"),
        ({**QUESTION, "colour": "red"}, "colour"),
    ],
)
def test_explain_with_a_bad_field_is_400_naming_it(
    api: Api, headers: dict[str, str], body: dict[str, Any], field: str
) -> None:
    proxy = create(api, headers)
    status, _code, details = error_of(api.post(f"/proxies/{proxy['id']}/explain", body, headers))
    assert (status, details["field"]) == (400, field)


def test_explain_of_another_scheme_says_which_targets_there_are(api: Api, headers: dict[str, str]) -> None:
    path = f"/proxies/{create(api, headers)['id']}/explain"
    details = error_of(api.post(path, {**QUESTION, "target": "ftp://a.example"}, headers))[2]
    assert details == {"field": "target", "error": "must be an http or https URL, host:port, or a host"}


def test_explain_of_an_inactive_a_silent_and_an_unknown_proxy(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers)
    path = f"/proxies/{proxy['id']}"
    assert error_of(api.post(f"{path}/explain", QUESTION, headers))[:2] == (503, "UNAVAILABLE")
    api.post(f"{path}/stop", None, headers)
    assert error_of(api.post(f"{path}/explain", QUESTION, headers))[2]["field"] == "status"
    assert error_of(api.post("/proxies/prx_none/explain", QUESTION, headers))[0] == 404


INSIDE = RequestExplanation(
    "deny",
    "destination_ip_prohibited",
    "10.0.0.7 is not a public address",
    "egress_guard",
    "enforce",
    "a.example",
    443,
    (ExplainedAddress("10.0.0.7", "deny", "destination_ip_prohibited", "10.0.0.7 is not a public address"),),
)


def test_addresses_of_a_name_are_returned_only_to_callers_who_may_change_proxies(
    api: Api, headers: dict[str, str]
) -> None:
    proxy = create(api, headers)
    path = f"/proxies/{proxy['id']}/explain"
    api.fleet.others[forwarding_name(proxy["id"])] = lambda _question: INSIDE
    assert api.post(path, QUESTION, headers).json["data"]["addresses"][0]["address"] == "10.0.0.7"
    api.add_user("reader", role="user")
    response = api.post(path, QUESTION, api.token("reader"))
    assert (response.json["data"]["decision"], response.json["data"]["addresses"]) == ("deny", [])
    assert "10.0.0.7" not in response.text
    assert "a.example" in response.json["data"]["rule"]
    written = api.post(path, {**QUESTION, "target": "10.0.0.7:443"}, api.token("reader"))
    assert written.json["data"]["addresses"][0]["address"] == "10.0.0.7"


def test_explain_needs_to_read_proxies_and_obeys_the_scope_of_a_key(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers)
    path = f"/proxies/{proxy['id']}/explain"
    api.add_user("unknown", role="user", permissions=["metrics.read"])
    assert api.post(path, QUESTION, api.token("unknown")).status_code == 403
    other = api.key(permissions=["proxy.read"], scope={"proxies": ["prx_other"]})
    assert api.post(path, QUESTION, other).status_code == 403


def test_the_client_is_at_the_callers_address_by_default(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers)
    asked: list[Explain] = []

    def reply(query: Explain) -> RequestExplanation:
        asked.append(query)
        return RequestExplanation("allow", "", "", "address", "enforce", "a.example", 443, ())

    api.fleet.others[forwarding_name(proxy["id"])] = reply
    path = f"/proxies/{proxy['id']}/explain"
    for address in ("192.0.2.7", "::ffff:192.0.2.8"):
        api.post(path, {"target": "a.example"}, headers, extras={"REMOTE_ADDR": address})
    api.post(path, {"target": "a.example", "client_ip": "192.0.2.9"}, headers)
    assert [each.client_ip for each in asked] == ["192.0.2.7", "192.0.2.8", "192.0.2.9"]
