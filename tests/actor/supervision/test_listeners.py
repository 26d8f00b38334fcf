"""Listening sockets: what each refusal means, reservations that lapse, and that a release is felt everywhere."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator

import pytest

from actors.supervision.listeners.bind import ListenError, listen, refusal
from actors.supervision.listeners.registry import RESERVED_FOR, ListenerRegistry
from tests.kit.clocks import Clock
from tests.kit.ports import free_port

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
        socket.create_connection((LOCAL, port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "0.0.0.0", "::"])
def test_addresses_and_names_are_listened_at(host: str) -> None:
    port = free_port()
    with listen(host, port) as listener:
        assert listener.getsockname()[1] == port
        assert not listener.getblocking()


def test_all_ipv4_and_all_ipv6_addresses_may_be_listened_at_side_by_side() -> None:
    port = free_port()
    with listen("0.0.0.0", port), listen("::", port):
        assert accepts(port)


def test_a_reservation_lapses_and_a_kept_socket_does_not(listeners: ListenerRegistry, clock: Clock) -> None:
    reserved, kept = free_port(), free_port()
    listeners.reserve("reserved", LOCAL, reserved)
    listeners.keep("kept", LOCAL, kept)
    clock.now = RESERVED_FOR - 0.1
    assert listeners.expire_reservations() == []
    clock.now = RESERVED_FOR
    assert listeners.expire_reservations() == ["reserved"]
    assert not accepts(reserved)
    assert accepts(kept)


def test_a_reservation_that_is_kept_is_the_same_socket(listeners: ListenerRegistry) -> None:
    port = free_port()
    listeners.reserve("a", LOCAL, port)
    assert listeners.kept("a") is None
    held = listeners.get("a")
    assert listeners.keep("a", LOCAL, port) is held
    assert listeners.kept("a") == (LOCAL, port)


def test_reserving_what_is_held_is_a_success_and_what_another_holds_is_not(listeners: ListenerRegistry) -> None:
    port = free_port()
    listeners.keep("a", LOCAL, port)
    listeners.reserve("a", LOCAL, port)
    with pytest.raises(ListenError, match="already in use"):
        listeners.reserve("b", LOCAL, port)
    assert listeners.kept("a") == (LOCAL, port)


def test_a_refused_move_leaves_the_old_socket_listening(listeners: ListenerRegistry) -> None:
    old, taken = free_port(), free_port()
    listeners.keep("a", LOCAL, old)
    with listen(LOCAL, taken), pytest.raises(ListenError):
        listeners.reserve("a", LOCAL, taken)
    assert accepts(old)


def test_a_release_ends_listening_any_who_has_a_copy(listeners: ListenerRegistry) -> None:
    port = free_port()
    copy = listeners.keep("a", LOCAL, port).dup()
    listeners.release("a")
    assert not accepts(port)
    copy.close()


def test_what_is_retired_listens_until_its_end_or_until_its_address_is_wanted_again(
    listeners: ListenerRegistry,
) -> None:
    port = free_port()
    listeners.keep("a", LOCAL, port)
    listeners.defer_close("a")
    assert listeners.kept("a") is None
    assert accepts(port)
    listeners.keep("a", LOCAL, port)
    listeners.close_deferred("a")
    assert accepts(port)
    listeners.defer_close("a")
    listeners.close_deferred("a")
    assert not accepts(port)


def test_addresses_are_what_the_kernel_says(listeners: ListenerRegistry) -> None:
    port = free_port()
    before = listeners.changes
    listeners.keep("a", "localhost", port)
    ((host, listed),) = listeners.addresses()
    assert host in ("127.0.0.1", "::1")
    assert listed == port
    assert listeners.changes > before


# --- moves --------------------------------------------------------------------------------------------------------


def test_a_reservation_to_move_to_leaves_what_is_kept_until_it_is_taken(listeners: ListenerRegistry) -> None:
    here, there = free_port(), free_port()
    listeners.keep("a", LOCAL, here)
    listeners.reserve("a", LOCAL, there)
    assert listeners.kept("a") == (LOCAL, here)
    assert accepts(here)
    assert accepts(there)
    listeners.defer_close("a")
    listeners.keep("a", LOCAL, there)
    listeners.close_deferred("a")
    assert listeners.kept("a") == (LOCAL, there)
    assert not accepts(here)
    assert accepts(there)


@pytest.mark.parametrize(("first", "then"), [(LOCAL, "0.0.0.0"), ("0.0.0.0", LOCAL)])
def test_a_move_to_an_overlapping_host_of_the_port_is_no_conflict_and_lets_no_one_else_in(
    listeners: ListenerRegistry, first: str, then: str
) -> None:
    port = free_port()
    listeners.keep("one", first, port)
    listeners.reserve("one", then, port)
    for other in ("two", "three"):
        with pytest.raises(ListenError):
            listeners.reserve(other, "0.0.0.0", port)
    listeners.keep("one", then, port)
    assert list(listeners.addresses()) == [(then, port)]
    assert accepts(port)


@pytest.mark.parametrize("how", ["cancel", "lapse"])
def test_a_move_that_comes_to_nothing_closes_the_new_socket_alone(
    listeners: ListenerRegistry, clock: Clock, how: str
) -> None:
    here, there = free_port(), free_port()
    listeners.keep("a", LOCAL, here)
    listeners.reserve("a", LOCAL, there)
    clock.now = RESERVED_FOR
    if how == "cancel":
        listeners.cancel("a")
    else:
        assert listeners.expire_reservations() == ["a"]
    assert not accepts(there)
    assert accepts(here)
    assert listeners.kept("a") == (LOCAL, here)


def test_who_follows_at_an_address_goes_on_with_its_socket(listeners: ListenerRegistry) -> None:
    port = free_port()
    listeners.keep("old", LOCAL, port)
    listeners.reserve("new", LOCAL, port, instead_of=("other", "old"))
    listeners.defer_close("old")
    listeners.close_deferred("old")
    assert accepts(port)
    listeners.keep("new", LOCAL, port)
    assert accepts(port)
    listeners.release("new")
    assert not accepts(port)


def test_who_was_to_follow_and_does_not_leaves_the_socket_to_its_owner(listeners: ListenerRegistry) -> None:
    port = free_port()
    listeners.keep("old", LOCAL, port)
    listeners.reserve("new", LOCAL, port, instead_of=("old",))
    listeners.cancel("new")
    assert accepts(port)
    listeners.reserve("newer", LOCAL, port, instead_of=("old",))
    listeners.release("old")
    assert accepts(port)
    listeners.release("newer")
    assert not accepts(port)


def test_two_may_change_places(listeners: ListenerRegistry) -> None:
    one, two = free_port(), free_port()
    listeners.keep("a", LOCAL, one)
    listeners.keep("b", LOCAL, two)
    listeners.reserve("a", LOCAL, two, instead_of=("a", "b"))
    listeners.reserve("b", LOCAL, one, instead_of=("a", "b"))
    for name in ("a", "b"):
        listeners.defer_close(name)
    listeners.keep("a", LOCAL, two)
    listeners.keep("b", LOCAL, one)
    for name in ("a", "b"):
        listeners.close_deferred(name)
    assert (listeners.kept("a"), listeners.kept("b")) == ((LOCAL, two), (LOCAL, one))
    assert accepts(one)
    assert accepts(two)
    listeners.release("a")
    assert not accepts(two)
    assert accepts(one)
