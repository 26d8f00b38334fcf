"""Access rules as tables, and against a naive reading of the same entries."""

from __future__ import annotations

import time
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.bus.messages.specs import AccessSpec
from actors.forwarding.access.rules import AccessRules
from actors.forwarding.protocols.failures import Decider
from config.net.entries import ALL_PORTS, Destination, read_destination, read_network
from tests.kit.tables import table

# --- the grammar ---


@table(
    ("written", "host", "ports"),
    [
        ("example.com", "example.com", ALL_PORTS),
        ("Example.COM.", "example.com", ALL_PORTS),
        ("*.example.com", "*.example.com", ALL_PORTS),
        ("*", "*", ALL_PORTS),
        ("*:443", "*", (443, 443)),
        (":25", "*", (25, 25)),
        (":8000-8999", "*", (8000, 8999)),
        ("*.example.com:443", "*.example.com", (443, 443)),
        ("localhost:1-65535", "localhost", ALL_PORTS),
        ("_dmarc.example.com", "_dmarc.example.com", ALL_PORTS),
        ("10.0.0.0/8", read_network("10.0.0.0/8"), ALL_PORTS),
        ("10.1.2.3/8", read_network("10.0.0.0/8"), ALL_PORTS),
        ("10.0.0.0/8:22", read_network("10.0.0.0/8"), (22, 22)),
        ("192.0.2.1", read_network("192.0.2.1/32"), ALL_PORTS),
        ("192.0.2.1:80-81", read_network("192.0.2.1/32"), (80, 81)),
        ("2001:db8::/32", read_network("2001:db8::/32"), ALL_PORTS),
        ("[2001:db8::/32]", read_network("2001:db8::/32"), ALL_PORTS),
        ("[2001:db8::/32]:443", read_network("2001:db8::/32"), (443, 443)),
        ("[::1]:80", read_network("::1/128"), (80, 80)),
        ("::ffff:10.0.0.0/104", read_network("10.0.0.0/8"), ALL_PORTS),
    ],
)
def test_an_entry_means(written: str, host: object, ports: tuple[int, int]) -> None:
    assert read_destination(written) == Destination(host, ports)  # type: ignore[arg-type]


@table(
    "written",
    [
        "",
        ":",
        ":0",
        ":65536",
        ":99-1",
        ":a",
        ":1-",
        ":-1",
        ":+1",
        ":٣",
        ": 25",
        "example.com:",
        "example.com:443:1",
        "ex*mple.com",
        "a.*.example.com",
        "*example.com",
        "**",
        "*.",
        ".example.com",
        "example..com",
        "-a.example",
        "exämple.com",
        "127.1",
        "0x7f.1",
        "2130706433",
        "10.0.0.0/33",
        "10.0.0.0/8:0",
        "10.0.0/8",
        "[10.0.0.0/8]:22",
        "[2001:db8::/32",
        "[2001:db8::/129]",
        "[]",
        "fe80::1%lo",
        "[::1]x",
        "http://example.com",
        "example.com/path",
        "exa mple.com",
        "example.com\n",
        "x" * 64 + ".com",
        "a." * 127 + "com",
    ],
)
def test_anything_else_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"must|only|ports"):
        read_destination(written)


@table("written", ["", "10.0.0.1:80", "example.com", "10.0.0.0/33", "[::1]", "fe80::1%lo", "127.1"])
def test_a_client_entry_is_an_address_or_a_network(written: str) -> None:
    with pytest.raises(ValueError, match="must"):
        read_network(written)


# --- clients ---


@table(
    ("allow", "deny", "client", "reason"),
    [
        ((), (), "192.0.2.1", ""),
        (("192.0.2.0/24",), (), "192.0.2.1", ""),
        (("192.0.2.0/24",), (), "::ffff:192.0.2.1", ""),
        (("192.0.2.0/24",), (), "192.0.3.1", "client_not_allowed"),
        (("192.0.2.0/24",), (), "2001:db8::1", "client_not_allowed"),
        ((), ("192.0.2.0/24",), "192.0.2.1", "client_denied"),
        ((), ("192.0.2.0/24",), "::ffff:192.0.2.1", "client_denied"),
        ((), ("192.0.2.0/24",), "192.0.3.1", ""),
        ((), ("fe80::/10",), "fe80::1%eth0", "client_denied"),
        (("192.0.2.0/24",), ("192.0.2.7",), "192.0.2.7", "client_denied"),
        (("192.0.2.0/24",), ("192.0.2.7",), "192.0.2.8", ""),
        (("0.0.0.0/0",), ("::/0",), "2001:db8::1", "client_denied"),
    ],
)
def test_a_client_is_judged(allow: tuple[str, ...], deny: tuple[str, ...], client: str, reason: str) -> None:
    assert AccessRules(AccessSpec(allow_clients=allow, deny_clients=deny)).match_client(client).reason == reason


# --- destinations ---

DENIED, NOT_ALLOWED = "destination_denied", "destination_not_allowed"


@table(
    ("allow", "deny", "target", "address", "reason"),
    [
        ((), (), ("a.example", 80), "192.0.2.1", ""),
        ((), ("a.example",), ("A.Example.", 80), "192.0.2.1", DENIED),
        ((), ("a.example",), ("b.a.example", 80), "192.0.2.1", ""),
        ((), ("a.example",), ("evila.example", 80), "192.0.2.1", ""),
        ((), ("*.a.example",), ("x.y.a.example", 80), "192.0.2.1", DENIED),
        ((), ("*.a.example",), ("a.example", 80), "192.0.2.1", ""),
        ((), ("*.a.example",), ("evila.example", 80), "192.0.2.1", ""),
        ((), ("*",), ("192.0.2.1", 80), "192.0.2.1", DENIED),
        ((), (":25",), ("a.example", 25), "192.0.2.1", DENIED),
        ((), (":25",), ("a.example", 26), "192.0.2.1", ""),
        ((), (":8000-8999",), ("a.example", 8999), "192.0.2.1", DENIED),
        ((), (":8000-8999",), ("a.example", 9000), "192.0.2.1", ""),
        ((), (":8000-8999", ":8500"), ("a.example", 7999), "192.0.2.1", ""),
        ((), ("10.0.0.0/8",), ("a.example", 80), "10.9.9.9", DENIED),
        ((), ("10.0.0.0/8",), ("a.example", 80), "::ffff:10.9.9.9", DENIED),
        ((), ("10.0.0.0/8",), ("a.example", 80), "64:ff9b::a09:909", DENIED),
        ((), ("10.0.0.0/8",), ("a.example", 80), "2002:a09:909::", DENIED),
        ((), ("10.0.0.0/8:22",), ("a.example", 23), "10.9.9.9", ""),
        ((), ("10.0.0.0/8:22",), ("a.example", 22), "10.9.9.9", DENIED),
        ((), ("[2001:db8::/32]:443",), ("a.example", 443), "2001:db8::1", DENIED),
        ((), ("[2001:db8::/32]:443",), ("a.example", 80), "2001:db8::1", ""),
        (("a.example",), (), ("a.example", 80), "192.0.2.1", ""),
        (("a.example",), (), ("b.example", 80), "192.0.2.1", NOT_ALLOWED),
        (("a.example:443",), (), ("a.example", 80), "192.0.2.1", NOT_ALLOWED),
        (("192.0.2.0/24",), (), ("any.example", 80), "192.0.2.1", ""),
        (("192.0.2.0/24",), (), ("any.example", 80), "198.51.100.1", NOT_ALLOWED),
        (("10.0.0.0/8",), (), ("a.example", 80), "64:ff9b::a09:909", NOT_ALLOWED),
        (("a.example",), ("192.0.2.0/24",), ("a.example", 80), "192.0.2.1", DENIED),
        (("*.example",), ("bad.example",), ("bad.example", 80), "192.0.2.1", DENIED),
        ((":443",), (), ("a.example", 443), "192.0.2.1", ""),
        ((":443",), (), ("a.example", 80), "192.0.2.1", NOT_ALLOWED),
    ],
)
def test_a_destination_is_judged(
    allow: tuple[str, ...], deny: tuple[str, ...], target: tuple[str, int], address: str, reason: str
) -> None:
    rules = AccessRules(AccessSpec(allow_destinations=allow, deny_destinations=deny))
    by_name = rules.match_name(*target)
    assert by_name is None or by_name.reason in ("", reason)
    assert rules.match_address(*target, address).reason == reason


def test_what_no_address_can_change_is_judged_before_resolving() -> None:
    match = AccessRules(AccessSpec(allow_destinations=("a.example",), deny_destinations=("b.example",))).match_name
    denied = Decider(rule="access.deny_destinations[0]")
    assert match("b.example", 80) == (DENIED, "access.deny_destinations[0] b.example", denied)
    missing = Decider(rule="access.allow_destinations")
    assert match("c.example", 80) == (NOT_ALLOWED, "access.allow_destinations: no entry matches", missing)
    assert match("a.example", 80) is None
    with_network = AccessRules(AccessSpec(allow_destinations=("a.example", "192.0.2.0/24")))
    assert with_network.match_name("c.example", 80) is None


def test_the_first_entry_that_matches_is_named() -> None:
    deny = ("192.0.2.0/24", ":80-90", "*.example", "a.example:80", "192.0.2.1")
    rules = AccessRules(AccessSpec(deny_destinations=deny))
    assert rules.match_address("a.example", 80, "192.0.2.1").rule == "access.deny_destinations[1] :80-90"
    assert rules.match_address("a.example", 99, "192.0.2.1").rule == "access.deny_destinations[2] *.example"
    assert rules.match_address("a.test", 99, "192.0.2.1").rule == "access.deny_destinations[0] 192.0.2.0/24"


# --- against a naive reading ---

NAMES = ("a.test", "b.a.test", "c.b.a.test", "xa.test", "test")
ADDRESSES = ("10.0.0.1", "10.0.1.1", "10.255.0.1", "192.0.2.1", "2001:db8::1", "2001:db8:1::1", "::ffff:10.0.0.1")
HOSTS = (
    *NAMES,
    *(f"*.{name}" for name in NAMES),
    "*",
    "10.0.0.0/8",
    "10.0.0.0/24",
    "10.0.0.1",
    "0.0.0.0/0",
    "[2001:db8::/32]",
    "[2001:db8:1::/48]",
    "[::/0]",
)
PORTS = ("", ":1", ":2", ":1-2", ":2-4", ":1-65535", ":3-3")

entries = st.lists(
    st.builds(lambda host, ports: host + ports, st.sampled_from(HOSTS), st.sampled_from(PORTS)), max_size=8
)


def naive_match(written: str, name: str, port: int, address: str) -> tuple[bool, bool]:
    """Does the entry match by name, does it match by address?"""
    entry = read_destination(written)
    if not entry.ports[0] <= port <= entry.ports[1]:
        return False, False
    if not isinstance(entry.host, str):
        plain = ip_address(address)
        return False, (getattr(plain, "ipv4_mapped", None) or plain) in entry.host
    below = entry.host.startswith("*.") and name.endswith(entry.host[1:])
    return entry.host in ("*", name) or below, False


def naive_first(written: list[str], name: str, port: int, address: str) -> int | None:
    matches = [naive_match(each, name, port, address) for each in written]
    for kind in (0, 1):
        for index, match in enumerate(matches):
            if match[kind]:
                return index
    return None


@given(entries, entries, st.sampled_from(NAMES), st.integers(1, 5), st.sampled_from(ADDRESSES))
def test_compiled_rules_decide_as_a_naive_reading_does(
    allow: list[str], deny: list[str], name: str, port: int, address: str
) -> None:
    rules = AccessRules(AccessSpec(allow_destinations=tuple(allow), deny_destinations=tuple(deny)))
    denied, allowed = naive_first(deny, name, port, address), naive_first(allow, name, port, address)
    expected = ("", "")
    no_networks = all(isinstance(read_destination(each).host, str) for each in allow)
    denied_by_name = denied is not None and naive_match(deny[denied], name, port, address)[0]
    if allow and no_networks and allowed is None and not denied_by_name:
        expected = (NOT_ALLOWED, "access.allow_destinations: no entry matches")  # no address can change that
    elif denied is not None:
        expected = (DENIED, f"access.deny_destinations[{denied}] {deny[denied]}")
    elif allow and allowed is None:
        expected = (NOT_ALLOWED, "access.allow_destinations: no entry matches")
    elif allowed is not None:
        expected = ("", f"access.allow_destinations[{allowed}] {allow[allowed]}")
    assert rules.match_address(name, port, address)[:2] == expected
    by_name = rules.match_name(name, port)
    assert by_name is None or not by_name.denied or by_name[:2] == expected


def test_thousands_of_entries_are_judged_in_microseconds() -> None:
    names = tuple(f"*.n{number}.example:{number % 60000 + 1}" for number in range(5000))
    networks = tuple(f"{number >> 8}.{number & 255}.0.0/{16 + number % 17}" for number in range(2560, 5000))
    ports = tuple(f":{port}" for port in range(20000, 22500))
    match = AccessRules(AccessSpec(deny_destinations=(*names, *networks, *ports))).match_address
    began = time.thread_time()
    for _ in range(1000):
        match("a.b.c.other.example", 443, "198.51.100.1")
    assert time.thread_time() - began < 1.0  # 1 ms each; a scan of all entries takes several
