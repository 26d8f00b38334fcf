"""The egress guard checks addresses; nothing is connected to here."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from dataclasses import replace
from ipaddress import ip_address

import psutil
import pytest

from actors.bus.messages.specs import EgressSpec
from actors.net.egress_guard import LOCAL_KNOWN, EgressGuard, OutgoingGuard, OwnListeners, UpstreamGuard
from actors.net.this_machine import Address, is_local
from tests.kit.tables import table


def guard(
    policy: str = "public_only", allow: tuple[str, ...] = (), own: tuple[tuple[str, int], ...] = ()
) -> EgressGuard:
    return EgressGuard(EgressSpec(policy, allow, own))


@table(
    "address",
    [
        "0.0.0.0", "0.1.2.3", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.255.255.255", "168.63.129.16",
        "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1",
        "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1",
        "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::1",
        "100::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:db8::1", "2002:7f00:1::", "2002:a00:1::",
        "3fff::1", "5f00::1", "fc00::1", "fd12:3456::1", "fe80::1", "fe80::1%lo", "fec0::1", "ff02::1",
    ],
)  # fmt: skip
def test_special_addresses_are_refused_in_every_form(address: str) -> None:
    assert guard().check(address, 80, "name.example") is not None


@table("address", ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::808:808"])
def test_public_addresses_pass(address: str) -> None:
    assert guard().check(address, 80, "name.example") is None


def test_exceptions_by_network_and_by_name() -> None:
    check = guard(allow=("10.0.0.0/8", "::1", "intra.example", "*.lab.example")).check
    assert check("10.9.9.9", 80, "x") is None
    assert check("::ffff:10.9.9.9", 80, "x") is None
    assert check("::1", 80, "x") is None
    assert check("192.168.1.1", 80, "intra.example") is None
    assert check("192.168.1.1", 80, "a.lab.example.") is None
    assert check("192.168.1.1", 80, "lab.example") is not None
    assert check("192.168.1.1", 80, "evilintra.example") is not None
    assert check("192.168.1.1", 80, "x") is not None


@pytest.mark.parametrize("policy", ["public_only", "off"])
def test_the_products_own_listeners_are_refused_even_when_excepted(policy: str) -> None:
    check = guard(policy, ("127.0.0.0/8", "::1"), (("127.0.0.1", 8080), ("0.0.0.0", 3128), ("::", 3129))).check
    assert check("127.0.0.1", 8080, "x") is not None
    assert check("::ffff:127.0.0.1", 8080, "x") is not None
    assert check("0.0.0.0", 8080, "x") is not None
    assert check("127.0.0.2", 3128, "x") is not None
    assert check("::1", 3129, "x") is not None
    assert check("127.0.0.1", 8081, "x") is None
    assert check("127.0.0.2", 8080, "x") is None


def test_off_lets_everything_else_pass() -> None:
    assert guard("off").check("169.254.169.254", 80, "x") is None


# --- addresses of this machine ---


class Machine:
    """A machine with one public address, which it may lose."""

    def __init__(self) -> None:
        self.addresses = {ip_address("8.8.4.4")}
        self.now = 1000.0

    def is_local(self, address: Address) -> bool:
        return address in self.addresses

    def guard(self, allow: tuple[str, ...] = ()) -> EgressGuard:
        return EgressGuard(EgressSpec("public_only", allow, ()), self.is_local, lambda: self.now)


def test_a_public_address_of_this_machine_is_refused_in_every_form() -> None:
    machine = Machine()
    for address in ("8.8.4.4", "::ffff:8.8.4.4", "64:ff9b::808:404"):
        assert machine.guard().check(address, 443, "a.example") is not None
    assert machine.guard().check("8.8.8.8", 443, "a.example") is None
    assert machine.guard(("8.8.4.4",)).check("8.8.4.4", 443, "a.example") is None


def test_addresses_that_come_and_go_are_noticed() -> None:
    machine = Machine()
    guard = machine.guard()
    assert guard.check("8.8.8.8", 443, "a.example") is None
    machine.addresses = {ip_address("8.8.8.8")}
    machine.now += LOCAL_KNOWN + 1
    assert guard.check("8.8.8.8", 443, "a.example") is not None
    machine.addresses = set()
    machine.now += LOCAL_KNOWN + 1
    assert guard.check("8.8.8.8", 443, "a.example") is None


def test_addresses_of_the_interfaces_are_local_and_others_not() -> None:
    for entries in psutil.net_if_addrs().values():
        for entry in entries:
            if entry.family in (socket.AF_INET, socket.AF_INET6) and not entry.address.startswith("fe80"):
                assert is_local(ip_address(entry.address))
    assert not is_local(ip_address("8.8.8.8"))


IN_A_NAMESPACE = """
ip link set lo up
ip addr add 8.8.8.8/24 dev lo
ip addr add 8.8.8.9/24 dev lo
ip -6 addr add 2a00:1::1/128 dev lo nodad
ip -6 addr add 2a00:1::2/128 dev lo nodad
ip -6 route add local 2a00:9::/64 dev lo
exec "$0" -c '
from ipaddress import ip_address
from actors.net.this_machine import Address, is_local
for each in "8.8.8.8 8.8.8.9 2a00:1::1 2a00:1::2 2a00:9::5 1.1.1.1 2a00:2::1".split():
    print(each, is_local(ip_address(each)))
'
"""


def test_secondary_addresses_and_networks_that_are_routed_to_this_machine_are_local() -> None:
    command = ["unshare", "--map-root-user", "--net", "bash", "-e", "-c", IN_A_NAMESPACE, sys.executable]
    if subprocess.run(["unshare", "--map-root-user", "--net", "ip", "link"], capture_output=True).returncode:
        pytest.skip("no network namespace can be made here")
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line for line in lines if line.endswith("False")] == ["1.1.1.1 False", "2a00:2::1 False"]
    assert len(lines) == 7


def test_what_can_not_be_reported_now_is_refused_and_asked_again() -> None:
    errors = [errno.EMFILE]

    def is_one(_address: Address) -> bool:
        if errors:
            raise OSError(errors[0], os.strerror(errors.pop()))
        return False

    guard = EgressGuard(EgressSpec("public_only", (), ()), is_one, lambda: 1000.0)
    assert "Too many open files" in (guard.check("8.8.8.8", 443, "a.example") or "")
    assert guard.check("8.8.8.8", 443, "a.example") is None


# --- upstreams ---

OWN = (("127.0.0.1", 8080), ("127.0.0.1", 5556), ("127.0.0.1", 3128))
UPSTREAMS = EgressSpec("public_only", ("127.0.0.0/8",), OWN, OWN[:2])


@table(
    ("written", "address", "port", "passes"),
    [
        ("upstream.example", "8.8.8.8", 3128, True),
        ("127.0.0.1", "127.0.0.1", 3128, True),
        ("localhost", "127.0.0.1", 3128, True),
        ("evil.example", "127.0.0.1", 3128, False),
        ("127.0.0.1", "127.0.0.1", 8080, False),
        ("localhost", "127.0.0.1", 5556, False),
        ("excepted.example", "127.0.0.1", 22, True),
        ("10.0.0.1", "10.0.0.1", 3128, False),
        ("169.254.169.254", "169.254.169.254", 80, False),
    ],
)
def test_an_upstream_may_be(written: str, address: str, port: int, passes: bool) -> None:
    assert (UpstreamGuard(UPSTREAMS).check(address, port, written) is None) == passes


@table("address", ["127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::ffff:127.0.0.1"])
def test_an_upstream_from_a_source_is_never_an_own_proxy_however_it_is_written(address: str) -> None:
    spec = EgressSpec("off", (), (), own_ranges=(("0.0.0.0", 3128, 3129),))
    guard = UpstreamGuard(spec, local=lambda _address: True, fetched=True)
    for name in (address, "localhost", "localhost."):
        assert "from a source" in str(guard.check(address, 3128, name))
    assert "from a source" not in str(guard.check(address, 3130, address))
    assert UpstreamGuard(spec).check(address, 3128, address) is None


def test_upstreams_allow_stands_in_place_of_egress_allow_and_own_proxies_need_neither() -> None:
    guard = UpstreamGuard(replace(UPSTREAMS, upstreams_allow=("10.0.0.0/8", "corp.example")))
    assert guard.check("10.1.2.3", 3128, "10.1.2.3") is None
    assert guard.check("192.168.1.1", 3128, "corp.example") is None
    assert guard.check("127.0.0.1", 22, "127.0.0.1") is not None
    assert guard.check("127.0.0.1", 3128, "127.0.0.1") is None


@table("address", ["169.254.169.254", "168.63.129.16", "100.100.100.200", "fd00:ec2::254", "fe80::1"])
@table("policy", ["public_only", "private", "off"])
def test_no_exception_makes_a_metadata_address_an_upstream(policy: str, address: str) -> None:
    guard = UpstreamGuard(EgressSpec(policy, (), (), (), ("0.0.0.0/0", "::/0", "metadata.example")))
    assert guard.check(address, 80, "metadata.example") is not None


@pytest.mark.parametrize(("address", "passes"), [("10.0.0.1", True), ("127.0.0.1", True), ("169.254.169.254", False)])
def test_the_products_own_requests_reach_private_addresses_if_allowed_and_link_local_never(
    address: str, passes: bool
) -> None:
    assert (OutgoingGuard(()).check(address, 80, "a.example") is None) == passes
    assert ("a.key" in str(OutgoingGuard((), "a.key").check(address, 80, "a.example"))) == passes
    assert OutgoingGuard([(address, 80)]).check(address, 80, "a.example") is not None


def test_ten_thousand_own_listeners_are_read_only_at_the_port_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []

    def reading(text: str) -> Address:
        read.append(text)
        return ip_address(text)

    own = OwnListeners([(f"127.0.{number >> 8}.{number & 255}", 20_000 + number % 5_000) for number in range(10_000)])
    monkeypatch.setattr("actors.net.egress_guard.ip_address", reading)
    assert not own.has("127.0.0.9", 80)
    assert read == []
    assert own.has("127.0.0.9", 20_009)
    assert not own.has("127.0.0.9", 20_010)
    assert sorted(read) == ["127.0.0.10", "127.0.0.9", "127.0.0.9", "127.0.0.9", "127.0.19.145", "127.0.19.146"]
    read.clear()
    assert all(not own.has("192.0.2.1", 20_009) for _ in range(10))
    assert len(read) == 10, "each address that is asked about is read, and no listener again"
