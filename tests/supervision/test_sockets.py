"""Listening sockets: what each refusal means, reservations that lapse, and that a release is felt everywhere."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator

import pytest

from actors.supervision.listeners.registry import RESERVED_FOR, ListenerRegistry, ListenError, listen, refusal
from tests.kit.clocks import Clock
from tests.kit.ports import free_port

LOCAL = "127.0.0.1"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keeper(clock: Clock) -> Iterator[ListenerRegistry]:
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


def test_a_reservation_lapses_and_a_kept_socket_does_not(keeper: ListenerRegistry, clock: Clock) -> None:
    reserved, kept = free_port(), free_port()
    keeper.reserve("reserved", LOCAL, reserved)
    keeper.keep("kept", LOCAL, kept)
    clock.now = RESERVED_FOR - 0.1
    assert keeper.lapse() == []
    clock.now = RESERVED_FOR
    assert keeper.lapse() == ["reserved"]
    assert not accepts(reserved)
    assert accepts(kept)


def test_a_reservation_that_is_kept_is_the_same_socket(keeper: ListenerRegistry) -> None:
    port = free_port()
    keeper.reserve("a", LOCAL, port)
    assert keeper.kept("a") is None
    held = keeper.get("a")
    assert keeper.keep("a", LOCAL, port) is held
    assert keeper.kept("a") == (LOCAL, port)


def test_reserving_what_is_held_is_a_success_and_what_another_holds_is_not(keeper: ListenerRegistry) -> None:
    port = free_port()
    keeper.keep("a", LOCAL, port)
    keeper.reserve("a", LOCAL, port)
    with pytest.raises(ListenError, match="already in use"):
        keeper.reserve("b", LOCAL, port)
    assert keeper.kept("a") == (LOCAL, port)


def test_a_refused_move_leaves_the_old_socket_listening(keeper: ListenerRegistry) -> None:
    old, taken = free_port(), free_port()
    keeper.keep("a", LOCAL, old)
    with listen(LOCAL, taken), pytest.raises(ListenError):
        keeper.reserve("a", LOCAL, taken)
    assert accepts(old)


def test_a_release_ends_listening_whoever_has_a_copy(keeper: ListenerRegistry) -> None:
    port = free_port()
    copy = keeper.keep("a", LOCAL, port).dup()
    keeper.release("a")
    assert not accepts(port)
    copy.close()


def test_what_is_retired_listens_until_its_end_or_until_its_address_is_wanted_again(keeper: ListenerRegistry) -> None:
    port = free_port()
    keeper.keep("a", LOCAL, port)
    keeper.retire("a")
    assert keeper.kept("a") is None
    assert accepts(port)
    keeper.keep("a", LOCAL, port)
    keeper.end_retired("a")
    assert accepts(port)
    keeper.retire("a")
    keeper.end_retired("a")
    assert not accepts(port)


def test_addresses_are_what_the_kernel_says(keeper: ListenerRegistry) -> None:
    port = free_port()
    before = keeper.changes
    keeper.keep("a", "localhost", port)
    ((host, listed),) = keeper.addresses()
    assert host in ("127.0.0.1", "::1")
    assert listed == port
    assert keeper.changes > before


# --- moves --------------------------------------------------------------------------------------------------------


def test_a_reservation_to_move_to_leaves_what_is_kept_until_it_is_taken(keeper: ListenerRegistry) -> None:
    here, there = free_port(), free_port()
    keeper.keep("a", LOCAL, here)
    keeper.reserve("a", LOCAL, there)
    assert keeper.kept("a") == (LOCAL, here)
    assert accepts(here)
    assert accepts(there)
    keeper.retire("a")
    keeper.keep("a", LOCAL, there)
    keeper.end_retired("a")
    assert keeper.kept("a") == (LOCAL, there)
    assert not accepts(here)
    assert accepts(there)


@pytest.mark.parametrize(("first", "then"), [(LOCAL, "0.0.0.0"), ("0.0.0.0", LOCAL)])
def test_a_move_to_an_overlapping_host_of_the_port_is_no_conflict_and_lets_nobody_else_in(
    keeper: ListenerRegistry, first: str, then: str
) -> None:
    port = free_port()
    keeper.keep("one", first, port)
    keeper.reserve("one", then, port)
    for other in ("two", "three"):
        with pytest.raises(ListenError):
            keeper.reserve(other, "0.0.0.0", port)
    keeper.keep("one", then, port)
    assert list(keeper.addresses()) == [(then, port)]
    assert accepts(port)


@pytest.mark.parametrize("how", ["cancel", "lapse"])
def test_a_move_that_comes_to_nothing_closes_the_new_socket_alone(
    keeper: ListenerRegistry, clock: Clock, how: str
) -> None:
    here, there = free_port(), free_port()
    keeper.keep("a", LOCAL, here)
    keeper.reserve("a", LOCAL, there)
    clock.now = RESERVED_FOR
    if how == "cancel":
        keeper.cancel("a")
    else:
        assert keeper.lapse() == ["a"]
    assert not accepts(there)
    assert accepts(here)
    assert keeper.kept("a") == (LOCAL, here)


def test_who_follows_at_an_address_goes_on_with_its_socket(keeper: ListenerRegistry) -> None:
    port = free_port()
    keeper.keep("old", LOCAL, port)
    keeper.reserve("new", LOCAL, port, instead_of=("other", "old"))
    keeper.retire("old")
    keeper.end_retired("old")
    assert accepts(port)
    keeper.keep("new", LOCAL, port)
    assert accepts(port)
    keeper.release("new")
    assert not accepts(port)


def test_who_was_to_follow_and_does_not_leaves_the_socket_to_its_owner(keeper: ListenerRegistry) -> None:
    port = free_port()
    keeper.keep("old", LOCAL, port)
    keeper.reserve("new", LOCAL, port, instead_of=("old",))
    keeper.cancel("new")
    assert accepts(port)
    keeper.reserve("newer", LOCAL, port, instead_of=("old",))
    keeper.release("old")
    assert accepts(port)
    keeper.release("newer")
    assert not accepts(port)


def test_two_may_change_places(keeper: ListenerRegistry) -> None:
    one, two = free_port(), free_port()
    keeper.keep("a", LOCAL, one)
    keeper.keep("b", LOCAL, two)
    keeper.reserve("a", LOCAL, two, instead_of=("a", "b"))
    keeper.reserve("b", LOCAL, one, instead_of=("a", "b"))
    for name in ("a", "b"):
        keeper.retire(name)
    keeper.keep("a", LOCAL, two)
    keeper.keep("b", LOCAL, one)
    for name in ("a", "b"):
        keeper.end_retired(name)
    assert (keeper.kept("a"), keeper.kept("b")) == ((LOCAL, two), (LOCAL, one))
    assert accepts(one)
    assert accepts(two)
    keeper.release("a")
    assert not accepts(two)
    assert accepts(one)
