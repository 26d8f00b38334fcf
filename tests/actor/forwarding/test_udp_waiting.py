"""Datagrams that wait for names: what is dead takes no room from the other targets of an association."""

from __future__ import annotations

import threading

import pytest

from actors.forwarding.connections.udp_targets import COST, OCTETS_MAX, Share, WaitingDatagram, WaitingDatagrams
from actors.forwarding.net.resolver import Resolution, Resolved
from actors.forwarding.protocols.http.targets import parse_authority
from tests.actor.forwarding.in_process_actor import Inside
from tests.actor.forwarding.socks_client import LOOPBACK, address, ask, datagram_socket, responder
from tests.kit.forwarding_rig import until

DEAD = 100
"""More datagrams than may wait."""


def named(name: str, port: int) -> bytes:
    return b"\x03" + bytes((len(name),)) + name.encode() + port.to_bytes(2, "big")


def test_names_that_do_not_resolve_keep_no_other_target_waiting() -> None:
    released = threading.Event()

    def look_up(name: str) -> Resolution:
        if name.endswith(".dead.example"):
            released.wait(60)
        return Resolved(("127.0.0.1",))

    with Inside(protocol="socks5") as rig, responder() as port, datagram_socket() as client:
        rig.inspect(lambda shared: setattr(shared.dialer.resolver, "_lookup", look_up))
        control, _code, relay = ask(rig, 3, address(bytes(4), 0))
        with control:
            for number in range(DEAD):
                client.sendto(b"\0\0\0" + named(f"r{number}.dead.example", port) + b"lost", relay)
            for target in (address(LOOPBACK, port), named("localhost", port), named("living.test", port)):
                client.sendto(b"\0\0\0" + target + b"hello", relay)
                assert client.recv(65535).endswith(b"HELLO"), target
            released.set()
            until(lambda: rig.inspect(lambda shared: not shared.dialer.resolver._pending), "all lookups are over")


def datagram(name: str, payload: bytes = b"x" * 488) -> WaitingDatagram:
    return WaitingDatagram(parse_authority(name.encode(), 53), payload, Share())


@pytest.fixture
def waiting() -> WaitingDatagrams:
    return WaitingDatagrams()


def test_a_name_is_looked_up_once_for_all_of_its_datagrams(waiting: WaitingDatagrams) -> None:
    added = [waiting.add(datagram("a.test", payload)) for payload in (b"1", b"2")]
    assert added == [True, False]
    assert [each.payload for each in waiting.pop("a.test")] == [b"1", b"2"]
    assert waiting.pop("a.test") == []
    assert waiting.add(datagram("a.test")), "that lookup is over"


def test_the_zone_that_has_the_most_loses_its_oldest(waiting: WaitingDatagrams) -> None:
    fit = OCTETS_MAX // (COST + 488)
    waiting.add(datagram("one.living.test"))
    for number in range(2 * fit):
        waiting.add(datagram(f"r{number}.dead.example"))
    waiting.add(datagram("two.living.test"))
    assert len(waiting.pop("one.living.test")) == len(waiting.pop("two.living.test")) == 1
    left = [number for number in range(2 * fit) if waiting.pop(f"r{number}.dead.example")]
    assert left == list(range(2 * fit - len(left), 2 * fit)), "the newest"
    assert len(left) >= fit - 2


def test_one_larger_than_the_bound_is_dropped(waiting: WaitingDatagrams) -> None:
    waiting.add(datagram("a.test"))
    assert not waiting.add(datagram("b.test", bytes(OCTETS_MAX)))
    assert len(waiting.pop("a.test")) == 1


def test_the_bound_is_kept(waiting: WaitingDatagrams) -> None:
    for number in range(1000):
        waiting.add(datagram(f"a.zone{number}.test", bytes(number)))
    kept = [each for number in range(1000) for each in waiting.pop(f"a.zone{number}.test")]
    assert 0 < sum(each.cost for each in kept) <= OCTETS_MAX
