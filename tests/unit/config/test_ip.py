"""The plain form of an address, on which decisions about clients hang."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from actors.forwarding.limits.limits import client_key
from api.http.request_site import client_address, is_within
from api.security.api_keys import ApiKey, Scope
from config.net.addresses import plain
from config.net.names import from_this_machine
from tests.kit.tables import table

NAT64 = "64:ff9b::c000:207"


@table(
    ("text", "form"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::FFFF:c000:207", "192.0.2.7"),
        ("::ffff:192.0.2.7%eth0", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        (NAT64, NAT64),  # carried by a gateway: from here it is an IPv6 address
        ("::192.0.2.7", "::c000:207"),
        ("2002:c000:207::1", "2002:c000:207::1"),
    ],
)
def test_an_address_has_one_form(text: str, form: str) -> None:
    assert str(plain(text)) == form


@table("text", ["", "%eth0", "192.0.2.7:80", "[::1]", "192.0.2.07", "192.0.2.0/24", "a.test"])
def test_what_is_no_address_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="address"):
        plain(text)


@pytest.mark.parametrize("network", ["192.0.2.0/24", "fe80::/10", "64:ff9b::/96"])
def test_all_who_decide_by_networks_agree(network: str) -> None:
    def admitted(text: str) -> bool:
        key = ApiKey(
            id="key_1",
            name="k",
            prefix="p",
            key_hash="h",
            user_id="usr_1",
            permissions=[],
            created_at=0.0,
            scope=Scope(ip_whitelist=[network]),
        )
        assert key.admits(text) == is_within(text, [network]) == (plain(text) in ip_network(network))
        return key.admits(text)

    texts = ("192.0.2.7", "::ffff:192.0.2.7", "fe80::1%eth0", NAT64, "198.51.100.1", "2001:db8::1")
    assert [text for text in texts if admitted(text)] == {
        "192.0.2.0/24": ["192.0.2.7", "::ffff:192.0.2.7"],
        "fe80::/10": ["fe80::1%eth0"],
        "64:ff9b::/96": [NAT64],
    }[network]


def test_a_client_counts_as_one_however_its_address_is_written() -> None:
    assert client_key("::ffff:192.0.2.7") == client_key("192.0.2.7") == "192.0.2.7"
    assert client_key("fe80::1%eth0") == client_key("fe80::2%eth1") == "fe80::/64"
    assert client_key(NAT64) == "64:ff9b::/64"


def test_a_mapped_proxy_is_trusted_as_the_ipv4_address_that_it_is() -> None:
    assert client_address("::ffff:192.0.2.7", "198.51.100.1", ["192.0.2.7"]) == "198.51.100.1"


@pytest.mark.parametrize(
    ("host", "reached_by"),
    [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("192.0.2.7", "192.0.2.7"), ("fleet.example", "fleet.example")],
)
def test_a_listener_at_all_addresses_is_reached_by_loopback(host: str, reached_by: str) -> None:
    assert from_this_machine(host) == reached_by
