"""Configurations of the kinds that the packages and documentation of squid and 3proxy show, converted whole."""

from __future__ import annotations

from typing import Any

from api.import_export.convert import Converted, converted, guessed_format
from api.import_export.convert.statements import Effect
from tests.kit.tables import table
from tests.unit.api.convert.expectations import EXPECTED, FOLDER, Lines


def convert_file(name: str) -> Converted:
    file = FOLDER / name
    return converted(file, guessed_format(file))


def rules_of(name: str) -> list[dict[str, Any]]:
    return [rule for policy in convert_file(name).document["policies"] for rule in policy["rules"]]


def lines_of(found: Converted, effect: Effect, name: str) -> Lines:
    """The lines of remarks with an effect, each once; those of another file with its name."""
    places = [each.place for each in found.report.remarks if each.effect is effect and each.place is not None]
    files = ((place.file.rpartition("/")[2], place.line) for place in places)
    return list(dict.fromkeys(line if file == name else f"{file}:{line}" for file, line in files))


def test_every_configuration_is_expected() -> None:
    assert {each.name for each in FOLDER.iterdir() if each.is_file()} == EXPECTED.keys()


@table("name", EXPECTED)
def test_each_line_is_carried_over_or_in_the_report(name: str) -> None:
    """With what to do instead; and no conversion lifts the egress guard."""
    assert guessed_format(FOLDER / name) == ("3proxy" if name.endswith(".cfg") else "squid")
    found, expected = convert_file(name), EXPECTED[name]
    assert found.problems == []
    assert found.document.keys() <= {"kind", "version", "proxies", "accounts", "lists", "pools", "policies"}
    assert len(found.document.get("proxies", [])) == expected.proxies
    assert sum(len(policy["rules"]) for policy in found.document.get("policies", [])) == expected.rules
    reported = {effect: lines_of(found, effect, name) for effect in Effect}
    assert reported == {effect: getattr(expected, effect.value) for effect in Effect}
    assert "egress guard" in {each.directive for each in found.report.remarks if each.place is None}
    for remark in found.report.remarks:
        assert remark.why
        assert remark.instead or remark.effect in (Effect.UNNEEDED, Effect.DIFFERS), remark.text()


def test_the_rules_of_debian_s_configuration() -> None:
    rules = rules_of("squid-default.conf")
    assert [rule["action"]["use"] for rule in rules] == ["deny", "deny", "direct", "deny"]
    assert rules[0]["match"]["destinations"][:2] == [":1-20", ":22-69"]
    assert rules[1]["match"] == {"destinations": [":1-442", ":444-65535"], "tunnel": True}
    assert rules[2]["match"] == {"clients": ["127.0.0.0/8", "::1"]}
    assert rules[3]["match"] == {}


def test_upstreams_of_rules_are_pools() -> None:
    document = convert_file("squid-many-parents.conf").document
    pools = {pool["name"]: pool for pool in document["pools"]}
    uses = [rule["action"]["use"] for rule in document["policies"][0]["rules"]]
    assert uses == ["deny", "pool:upstreams-tls", "pool:upstreams-one-two"]
    assert pools["upstreams-one-two"]["policy"] == "round_robin"
    one = {"protocol": "http", "host": "192.0.2.81", "port": 3128, "weight": 2, "name": "one"}
    assert pools["upstreams-one-two"]["upstreams"][0] == one
    assert pools["upstreams-tls"]["upstreams"][0]["protocol"] == "https"


def test_fields_of_proxies() -> None:
    quiet = convert_file("squid-anonymous.conf").document["proxies"][0]["headers"]
    assert quiet == {"via": "off", "forwarded": "off", "remove": ["X-Forwarded-For", "Referer", "Cookie", "User-Agent"]}
    sources = convert_file("squid-outgoing.conf").document
    assert sources["proxies"][0]["bind_address"] == "127.0.0.4"
    assert sources["policies"][0]["rules"][0]["action"] == {"use": "direct"}
    web, socks = convert_file("3proxy-sample.cfg").document["proxies"]
    assert (web["protocol"], web["bind_address"], web["dns"]) == (
        "http",
        "127.0.0.2",
        {"servers": ["10.1.2.1", "10.2.2.2"]},
    )
    assert (socks["protocol"], socks["settings"]) == ("socks5", {"max_connections": 20})


def test_accounts() -> None:
    """Hashes of bcrypt are carried over, passwords in the clear are hashed, and the others are disabled."""
    alice, bob, carol = convert_file("squid-passwords.conf").document["accounts"]
    assert alice["password_hash"].startswith("$2y$05$")
    assert alice["proxies"] == {"names": ["squid 3128"]}
    assert [bob, carol] == [
        {"username": name, "enabled": False, "proxies": {"names": ["squid 3128"]}} for name in ("bob", "carol")
    ]
    sample = convert_file("3proxy-sample.cfg").document
    clear, hashed = sample["accounts"]
    assert clear["password_hash"].startswith("$2b$")
    assert ":3apa3a" not in str(sample)
    assert hashed["enabled"] is False


def test_a_chain_and_what_rules_do_not_distinguish_are_refused() -> None:
    rules = {rule["name"].partition(": ")[2]: rule["action"] for rule in rules_of("3proxy-parents.cfg")}
    assert rules["allow * 192.168.2.0/24 * 80"] == {"use": "deny"}
    assert rules["allow * 192.168.1.0/24 *.fr"]["use"].startswith("pool:")
    assert not any(each["use"] == "direct" for each in rules.values())


def test_filters_that_can_not_be_asked_refuse_everything() -> None:
    first, *_rest = rules_of("squid-filters.conf")
    assert (first["match"], first["action"]["use"]) == ({}, "deny")
    assert "line 5: url_rewrite_program" in first["name"]
