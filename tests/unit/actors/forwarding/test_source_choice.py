"""Which address a request leaves from, of addresses and networks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.bus.loop import Loop
from actors.bus.messages.specs import AccountSpec
from actors.forwarding.net.egress import Requested, Sources, Stated
from actors.forwarding.net.source_address import NumberedAddresses, SourceChoice, may_serve
from config.net.entries import read_egress, usable, usual_form
from tests.kit.forwarding_rig import spec
from tests.kit.tables import table

FORBIDDEN = ("0.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32", "::/128", "ff00::/8", "fe80::/10")


def is_source(network: str) -> bool:
    net = ip_network(network)
    return not any(net.version == ip_network(each).version and net.overlaps(ip_network(each)) for each in FORBIDDEN)


ipv4_networks = st.builds(
    lambda number, length: str(ip_network((number, length), strict=False)),
    st.integers(0x0B000000, 0xDFFFFFFF),
    st.integers(20, 32),
).filter(is_source)
ipv6_networks = st.builds(
    lambda number, length: str(ip_network((IPv6Address(number), length), strict=False)),
    st.integers(0x2 << 124, (0x4 << 124) - 1),
    st.integers(16, 128),
).filter(is_source)
some_entries = st.lists(
    st.one_of(ipv4_networks, ipv6_networks, st.just("192.0.2.7"), st.just("2001:db8::7")), max_size=6
)
keys = st.one_of(st.none(), st.text(max_size=20))


def may_be_used(address: IPv4Address | IPv6Address, entry: str) -> bool:
    """The rule, said plainly."""
    net = ip_network(entry)
    if address not in net:
        return False
    if net.max_prefixlen - net.prefixlen <= 1:
        return True
    return address != net.network_address and (net.version == 6 or address != net.broadcast_address)


@given(some_entries, keys)
def test_an_address_is_chosen_of_each_family_that_has_one_and_of_no_other(entries: list[str], key: str | None) -> None:
    source = SourceChoice(tuple(entries)).choose(key, "x")
    for family, version in ((source.ipv4, 4), (source.ipv6, 6)):
        own = [each for each in entries if ip_network(each).version == version]
        assert bool(family) == bool(own)
        if family:
            holding = [each for each in own if may_be_used(ip_address(family), each)]
            assert holding
            assert (family in source.free) == any("/" in each for each in holding)


@given(some_entries, st.text(max_size=20))
def test_a_key_has_the_same_address_however_the_entries_are_ordered(entries: list[str], key: str) -> None:
    one, other = (SourceChoice(tuple(each)).choose(key, "x") for each in (entries, entries[::-1]))
    assert (one.ipv4, one.ipv6) == (other.ipv4, other.ipv6)
    assert one.drawn == ()


@given(st.lists(ipv4_networks, min_size=1, max_size=5))
def test_addresses_are_counted_once_and_each_is_there(entries: list[str]) -> None:
    addresses = NumberedAddresses(entries)
    expected = sorted({number for each in entries for number in range(usable(each)[0], usable(each)[1] + 1)})
    assert addresses.count == len(expected)
    for index in {0, addresses.count // 2, addresses.count - 1}:
        assert addresses.at(index) == expected[index]


@table(
    ("entry", "first", "last"),
    [
        ("192.0.2.0/24", "192.0.2.1", "192.0.2.254"),
        ("192.0.2.4/31", "192.0.2.4", "192.0.2.5"),
        ("192.0.2.4/32", "192.0.2.4", "192.0.2.4"),
        ("192.0.2.4", "192.0.2.4", "192.0.2.4"),
        ("2001:db8:7::/48", "2001:db8:7::1", "2001:db8:7:ffff:ffff:ffff:ffff:ffff"),
        ("2001:db8::4/127", "2001:db8::4", "2001:db8::5"),
        ("2001:db8::4/128", "2001:db8::4", "2001:db8::4"),
    ],
)
def test_addresses_of_a_network_itself_are_left_out(entry: str, first: str, last: str) -> None:
    assert usable(entry) == (int(ip_address(first)), int(ip_address(last)))


@pytest.mark.parametrize("policy_key", [None, "key"])
def test_choices_are_spread_evenly(policy_key: str | None) -> None:
    choice = SourceChoice(("192.0.2.0/30", "192.0.2.1", "198.51.100.8/31"))
    seen = Counter(choice.choose(policy_key and f"{policy_key}{turn}", "x").ipv4 for turn in range(4000))
    assert set(seen) == {"192.0.2.1", "192.0.2.2", "198.51.100.8", "198.51.100.9"}
    assert all(800 < count < 1200 for count in seen.values())  # six standard deviations and more


def test_a_large_network_is_spread_over_all_of_its_length() -> None:
    choice = SourceChoice(("2001:db8:7::/48",))
    seen = [int(IPv6Address(choice.choose(str(turn), "x").ipv6)) for turn in range(1000)]
    assert len(set(seen)) == 1000
    for bit in range(80):
        assert 350 < sum(number >> bit & 1 for number in seen) < 650


def test_a_single_address_beside_networks_needs_an_interface() -> None:
    source = SourceChoice(("192.0.2.7", "2001:db8::/64")).choose("a", "x")
    assert source.ipv4 == "192.0.2.7"
    assert source.free == (source.ipv6,)


@table("text", ["", "a", "0.0.0.0", "::", "224.0.0.1/32", "ff02::1", "fe80::/64", "::/0", "10.0.0.1:80"])
def test_what_nothing_leaves_from_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be an address of this machine or a network"):
        read_egress(text)


@table(
    ("text", "usual"),
    [
        ("192.0.2.4/24", "192.0.2.0/24"),
        ("::ffff:192.0.2.4", "192.0.2.4"),
        ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
        ("2001:DB8:7:0::/48", "2001:db8:7::/48"),
        ("192.0.2.4/32", "192.0.2.4/32"),
    ],
)
def test_entries_have_a_usual_form(text: str, usual: str) -> None:
    assert usual_form(text) == usual


# --- by what a request has its address ---

ALICE = AccountSpec("acc_1", "alice", None)
ENTRIES = ("192.0.2.0/24",)
STATED = Stated(ENTRIES, "x")


def sources(policy: str, clock: Callable[[], float] = time.monotonic) -> Sources:
    made = Sources(Loop(clock))
    assert made.configure(spec(1, egress=ENTRIES, bind_policy=policy))
    return made


def key(policy: str, requested: Requested, account: AccountSpec | None = None) -> str | None:
    return sources(policy).key(requested, account)


def test_a_session_belongs_to_its_user_and_a_client_without_one_to_its_address() -> None:
    one = key("session", Requested("198.51.100.1", "alice", "7"))
    assert one == key("session", Requested("198.51.100.2", "alice", "7"), ALICE)
    others = [
        Requested("198.51.100.1", "alice", "8"),
        Requested("198.51.100.1", "bob", "7"),
        Requested("198.51.100.1", "alice"),
        Requested("198.51.100.2", "alice"),
    ]
    assert len({one, *(key("session", each) for each in others)}) == 5
    assert key("session", Requested("198.51.100.1", "alice")) == key("session", Requested("198.51.100.1"))


def test_an_account_has_one_address_whatever_it_is_called() -> None:
    renamed = AccountSpec("acc_1", "alicia", None)
    assert key("account", Requested("a", "alice"), ALICE) == key("account", Requested("b", "alicia", "7"), renamed)
    assert (
        len({key("account", Requested("a", "bob")), key("account", Requested("a")), key("account", Requested("b"))})
        == 3
    )


def test_at_random_and_rotated_there_is_no_key() -> None:
    assert key("random", Requested("a", "alice", "7"), ALICE) is None
    assert key("session", Requested("a", "alice", "7", rotate=True)) is None


def test_a_session_that_rotates_stays_at_its_new_address_until_it_was_not_used_for_its_ttl() -> None:
    now = [100.0]
    ours = sources("session", lambda: now[0])
    plain = Requested("a", "alice", "7", ttl=60)

    def address(requested: Requested = plain) -> str:
        now[0] += 1
        ours._loop.turn(0)
        return ours.source(STATED, requested, None).ipv4

    own = address()
    rotated = [address(plain._replace(rotate=True)) for _ in range(4)]
    assert len({own, *rotated}) > 1
    for _ in range(4):
        assert address() == rotated[-1]
        assert ours.explained(STATED, plain, None).ipv4 == rotated[-1]
        now[0] += 50
    assert (
        address(plain._replace(session="8"))
        == sources("session").source(STATED, plain._replace(session="8"), None).ipv4
    )
    now[0] += 61
    assert address() == own


def test_an_explanation_of_a_session_that_is_to_rotate_has_no_address_and_no_effect() -> None:
    ours = sources("session")
    plain = Requested("a", "alice", "7")
    own = ours.source(STATED, plain, None)
    assert ours.explained(STATED, plain._replace(rotate=True), None).drawn == ENTRIES
    assert ours.source(STATED, plain, None) == own


def test_the_same_configuration_is_no_change() -> None:
    ours = sources("session")
    assert not ours.configure(spec(1, egress=ENTRIES, bind_policy="session"))
    assert ours.configure(spec(1, bind_address="127.0.0.9"))
    assert ours.own.ipv4 == "127.0.0.9"


# --- whether a kept connection may serve another request ---


def test_a_connection_serves_requests_from_the_same_address_alone() -> None:
    choice = SourceChoice(ENTRIES)
    one, other = choice.choose("a", "bind_address"), choice.choose("b", "bind_address")
    assert one.ipv4 != other.ipv4
    assert may_serve(one, choice.choose("a", "bind_address"))
    assert not may_serve(one, other)
    assert not may_serve(one, None)
    assert not may_serve(None, one)
    assert may_serve(None, None)
    assert one.key("a.example") != other.key("a.example")


def test_one_that_was_drawn_serves_another_draw_from_the_same_entries() -> None:
    choice = SourceChoice(ENTRIES)
    one = choice.choose(None, "bind_address")
    assert may_serve(one, choice.choose(None, "bind_address"))
    assert not may_serve(one, SourceChoice(("198.51.100.0/24",)).choose(None, "bind_address"))
    assert not may_serve(one, choice.choose("a", "bind_address"))
