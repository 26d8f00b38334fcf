"""Configurations of the kinds that the packages and documentation of squid and 3proxy show, converted whole."""

from __future__ import annotations

from typing import Any

import pytest

from api.import_export.convert.conversion import Converted, converted, guessed_format
from api.import_export.convert.report import Effect
from tests.unit.api.convert.expectations import EXPECTED, FOLDER, WHOLE, Lines


def convert_file(name: str) -> Converted:
    file = FOLDER / name
    return converted(file, guessed_format(file), "Europe/Berlin")


def lines_of(found: Converted, effect: Effect, name: str) -> Lines:
    """The lines of remarks with an effect, each once; those of another file with its name."""
    places = [each.place for each in found.report.remarks if each.effect is effect and each.place is not None]
    files = ((place.file.rpartition("/")[2], place.line) for place in places)
    return list(dict.fromkeys(line if file == name else f"{file}:{line}" for file, line in files))


def test_every_configuration_is_expected() -> None:
    assert {each.name for each in FOLDER.iterdir() if each.is_file()} == EXPECTED.keys()
    assert len(EXPECTED) > 20


@pytest.mark.parametrize("name", EXPECTED)
def test_each_line_is_carried_over_or_in_the_report(name: str) -> None:
    found, expected = convert_file(name), EXPECTED[name]
    assert found.problems == []
    assert len(found.document.get("proxies", [])) == expected.proxies
    assert sum(len(policy["rules"]) for policy in found.document.get("policies", [])) == expected.rules
    reported = {effect: lines_of(found, effect, name) for effect in Effect}
    assert reported == {effect: getattr(expected, effect.value) for effect in Effect}
    assert {each.directive for each in found.report.remarks if each.place is None} <= WHOLE


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_not_carried_over_comes_with_what_to_do(name: str) -> None:
    for remark in convert_file(name).report.remarks:
        assert remark.why
        assert remark.instead or remark.effect in (Effect.UNNEEDED, Effect.DIFFERS), remark.text()


def test_the_format_is_guessed() -> None:
    guessed = {name: guessed_format(FOLDER / name) for name in EXPECTED}
    assert guessed == {name: "3proxy" if name.endswith(".cfg") else "squid" for name in EXPECTED}


def rules_of(name: str) -> list[dict[str, Any]]:
    return [rule for policy in convert_file(name).document["policies"] for rule in policy["rules"]]


def test_the_rules_of_debian_s_configuration() -> None:
    rules = rules_of("squid-default.conf")
    uses = [rule["action"]["use"] for rule in rules]
    assert uses == ["deny", "deny", "direct", "deny"]
    assert rules[0]["match"]["destinations"][:2] == [":1-20", ":22-69"]
    assert rules[1]["match"] == {"destinations": [":1-442", ":444-65535"], "tunnel": True}
    assert rules[2]["match"] == {"clients": ["127.0.0.0/8", "::1"]}
    assert rules[3]["match"] == {}


def test_no_conversion_lifts_the_egress_guard() -> None:
    for name in EXPECTED:
        found = convert_file(name)
        assert found.document.keys() <= {"kind", "version", "proxies", "accounts", "lists", "pools", "policies"}
        assert any(each.directive == "egress guard" for each in found.report.remarks)


def test_upstreams_of_rules_are_pools() -> None:
    document = convert_file("squid-many-parents.conf").document
    pools = {pool["name"]: pool for pool in document["pools"]}
    assert [rule["action"]["use"] for rule in document["policies"][0]["rules"]] == [
        "deny",
        "pool:upstreams-tls",
        "pool:upstreams-one-two",
    ]
    assert pools["upstreams-one-two"]["policy"] == "round_robin"
    assert pools["upstreams-one-two"]["upstreams"][0] == {
        "protocol": "http",
        "host": "192.0.2.81",
        "port": 3128,
        "weight": 2,
        "name": "one",
    }
    assert pools["upstreams-tls"]["upstreams"][0]["tls"] == {"server_name": "gate.example"}


def test_accounts_of_htpasswd() -> None:
    alice, bob, carol = convert_file("squid-passwords.conf").document["accounts"]
    assert alice["password_hash"].startswith("$2y$05$")
    assert alice["proxies"] == {"names": ["squid 3128"]}
    assert [bob, carol] == [
        {"username": name, "enabled": False, "proxies": {"names": ["squid 3128"]}} for name in ("bob", "carol")
    ]


def test_accounts_and_limits_of_3proxy() -> None:
    document = convert_file("3proxy-counters.cfg").document
    one, two, three = document["accounts"]
    assert one["limits"] == {"bandwidth_out": 100_000}
    assert one["quota"] == {"bytes": 20 * 1024 * 1024, "period": "day"}
    assert two["quota"] == {"bytes": 1024 * 1024 * 1024, "period": "month"}
    assert three["enabled"] is False
    assert "password1" not in str(document)
    assert document["proxies"][0]["limits"] == {"bandwidth_out": 1_000_000}


def test_a_chain_and_operations_that_rules_do_not_distinguish_are_refused() -> None:
    rules = {rule["name"].partition(": ")[2]: rule["action"] for rule in rules_of("3proxy-parents.cfg")}
    assert rules["allow * 192.168.2.0/24 * 80"] == {"use": "deny"}
    assert rules["nsrecord blocked.example 0.0.0.0"] == {"use": "deny"}
    assert rules["allow * 192.168.1.0/24 *.fr"]["use"].startswith("pool:")
    assert not any(each["use"] == "direct" for name, each in rules.items() if name.endswith("* CONNECT"))


def test_ports_have_policies_of_their_own_where_they_differ() -> None:
    document = convert_file("squid-ports.conf").document
    assert [proxy["policy"] for proxy in document["proxies"]] == ["squid", "squid-2"]
    assert len(document["policies"][0]["rules"]) < len(document["policies"][1]["rules"])


def test_filters_that_can_not_be_asked_refuse_everything() -> None:
    first, *_rest = rules_of("squid-filters.conf")
    assert first["match"] == {}
    assert first["action"]["use"] == "deny"
    assert "line 5: url_rewrite_program" in first["name"]
