"""Inherited listening sockets: recognized by their address, claimed once, closed when unclaimed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from actors.supervision import systemd
from actors.supervision.listeners.bind import ListenError, listen
from actors.supervision.listeners.descriptor_store import stored_name
from actors.supervision.listeners.registry import ListenerRegistry
from actors.supervision.listeners.socket_activation import InheritedListeners, from_manager
from tests.actor.supervision.manager import Manager
from tests.kit.ports import free_port
from tests.kit.wait import wait_until

LOCAL = "127.0.0.1"


@pytest.fixture
def manager(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    made = Manager(tmp_path_factory.mktemp("m"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(made.address))
    yield made
    made.close()


@pytest.fixture
def keeper_of() -> Iterator[Callable[[InheritedListeners], ListenerRegistry]]:
    made: list[ListenerRegistry] = []

    def make(inherited: InheritedListeners) -> ListenerRegistry:
        made.append(ListenerRegistry(lambda: 0.0, inherited.listen, inherited.store))
        return made[-1]

    yield make
    for each in made:
        each.close()


def accepts(port: int, host: str = LOCAL) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_socket_is_known_again_by_its_address_and_given_once() -> None:
    port = free_port()
    with listen(LOCAL, port) as older:
        inherited = InheritedListeners([("any name", older.dup())])
        with inherited.listen(LOCAL, port) as given:
            assert given.getsockname() == (LOCAL, port)
            with pytest.raises(ListenError, match="already in use"):
                inherited.listen(LOCAL, port)


def test_connections_that_queued_before_are_accepted_from_the_inherited_socket() -> None:
    port = free_port()
    older = listen(LOCAL, port)
    with socket.create_connection((LOCAL, port), timeout=5) as client:
        client.sendall(b"early")
        inherited = InheritedListeners([("", older.dup())])
        older.close()
        with inherited.listen("localhost", port) as given:
            given.setblocking(True)
            connection, _ = given.accept()
            with connection:
                assert connection.recv(5) == b"early"


def test_another_address_is_bound_anew_and_the_inherited_one_ends_when_no_one_wants_it() -> None:
    old, new = free_port(), free_port()
    older = listen(LOCAL, old)
    inherited = InheritedListeners([(stored_name(older), older.dup())])
    older.close()
    with inherited.listen(LOCAL, new):
        assert accepts(old)
        inherited.close_unclaimed()
        assert not accepts(old)
        assert accepts(new)


def test_the_socket_of_a_socket_unit_that_fits_nothing_is_left_to_the_unit() -> None:
    port = free_port()
    with listen(LOCAL, port) as units:
        inherited = InheritedListeners([("api", units.dup())])
        inherited.close_unclaimed()
        assert accepts(port)


def test_the_same_address_twice_is_one_socket() -> None:
    port = free_port()
    with listen(LOCAL, port) as older:
        inherited = InheritedListeners([(stored_name(older), older.dup()), ("api", older.dup())])
        with inherited.listen(LOCAL, port):
            inherited.close_unclaimed()
            assert accepts(port)


def test_ipv6_and_ipv4_wildcards_of_one_port_are_two_sockets() -> None:
    port = free_port()
    four, six = listen("0.0.0.0", port), listen("::", port)
    inherited = InheritedListeners([("", four), ("", six)])
    with inherited.listen("::", port) as given:
        assert given.family == socket.AF_INET6
        with inherited.listen("0.0.0.0", port) as other:
            assert other.family == socket.AF_INET


def test_what_is_no_listening_tcp_socket_is_closed(manager: Manager) -> None:
    datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    connected, other_end = socket.socketpair()
    bound = socket.socket()
    with other_end:
        inherited = InheritedListeners([("a", datagram), ("b", connected), ("c", bound)])
        assert [each.fileno() for each in (datagram, connected, bound)] == [-1, -1, -1]
        inherited.close_unclaimed()
    manager.listen()
    assert sum("FDSTOREREMOVE=1" in text for text in manager.received) == 3


def test_a_listener_is_in_the_store_from_keep_to_release(
    manager: Manager, keeper_of: Callable[[InheritedListeners], ListenerRegistry]
) -> None:
    port = free_port()
    listeners = keeper_of(InheritedListeners())
    listeners.reserve("one", LOCAL, port)
    assert manager.names() == []
    listeners.keep("one", LOCAL, port)
    assert manager.names() == [f"tcp-{LOCAL}-{port}"]
    listeners.release("one")
    assert manager.names() == []
    assert not accepts(port)


def test_a_listener_that_moves_takes_its_place_in_the_store(
    manager: Manager, keeper_of: Callable[[InheritedListeners], ListenerRegistry]
) -> None:
    old, new = free_port(), free_port()
    listeners = keeper_of(InheritedListeners())
    listeners.keep("one", LOCAL, old)
    listeners.keep("one", LOCAL, new)
    assert manager.names() == [f"tcp-{LOCAL}-{new}"]


def test_at_the_end_of_the_product_stored_sockets_go_on_listening(
    manager: Manager, keeper_of: Callable[[InheritedListeners], ListenerRegistry]
) -> None:
    port = free_port()
    listeners = keeper_of(InheritedListeners())
    listeners.keep("one", LOCAL, port)
    listeners.keep_for_restart()
    listeners.defer_close("one")
    listeners.close_deferred("one")
    listeners.close()
    assert manager.names() == [f"tcp-{LOCAL}-{port}"]
    assert accepts(port)


def test_at_the_end_without_a_store_they_refuse(
    keeper_of: Callable[[InheritedListeners], ListenerRegistry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    port = free_port()
    listeners = keeper_of(InheritedListeners())
    copy = listeners.keep("one", LOCAL, port).dup()
    listeners.keep_for_restart()
    listeners.release("one")
    with copy:
        assert not accepts(port)


def test_names_in_the_store_have_no_colon() -> None:
    with listen("::1", free_port()) as six:
        assert stored_name(six) == f"tcp-..1-{six.getsockname()[1]}"


def test_sockets_for_another_process_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "api"}
    assert from_manager(environment) == []
    assert environment == {}


def test_sockets_are_taken_as_systemd_passes_them() -> None:
    """In a process of its own, since they are the descriptors from 3 on."""
    program = (
        "import os, sys; os.environ['LISTEN_PID'] = str(os.getpid())\n"
        "from actors.supervision.listeners.socket_activation import from_manager\n"
        "taken = from_manager(os.environ)\n"
        "print([(name, each.getsockname()[1], os.get_inheritable(each.fileno())) for name, each in taken])\n"
        "print([name for name in os.environ if name.startswith('LISTEN_')])"
    )
    with listen(LOCAL, free_port()) as one, listen(LOCAL, free_port()) as two:
        ports = [each.getsockname()[1] for each in (one, two)]
        shell = f"exec 3<&{one.fileno()} 4<&{two.fileno()}; exec '{sys.executable}' -c \"$0\""
        done = subprocess.run(
            ["bash", "-c", shell, program],
            pass_fds=(one.fileno(), two.fileno()),
            env={**os.environ, "LISTEN_FDS": "2", "LISTEN_FDNAMES": "api:other"},
            capture_output=True,
            text=True,
            timeout=30,
        )
    assert done.stdout.splitlines() == [
        str([("api", ports[0], False), ("other", ports[1], False)]),
        "[]",
    ], done.stderr


def test_what_is_no_socket_at_all_is_closed_and_stops_no_start() -> None:
    """In a process of its own, since they are the descriptors from 3 on."""
    program = (
        "import os; os.environ['LISTEN_PID'] = str(os.getpid())\n"
        "from actors.supervision.listeners.socket_activation import from_manager\n"
        "taken = [(name, each.getsockname()[1]) for name, each in from_manager(os.environ)]\n"
        "print(taken, os.path.exists('/proc/self/fd/3'))"
    )
    with listen(LOCAL, free_port()) as one:
        shell = f"exec 4<&{one.fileno()} 3</dev/null; exec '{sys.executable}' -c \"$0\""
        done = subprocess.run(
            ["bash", "-c", shell, program],
            pass_fds=(one.fileno(),),
            env={**os.environ, "LISTEN_FDS": "3", "LISTEN_FDNAMES": "file:api:gone"},
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert done.stdout == f"{[('api', one.getsockname()[1])]} False\n", done.stderr


def test_a_manager_that_is_gone_is_named_once_until_it_is_back(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def tell(address: str) -> int:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        systemd.notify("WATCHDOG=1")
        return sum(record.levelname == "WARNING" for record in caplog.records)

    gone = f"{manager.address}.gone"
    assert [tell(gone), tell(gone), tell(str(manager.address)), tell(gone)] == [1, 1, 1, 2]
    tell(str(manager.address))


def test_what_must_arrive_waits_until_a_busy_manager_takes_it(manager: Manager) -> None:
    for _ in range(1_000):
        systemd.notify("WATCHDOG=1")  # more than its queue holds: none of these waits
    manager.always()
    systemd.notify("READY=1", "STATUS=ready")
    wait_until(lambda: "READY=1\nSTATUS=ready" in manager.received, "it has arrived")
