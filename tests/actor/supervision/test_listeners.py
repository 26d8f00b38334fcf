"""Listening sockets: what each refusal means, reservations that lapse, and that a release is felt everywhere."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator

import pytest

from actors.supervision.listeners.bind import ListenError, listen, refusal
from actors.supervision.listeners.registry import RESERVED_FOR, ListenerRegistry
from config.net.names import Ports
from tests.kit.clocks import Clock
from tests.kit.ports import free_port, free_ports
from tests.kit.tables import table

LOCAL = "127.0.0.1"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def listeners(clock: Clock) -> Iterator[ListenerRegistry]:
    made = ListenerRegistry(clock)
    yield made
    made.close()


def accepts(port: int) -> bool:
    try:
        socket.create_connection((LOCAL, port), timeout=60).close()
    except ConnectionRefusedError:
        return False
    return True


@table(
    ("number", "field", "words"),
    [
        (errno.EADDRINUSE, "port", "port 80 on host is already in use"),
        (errno.EACCES, "port", "permission"),
        (errno.EPERM, "port", "not allowed"),
        (errno.EADDRNOTAVAIL, "host", "host is not an address of this machine"),
        (errno.EAFNOSUPPORT, "host", "address family"),
        (errno.EINVAL, "host", "can't be listened at"),
        (errno.EMFILE, "port", os.strerror(errno.EMFILE)),
    ],
)
def test_every_refusal_names_the_field_at_fault(number: int, field: str, words: str) -> None:
    refused = refusal(OSError(number, os.strerror(number)), "host", 80)
    assert refused.field == field
    assert words in refused.error


@table(
    ("host", "field"),
    [
        ("192.0.2.1", "host"),
        ("no-such-name.invalid", "host"),
        ("not a name", "host"),
        ("x" * 300, "host"),
        ("a\0b", "host"),
        ("", "host"),
    ],
)
def test_an_address_that_is_not_ours_is_refused(host: str, field: str) -> None:
    with pytest.raises(ListenError) as refused:
        listen(host, free_port())
    assert refused.value.field == field


def test_a_port_in_use_is_refused() -> None:
    port = free_port()
    with listen(LOCAL, port), pytest.raises(ListenError, match="already in use"):
        listen(LOCAL, port)


@table("host", ["127.0.0.1", "::1", "localhost", "0.0.0.0", "::"])
def test_addresses_and_names_are_listened_at(host: str) -> None:
    port = free_port(host)
    with listen(host, port) as listener:
        assert listener.getsockname()[1] == port
        assert not listener.getblocking()


def test_all_ipv4_and_all_ipv6_addresses_may_be_listened_at_side_by_side() -> None:
    port = free_port("0.0.0.0")
    with listen("0.0.0.0", port), listen("::", port):
        assert accepts(port)


def test_a_reservation_lapses_and_a_kept_socket_does_not(listeners: ListenerRegistry, clock: Clock) -> None:
    reserved, kept = free_port(), free_port()
    listeners.reserve("reserved", LOCAL, Ports.of(reserved))
    listeners.keep("kept", LOCAL, Ports.of(kept))
    clock.now = RESERVED_FOR - 0.1
    assert listeners.expire_reservations() == []
    clock.now = RESERVED_FOR
    assert listeners.expire_reservations() == ["reserved"]
    assert not accepts(reserved)
    assert accepts(kept)


def test_a_reservation_that_is_kept_is_the_same_socket(listeners: ListenerRegistry) -> None:
    port = free_port()
    listeners.reserve("a", LOCAL, Ports.of(port))
    assert listeners.kept("a") is None
    (held,) = listeners.get("a")
    assert listeners.keep("a", LOCAL, Ports.of(port)) == [held]
    assert listeners.kept("a") == (LOCAL, Ports.of(port))


def test_reserving_what_is_held_is_a_success_and_what_another_holds_is_not(listeners: ListenerRegistry) -> None:
    port = free_port()
    listeners.keep("a", LOCAL, Ports.of(port))
    listeners.reserve("a", LOCAL, Ports.of(port))
    with pytest.raises(ListenError, match="already in use"):
        listeners.reserve("b", LOCAL, Ports.of(port))
    assert listeners.kept("a") == (LOCAL, Ports.of(port))


def test_a_refused_move_leaves_the_old_socket_listening(listeners: ListenerRegistry) -> None:
    old, taken = free_port(), free_port()
    listeners.keep("a", LOCAL, Ports.of(old))
    with listen(LOCAL, taken), pytest.raises(ListenError):
        listeners.reserve("a", LOCAL, Ports.of(taken))
    assert accepts(old)


def test_a_release_ends_listening_any_who_has_a_copy(listeners: ListenerRegistry) -> None:
    port = free_port()
    copy = listeners.keep("a", LOCAL, Ports.of(port))[0].dup()
    listeners.release("a")
    assert not accepts(port)
    copy.close()


def test_what_is_retired_listens_until_its_end_or_until_its_address_is_wanted_again(
    listeners: ListenerRegistry,
) -> None:
    port = free_port()
    listeners.keep("a", LOCAL, Ports.of(port))
    listeners.defer_close("a")
    assert listeners.kept("a") is None
    assert accepts(port)
    listeners.keep("a", LOCAL, Ports.of(port))
    listeners.close_deferred("a")
    assert accepts(port)
    listeners.defer_close("a")
    listeners.close_deferred("a")
    assert not accepts(port)


def test_addresses_are_what_the_kernel_says(listeners: ListenerRegistry) -> None:
    port = free_port()
    before = listeners.changes
    listeners.keep("a", "localhost", Ports.of(port))
    ((host, listed, _last),) = listeners.addresses()
    assert host in ("127.0.0.1", "::1")
    assert listed == port
    assert listeners.changes > before


# --- moves --------------------------------------------------------------------------------------------------------


def test_a_reservation_to_move_to_leaves_what_is_kept_until_it_is_taken(listeners: ListenerRegistry) -> None:
    here, there = free_port(), free_port()
    listeners.keep("a", LOCAL, Ports.of(here))
    listeners.reserve("a", LOCAL, Ports.of(there))
    assert listeners.kept("a") == (LOCAL, Ports.of(here))
    assert accepts(here)
    assert accepts(there)
    listeners.defer_close("a")
    listeners.keep("a", LOCAL, Ports.of(there))
    listeners.close_deferred("a")
    assert listeners.kept("a") == (LOCAL, Ports.of(there))
    assert not accepts(here)
    assert accepts(there)


@table(("first", "then"), [(LOCAL, "0.0.0.0"), ("0.0.0.0", LOCAL)])
def test_a_move_to_an_overlapping_host_of_the_port_is_no_conflict_and_lets_no_one_else_in(
    listeners: ListenerRegistry, first: str, then: str
) -> None:
    port = free_port("0.0.0.0")
    listeners.keep("one", first, Ports.of(port))
    listeners.reserve("one", then, Ports.of(port))
    for other in ("two", "three"):
        with pytest.raises(ListenError):
            listeners.reserve(other, "0.0.0.0", Ports.of(port))
    listeners.keep("one", then, Ports.of(port))
    assert listeners.addresses() == ((then, port, port),)
    assert accepts(port)


@pytest.mark.parametrize("how", ["cancel", "lapse"])
def test_a_move_that_comes_to_nothing_closes_the_new_socket_alone(
    listeners: ListenerRegistry, clock: Clock, how: str
) -> None:
    here, there = free_port(), free_port()
    listeners.keep("a", LOCAL, Ports.of(here))
    listeners.reserve("a", LOCAL, Ports.of(there))
    clock.now = RESERVED_FOR
    if how == "cancel":
        listeners.cancel("a")
    else:
        assert listeners.expire_reservations() == ["a"]
    assert not accepts(there)
    assert accepts(here)
    assert listeners.kept("a") == (LOCAL, Ports.of(here))


def test_who_follows_at_an_address_goes_on_with_its_socket(listeners: ListenerRegistry) -> None:
    port = free_port()
    listeners.keep("old", LOCAL, Ports.of(port))
    listeners.reserve("new", LOCAL, Ports.of(port), instead_of=("other", "old"))
    listeners.defer_close("old")
    listeners.close_deferred("old")
    assert accepts(port)
    listeners.keep("new", LOCAL, Ports.of(port))
    assert accepts(port)
    listeners.release("new")
    assert not accepts(port)


def test_who_was_to_follow_and_does_not_leaves_the_socket_to_its_owner(listeners: ListenerRegistry) -> None:
    port = free_port()
    listeners.keep("old", LOCAL, Ports.of(port))
    listeners.reserve("new", LOCAL, Ports.of(port), instead_of=("old",))
    listeners.cancel("new")
    assert accepts(port)
    listeners.reserve("newer", LOCAL, Ports.of(port), instead_of=("old",))
    listeners.release("old")
    assert accepts(port)
    listeners.release("newer")
    assert not accepts(port)


def test_two_may_change_places(listeners: ListenerRegistry) -> None:
    one, two = free_port(), free_port()
    listeners.keep("a", LOCAL, Ports.of(one))
    listeners.keep("b", LOCAL, Ports.of(two))
    listeners.reserve("a", LOCAL, Ports.of(two), instead_of=("a", "b"))
    listeners.reserve("b", LOCAL, Ports.of(one), instead_of=("a", "b"))
    for name in ("a", "b"):
        listeners.defer_close(name)
    listeners.keep("a", LOCAL, Ports.of(two))
    listeners.keep("b", LOCAL, Ports.of(one))
    for name in ("a", "b"):
        listeners.close_deferred(name)
    assert (listeners.kept("a"), listeners.kept("b")) == ((LOCAL, Ports.of(two)), (LOCAL, Ports.of(one)))
    assert accepts(one)
    assert accepts(two)
    listeners.release("a")
    assert not accepts(two)
    assert accepts(one)


# --- ranges of ports ----------------------------------------------------------------------------------------------


def test_a_range_is_listened_at_as_a_whole(listeners: ListenerRegistry) -> None:
    ports = free_ports(5)
    assert [each.getsockname()[1] for each in listeners.keep("a", "localhost", ports)] == list(ports)
    assert listeners.kept("a") == ("localhost", ports)
    ((host, first, last),) = listeners.addresses()
    assert (first, last) == (ports.first, ports.last)
    assert all(accepts(port) for port in ports) or host == "::1"
    listeners.release("a")
    assert listeners.addresses() == ()
    assert not any(accepts(port) for port in ports)


def test_a_range_with_a_port_in_the_way_is_refused_with_that_port_and_binds_none(listeners: ListenerRegistry) -> None:
    ports = free_ports(5)
    taken = ports.first + 2
    with listen(LOCAL, taken), pytest.raises(ListenError, match=f"port {taken} on {LOCAL} is already in use"):
        listeners.keep("a", LOCAL, ports)
    assert listeners.get("a") == []
    assert not any(accepts(port) for port in ports)


def test_ranges_that_touch_are_one_range_of_addresses(listeners: ListenerRegistry) -> None:
    ports = free_ports(6)
    middle = ports.first + 3
    listeners.keep("b", LOCAL, Ports(middle, ports.last))
    listeners.keep("a", LOCAL, Ports(ports.first, middle - 1))
    assert listeners.addresses() == ((LOCAL, ports.first, ports.last),)


def test_ranges_that_overlap_are_refused(listeners: ListenerRegistry) -> None:
    ports = free_ports(6)
    listeners.keep("a", LOCAL, Ports(ports.first, ports.first + 3))
    with pytest.raises(ListenError, match=f"port {ports.first + 2} "):
        listeners.reserve("b", LOCAL, Ports(ports.first + 2, ports.last))
    assert all(accepts(port) for port in range(ports.first, ports.first + 4))


def test_a_range_that_moves_goes_on_with_the_ports_that_it_has_already(listeners: ListenerRegistry) -> None:
    ports = free_ports(6)
    before, after = Ports(ports.first, ports.first + 3), Ports(ports.first + 2, ports.last)
    listeners.keep("a", LOCAL, before)
    with socket.create_connection((LOCAL, ports.first + 3), timeout=60) as queued:
        listeners.reserve("a", LOCAL, after)
        assert all(accepts(port) for port in ports)
        listeners.defer_close("a")
        assert all(accepts(port) for port in ports)
        found = listeners.keep("a", LOCAL, after)
        listeners.close_deferred("a")
        assert [accepts(port) for port in ports] == [False] * 2 + [True] * 4
        assert found[1].accept()[1] == queued.getsockname()


@table("order", ["leaves first", "follows first"])
def test_who_follows_at_a_part_of_a_range_goes_on_with_its_sockets(listeners: ListenerRegistry, order: str) -> None:
    ports = free_ports(6)
    shared = ports.first + 2
    listeners.keep("old", LOCAL, Ports(ports.first, shared))
    listeners.reserve("new", LOCAL, Ports(shared, ports.last), instead_of=("old",))
    if order == "follows first":
        listeners.keep("new", LOCAL, Ports(shared, ports.last))
    listeners.defer_close("old")
    listeners.close_deferred("old")
    listeners.keep("new", LOCAL, Ports(shared, ports.last))
    assert [accepts(port) for port in ports] == [False] * 2 + [True] * 4
    listeners.release("new")
    assert not any(accepts(port) for port in ports)


def test_a_reservation_of_a_part_that_comes_to_nothing_leaves_the_range(listeners: ListenerRegistry) -> None:
    ports = free_ports(4)
    listeners.keep("old", LOCAL, ports)
    listeners.reserve("new", LOCAL, Ports.of(ports.last), instead_of=("old",))
    listeners.cancel("new")
    assert all(accepts(port) for port in ports)
    assert listeners.kept("old") == (LOCAL, ports)


def test_a_range_may_move_to_all_addresses_of_the_machine(listeners: ListenerRegistry) -> None:
    ports = free_ports(3, "0.0.0.0")
    listeners.keep("a", LOCAL, ports)
    listeners.reserve("a", "0.0.0.0", ports)
    listeners.keep("a", "0.0.0.0", ports)
    assert listeners.addresses() == (("0.0.0.0", ports.first, ports.last),)
    assert all(accepts(port) for port in ports)


def test_who_has_a_port_is_known_also_at_all_addresses(listeners: ListenerRegistry) -> None:
    ports = free_ports(4)
    listeners.keep("a", LOCAL, ports)
    inside = ports.first + 2
    hosts = (LOCAL, "0.0.0.0", "127.0.0.2")
    assert [listeners.holder(host, inside) for host in hosts] == ["a", "a", ""]
    assert listeners.holder(LOCAL, ports.last + 1) == ""
    with pytest.raises(ListenError) as refused:
        listeners.keep("b", LOCAL, Ports(inside, inside))
    assert (refused.value.taken, refusal(OSError(errno.EACCES, ""), LOCAL, 80).taken) == (inside, 0)
