"""The egress guard judges addresses; nothing is connected to here."""

from __future__ import annotations

import pytest

from actors.bus.messages import EgressSpec
from actors.forwarding.guard import Guard


def guard(policy: str = "public_only", allow: tuple[str, ...] = (), own: tuple[tuple[str, int], ...] = ()) -> Guard:
    return Guard(EgressSpec(policy, allow, own))


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "0.1.2.3",
        "10.1.2.3",
        "100.64.0.1",
        "127.0.0.1",
        "127.255.255.255",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a00:1",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a00:1::",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fd12:3456::1",
        "fe80::1",
        "fe80::1%lo",
        "fec0::1",
        "ff02::1",
    ],
)
def test_special_addresses_are_refused_in_every_form(address: str) -> None:
    assert guard().judge(address, 80, "name.example") is not None


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::808:808"]
)
def test_public_addresses_pass(address: str) -> None:
    assert guard().judge(address, 80, "name.example") is None


def test_exceptions_by_network_and_by_name() -> None:
    judge = guard(allow=("10.0.0.0/8", "::1", "intra.example", "*.lab.example")).judge
    assert judge("10.9.9.9", 80, "x") is None
    assert judge("::ffff:10.9.9.9", 80, "x") is None
    assert judge("::1", 80, "x") is None
    assert judge("192.168.1.1", 80, "intra.example") is None
    assert judge("192.168.1.1", 80, "a.lab.example.") is None
    assert judge("192.168.1.1", 80, "lab.example") is not None
    assert judge("192.168.1.1", 80, "evilintra.example") is not None
    assert judge("192.168.1.1", 80, "x") is not None


@pytest.mark.parametrize("policy", ["public_only", "off"])
def test_the_products_own_listeners_are_refused_even_when_excepted(policy: str) -> None:
    judge = guard(policy, ("127.0.0.0/8", "::1"), (("127.0.0.1", 8080), ("0.0.0.0", 3128), ("::", 3129))).judge
    assert judge("127.0.0.1", 8080, "x") is not None
    assert judge("::ffff:127.0.0.1", 8080, "x") is not None
    assert judge("0.0.0.0", 8080, "x") is not None
    assert judge("127.0.0.2", 3128, "x") is not None
    assert judge("::1", 3129, "x") is not None
    assert judge("127.0.0.1", 8081, "x") is None
    assert judge("127.0.0.2", 8080, "x") is None


def test_off_lets_everything_else_pass() -> None:
    assert guard("off").judge("169.254.169.254", 80, "x") is None
