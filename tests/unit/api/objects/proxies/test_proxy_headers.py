"""`headers` of a proxy: which header fields it adds, sets and removes."""

from __future__ import annotations

from typing import Any

import pytest

from actors.bus.messages.specs import RequestHeadersSpec
from api.import_export.minimal import minimal
from tests.kit.api_stage import PROXY, Api, error_of
from tests.kit.tables import table
from tests.unit.api.audit_reader import rows
from tests.unit.api.importing import Importing

NOTHING: dict[str, Any] = {"via": "pseudonym", "forwarded": "off", "set": {}, "remove": []}
ALL = {"via": "off", "forwarded": "rfc7239", "set": {"X-Team": "a: b"}, "remove": ["Cookie", "Forwarded"]}


@pytest.mark.parametrize("given", [{}, {"headers": {}}])
def test_a_proxy_has_its_pseudonym_in_via_unless_said(api: Api, headers: dict[str, str], given: dict[str, Any]) -> None:
    proxy = api.post("/proxies", {**PROXY, **given}, headers).json["data"]["proxy"]
    assert proxy["headers"] == NOTHING
    spec = api.fleet.desired[proxy["id"]]
    assert (spec.via, spec.request_headers) == ("pseudonym", RequestHeadersSpec())


@pytest.mark.parametrize("via", ["pseudonym", "on", "off"])
def test_via_is_stored_sent_to_the_process_and_survives_other_changes(
    api: Api, headers: dict[str, str], via: str
) -> None:
    proxy = api.post("/proxies", {**PROXY, "headers": {"via": via}}, headers).json["data"]["proxy"]
    path = f"/proxies/{proxy['id']}"
    assert proxy["headers"] == {**NOTHING, "via": via}
    for body in ({"tags": ["x"]}, {"headers": {}}):
        assert api.patch(path, body, headers).json["data"]["proxy"]["headers"] == {**NOTHING, "via": via}
    assert api.fleet.desired[proxy["id"]].via == via
    assert api.patch(path, {"headers": {"via": "on"}}, headers).json["data"]["proxy"]["headers"] == {
        **NOTHING,
        "via": "on",
    }
    assert api.fleet.desired[proxy["id"]].via == "on"
    assert api.get(path, headers).json["data"]["proxy"]["headers"] == {**NOTHING, "via": "on"}


@table(
    ("given", "field"),
    [
        ({"via": "maybe"}, "headers.via"),
        ({"via": False}, "headers.via"),
        ({"via": None}, "headers.via"),
        ({"via": "OFF"}, "headers.via"),
        ({"forwarded": "on"}, "headers.forwarded"),
        ({"forwarded": None}, "headers.forwarded"),
        ({"add": {}}, "headers.add"),
        ({"set": ["X-A: b"]}, "headers.set"),
        ({"set": {"Host": "b"}}, "headers.set.Host"),
        ({"set": {"transfer-encoding": "chunked"}}, "headers.set.transfer-encoding"),
        ({"set": {"Content_Length": "5"}}, "headers.set.Content_Length"),
        ({"set": {"X A": "b"}}, "headers.set.X A"),
        ({"set": {"X-A": "b\r\nX-B: c"}}, "headers.set.X-A"),
        ({"set": {"X-A": "b\0"}}, "headers.set.X-A"),
        ({"set": {"X-A": "\u00e4"}}, "headers.set.X-A"),
        ({"set": {"X-A": ""}}, "headers.set.X-A"),
        ({"set": {"X-A": "x" * 4097}}, "headers.set.X-A"),
        ({"set": {f"X-{n}": "x" * 4096 for n in range(2)}}, "headers.set"),
        ({"set": {f"X-{n}": "x" for n in range(51)}}, "headers.set"),
        ({"set": {"X-A": "b", "x_a": "c"}}, "headers.set"),
        ({"set": {"Authorization": "Negotiate YII="}}, "headers.set"),
        ({"remove": ["Accept", "Connection"]}, "headers.remove[1]"),
        ({"remove": ["X:"]}, "headers.remove[0]"),
        ({"remove": ["X-A", "x-a"]}, "headers.remove"),
        ({"remove": [f"X-{n}" for n in range(51)]}, "headers.remove"),
        ({"remove": ["Accept", "x_a"], "set": {"X-A": "b"}}, "headers.remove[1]"),
        ({"forwarded": "rfc7239", "set": {"forwarded": "for=x"}}, "headers.set.forwarded"),
        ({"forwarded": "x-forwarded-for", "set": {"X-Forwarded-For": "x"}}, "headers.set.X-Forwarded-For"),
        ("off", "headers"),
        (None, "headers"),
    ],
)
def test_other_words_and_other_keys_are_refused_by_name(
    api: Api, headers: dict[str, str], given: Any, field: str
) -> None:
    status, _code, details = error_of(api.post("/proxies", {**PROXY, "headers": given}, headers))
    assert (status, details["field"]) == (400, field)
    assert api.store.find("proxies") == []


def test_a_wrong_word_is_400_with_the_allowed_ones(api: Api, headers: dict[str, str]) -> None:
    response = api.post("/proxies", {**PROXY, "headers": {"via": "maybe"}}, headers)
    assert "must be one of pseudonym, on, off" in response.text


def test_the_audit_trail_shows_what_via_was_and_is(api: Api, headers: dict[str, str]) -> None:
    proxy = api.post("/proxies", PROXY, headers).json["data"]["proxy"]
    api.patch(f"/proxies/{proxy['id']}", {"headers": {"via": "off"}}, headers)
    (row,) = rows(api, action="proxy.updated")
    assert (row["before"], row["after"]) == ({"headers": {"via": "pseudonym"}}, {"headers": {"via": "off"}})


def test_an_import_says_what_of_via_differs_and_an_entry_without_it_keeps_it(api: Api) -> None:
    one = Importing(api)
    quiet = {**PROXY, "headers": {"via": "off"}}
    one.apply(proxies=[quiet])
    assert one.export()["proxies"][0]["headers"] == {**NOTHING, "via": "off"}
    (change,) = one.apply("dry_run=true", proxies=[{**quiet, "headers": {"via": "on"}}])["changes"]
    assert change["fields"] == [{"field": "headers.via", "before": "off", "after": "on"}]
    assert one.apply(proxies=[PROXY])["summary"]["unchanged"] == 1


@pytest.mark.parametrize(("via", "exported"), [("pseudonym", None), ("on", {"via": "on"}), ("off", {"via": "off"})])
def test_a_minimal_export_has_via_only_where_it_is_not_as_by_default(api: Api, via: str, exported: Any) -> None:
    one = Importing(api)
    one.apply(proxies=[{**PROXY, "headers": {"via": via}}])
    assert minimal(one.export())["proxies"][0].get("headers") == exported


def test_all_of_it_is_stored_sent_and_changed_part_by_part(api: Api, headers: dict[str, str]) -> None:
    proxy = api.post("/proxies", {**PROXY, "headers": ALL}, headers).json["data"]["proxy"]
    assert proxy["headers"] == ALL
    sent = RequestHeadersSpec("rfc7239", (("X-Team", "a: b"),), ("Cookie", "Forwarded"))
    assert api.fleet.desired[proxy["id"]].request_headers == sent
    path = f"/proxies/{proxy['id']}"
    for part, value in (("set", {"X-B": "c"}), ("set", {}), ("remove", []), ("forwarded", "off")):
        changed = api.patch(path, {"headers": {part: value}}, headers).json["data"]["proxy"]["headers"]
        assert changed[part] == value
    assert changed == {**NOTHING, "via": "off"}


def test_a_change_may_not_contradict_what_is_stored(api: Api, headers: dict[str, str]) -> None:
    proxy = api.post("/proxies", {**PROXY, "headers": {"set": {"Forwarded": "for=x"}}}, headers).json["data"]["proxy"]
    path = f"/proxies/{proxy['id']}"
    for given, field in (({"forwarded": "rfc7239"}, "set.Forwarded"), ({"remove": ["forwarded"]}, "remove[0]")):
        status, _code, details = error_of(api.patch(path, {"headers": given}, headers))
        assert (status, details["field"]) == (400, f"headers.{field}")
    assert api.patch(path, {"headers": {"forwarded": "rfc7239", "set": {}}}, headers).status_code == 200


def test_import_and_export_carry_all_of_it(api: Api) -> None:
    one = Importing(api)
    one.apply(proxies=[{**PROXY, "headers": ALL}])
    assert minimal(one.export())["proxies"][0]["headers"] == ALL
    assert one.apply(proxies=[{**PROXY, "headers": ALL}])["summary"]["unchanged"] == 1
