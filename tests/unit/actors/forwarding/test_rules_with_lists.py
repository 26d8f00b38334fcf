"""Access rules whose entries name lists."""

from __future__ import annotations

import pytest

from actors.bus.messages.specs import AccessSpec
from actors.forwarding.access.rules import AccessRules
from actors.forwarding.protocols.failures import Decider
from config.net.entries import ALL_PORTS, ListHost, read_entry
from tests.kit.tables import table
from tests.unit.actors.forwarding.rule_lists import LISTS, Domains, Lists


def rules(allow: tuple[str, ...] = (), deny: tuple[str, ...] = (), lists: Lists = LISTS) -> AccessRules:
    return AccessRules(AccessSpec(allow_destinations=allow, deny_destinations=deny), lists=lists)


@table(
    ("written", "host", "ports"),
    [
        ("list:ads", ListHost("ads"), ALL_PORTS),
        ("list:ads:443", ListHost("ads"), (443, 443)),
        ("list:443:80-81", ListHost("443"), (80, 81)),
        ("list:443", "list", (443, 443)),
        ("list", "list", ALL_PORTS),
        ("geo:world:country=DE", ListHost("world", "country", "DE"), ALL_PORTS),
        ("geo:world:asn=64500:443", ListHost("world", "asn", "64500"), (443, 443)),
        ("geo:443", "geo", (443, 443)),
    ],
)
def test_an_entry_that_names_a_list(written: str, host: object, ports: tuple[int, int]) -> None:
    assert (read_entry(written).host, read_entry(written).ports) == (host, ports)


@table(
    "written",
    [
        "list:", "list:a b", "list:ads:", "list:ads:x", "list:ads:1:2", "list:-ads", "List:ads:443", "list:a/b",
        "list:" + "a" * 65, "geo:world", "geo:world:", "geo:world:country=de", "geo:world:country=DEU",
        "geo:world:city=Berlin", "geo:world:asn=0", "geo:world:asn=4294967296", "geo:world:asn=AS1", "geo::country=DE",
    ],
)  # fmt: skip
def test_an_entry_that_names_no_list(written: str) -> None:
    with pytest.raises(ValueError, match=r"must|ports|name of a list"):
        read_entry(written)


def test_a_denied_list_names_what_has_matched() -> None:
    judged = rules(deny=("a.example", "list:ads:443", "list:lan"))
    found = judged.match_name("www.ads.example", 443)
    assert found == (
        "destination_denied",
        "access.deny_destinations[1] list:ads:443 (ads.example)",
        Decider(rule="access.deny_destinations[1]", named_list="ads"),
    )
    assert judged.match_name("www.ads.example", 80) is None
    found = judged.match_address("b.example", 80, "10.1.2.3")
    assert found.rule == "access.deny_destinations[2] list:lan (10.0.0.0/8)"
    assert found.decider == Decider(rule="access.deny_destinations[2]", named_list="lan"), "no address in it"
    assert not judged.match_address("b.example", 80, "192.0.2.1").denied
    assert judged.match_address("b.example", 80, "::ffff:10.1.2.3").denied
    assert judged.match_address("b.example", 80, "64:ff9b::a01:203").denied


def test_an_allowed_list_lets_its_names_and_addresses_pass() -> None:
    by_name = rules(allow=("list:work",))
    found = by_name.match_address("WWW.work.example.", 80, "192.0.2.1")
    assert (found.reason, found.rule) == ("", "access.allow_destinations[0] list:work (work.example)")
    denied = by_name.match_name("other.example", 80)
    assert denied is not None
    assert denied.denied, "names decide, so nothing is resolved"
    by_address = rules(allow=("list:work", "list:lan"))
    assert by_address.match_name("other.example", 80) is None, "addresses decide"
    assert by_address.match_address("other.example", 80, "10.0.0.1").rule.endswith("list:lan (10.0.0.0/8)")
    assert by_address.match_address("other.example", 80, "192.0.2.1").denied
    assert by_address.match_unresolved("www.work.example", 80).rule.endswith("list:work (work.example)")
    assert by_address.match_unresolved("other.example", 80).denied


def test_the_first_entry_is_named() -> None:
    judged = rules(deny=("list:ads", "www.ads.example"))
    found = judged.match_name("www.ads.example", 80)
    assert found is not None
    assert found.rule == "access.deny_destinations[0] list:ads (ads.example)"
    found = rules(deny=("www.ads.example", "list:ads")).match_name("www.ads.example", 80)
    assert found is not None
    assert found.rule == "access.deny_destinations[0] www.ads.example"


def test_a_list_that_cannot_be_read_denies_everything_and_allows_nothing() -> None:
    found = rules(deny=("list:gone:443",)).match_name("any.example", 443)
    assert found is not None
    assert found.rule == "access.deny_destinations[0] list:gone:443 (which can't be read)"
    assert rules(deny=("list:gone:443",)).match_name("any.example", 80) is None
    allowed = rules(allow=("list:gone",))
    assert allowed.match_address("any.example", 443, "192.0.2.1").reason == "destination_not_allowed"
    assert rules(allow=("list:gone", "any.example")).match_address("any.example", 443, "192.0.2.1").reason == ""


def test_a_list_is_judged_as_it_is_at_that_moment() -> None:
    lists = Lists()
    judged = rules(deny=("list:ads",), lists=lists)
    assert judged.match_address("a.example", 80, "192.0.2.1").denied
    lists.lists["ads"] = Domains("b.example")
    assert not judged.match_address("a.example", 80, "192.0.2.1").denied
    assert judged.match_address("b.example", 80, "192.0.2.1").denied
