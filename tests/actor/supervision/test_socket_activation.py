"""Inherited listening sockets: recognized by their address, claimed once, closed when unclaimed."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from actors.supervision import systemd
from actors.supervision.listeners.bind import ListenError, listen
from actors.supervision.listeners.descriptor_store import (
    AT_ONCE,
    HANDED_OVER,
    STORED_MAX,
    DescriptorStore,
    batch_name,
    carrier_of,
    listeners_of,
    name_of,
    stored_name,
)
from actors.supervision.listeners.registry import ListenerRegistry
from actors.supervision.listeners.socket_activation import InheritedListeners, from_manager
from config.net.names import Ports
from tests.actor.supervision.manager import Manager
from tests.kit.ports import free_port, free_ports
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
        socket.create_connection((host, port), timeout=60).close()
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
    with socket.create_connection((LOCAL, port), timeout=60) as client:
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
    port = free_port("0.0.0.0")
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
    listeners.reserve("one", LOCAL, Ports.of(port))
    assert manager.names() == []
    listeners.keep("one", LOCAL, Ports.of(port))
    assert manager.names() == [name_of(LOCAL, port)]
    listeners.release("one")
    assert manager.names() == []
    assert not accepts(port)


def test_a_listener_that_moves_takes_its_place_in_the_store(
    manager: Manager, keeper_of: Callable[[InheritedListeners], ListenerRegistry]
) -> None:
    old, new = free_port(), free_port()
    listeners = keeper_of(InheritedListeners())
    listeners.keep("one", LOCAL, Ports.of(old))
    listeners.keep("one", LOCAL, Ports.of(new))
    assert manager.names() == [name_of(LOCAL, new)]


def test_at_the_end_of_the_product_stored_sockets_go_on_listening(
    manager: Manager, keeper_of: Callable[[InheritedListeners], ListenerRegistry]
) -> None:
    port = free_port()
    listeners = keeper_of(InheritedListeners())
    listeners.keep("one", LOCAL, Ports.of(port))
    listeners.keep_for_restart()
    listeners.defer_close("one")
    listeners.close_deferred("one")
    listeners.close()
    assert manager.names() == [name_of(LOCAL, port)]
    assert accepts(port)


def test_at_the_end_without_a_store_they_refuse(
    keeper_of: Callable[[InheritedListeners], ListenerRegistry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    port = free_port()
    listeners = keeper_of(InheritedListeners())
    copy = listeners.keep("one", LOCAL, Ports.of(port))[0].dup()
    listeners.keep_for_restart()
    listeners.release("one")
    with copy:
        assert not accepts(port)


def test_as_many_names_as_are_stored_fit_into_the_variable_that_passes_them() -> None:
    names = [name_of(f"10.0.{host}.7", 20_000 + port) for host in range(4) for port in range(STORED_MAX // 4)]
    assert len(set(names)) == STORED_MAX
    assert all(re.fullmatch("[0-9a-z]{7}", name) for name in names)
    variable = {"LISTEN_FDNAMES": ":".join(names)}
    assert subprocess.run(["true"], env={**os.environ, **variable}, check=False).returncode == 0


def test_no_more_are_stored(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("actors.supervision.listeners.descriptor_store.STORED_MAX", 2)
    store, ports = DescriptorStore(), free_ports(4)
    with ExitStack() as stack:
        made = [stack.enter_context(listen(LOCAL, port)) for port in ports]
        for each in made:
            store.put(each)
        assert manager.names() == sorted(map(stored_name, made[:2]))
        assert sum("refused while the service restarts" in each.message for each in caplog.records) == 1
        store.drop(made[0])
        store.put(made[3])
        assert manager.names() == sorted(map(stored_name, (made[1], made[3])))


class Turns:
    """In place of a loop: what is to be called later."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.pauses: list[float] = []

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.calls.append(call)
        self.pauses.append(seconds)

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        for each in calls:
            each()


def test_many_sockets_are_stored_a_few_at_a_time_and_never_wait_for_a_busy_manager(manager: Manager) -> None:
    store, turns = DescriptorStore(), Turns()
    store.later = turns.later
    with ExitStack() as stack:
        made = [stack.enter_context(listen(LOCAL, port)) for port in free_ports(100)]
        for each in made:
            store.put(each)
        assert manager.names() == []
        turns.turn()
        few = manager.names()
        assert 0 < len(few) <= AT_ONCE
        turns.turn()
        assert set(few) < set(manager.names())
        for _ in range(5):
            turns.turn()  # the manager takes nothing now, and its queue is full
        assert turns.pauses[-1] > turns.pauses[0]
        manager.always()
        store.flush()
        wait_until(lambda: manager.names() == sorted(map(stored_name, made)), "all are stored")
        turns.turn()
        assert turns.calls == []
        for each in made:
            store.drop(each)
        store.flush()
        wait_until(lambda: manager.names() == [], "none is stored")


def test_a_socket_that_is_dropped_before_it_was_stored_is_never_stored(manager: Manager) -> None:
    store, turns = DescriptorStore(), Turns()
    store.later = turns.later
    port = free_port()
    with listen(LOCAL, port) as first:
        store.put(first)
        store.drop(first)
    with listen(LOCAL, port) as second:
        store.put(second)
        turns.turn()
        assert manager.names() == [stored_name(second)]
        assert sum("FDSTORE=1" in each for each in manager.received) == 1


def test_the_name_of_a_socket_unit_is_left_alone(
    manager: Manager, keeper_of: Callable[[InheritedListeners], ListenerRegistry]
) -> None:
    port = free_port()
    listeners = keeper_of(InheritedListeners([("api", listen(LOCAL, port))]))
    listeners.keep("one", LOCAL, Ports.of(port))
    assert manager.names() == [name_of(LOCAL, port)]
    assert not any("FDSTOREREMOVE" in text for text in manager.received)


def test_all_ports_of_a_range_are_stored_and_known_again(
    manager: Manager, keeper_of: Callable[[InheritedListeners], ListenerRegistry]
) -> None:
    manager.always()  # its queue holds ten messages
    ports = free_ports(30)
    first = keeper_of(InheritedListeners())
    first.keep("one", LOCAL, ports)
    first.keep_for_restart()
    first.close()
    wait_until(lambda: len(manager.names()) == 1, "all are stored, together")
    passed = InheritedListeners([(name, each.dup()) for name, each in manager.stored.items()])
    again = keeper_of(passed)
    before = len(manager.received)
    found = again.keep("one", LOCAL, ports)
    assert not any("FDSTORE" in text for text in manager.received[before:])  # they are there already
    passed.close_unclaimed()
    assert [each.getsockname()[1] for each in found] == list(ports)
    assert all(accepts(port) for port in ports)
    again.release("one")
    wait_until(lambda: manager.names() == [], "none is stored")


def passed(manager: Manager) -> InheritedListeners:
    """What the next process gets."""
    return InheritedListeners([(name, each.dup()) for name, each in manager.stored.items()])


def abandon(listeners: ListenerRegistry) -> None:
    """As when the process is killed: the descriptors of what is kept are closed, and nothing else is done."""
    for each in listeners.hand_over():
        os.close(each)


def test_a_large_range_is_stored_before_anything_else_is_done(
    manager: Manager, keeper_of: Callable[[InheritedListeners], ListenerRegistry]
) -> None:
    ports, inherited = free_ports(700), InheritedListeners()
    inherited.store.later = Turns().later
    first = keeper_of(inherited)
    first.keep("one", LOCAL, ports)
    assert len(manager.names()) == 3
    abandon(first)
    assert all(accepts(port) for port in [*ports][::99])
    again = passed(manager)
    again.store.later = Turns().later
    assert [each.getsockname()[1] for each in keeper_of(again).keep("one", LOCAL, ports)] == list(ports)
    assert len(manager.names()) == 3


def test_ports_that_leave_a_range_are_free_and_the_others_are_stored(
    manager: Manager, keeper_of: Callable[[InheritedListeners], ListenerRegistry]
) -> None:
    manager.always()
    ports = free_ports(30)
    shorter = Ports.of(ports.first, ports.first + 9)
    inherited, turns = InheritedListeners(), Turns()
    inherited.store.later = turns.later
    listeners = keeper_of(inherited)
    for now in (ports, shorter):
        listeners.keep("one", LOCAL, now)
        for _ in range(9):
            turns.turn()
    wait_until(lambda: len(manager.names()) == 1, "what had all of them is released")
    with socket.socket() as other:
        other.bind((LOCAL, ports.last))  # without SO_REUSEADDR: nothing holds the address
    abandon(listeners)
    assert all(accepts(port) for port in shorter)
    assert not accepts(ports.first + 10)


def test_the_rest_of_a_range_is_stored_when_another_proxy_takes_some_ports(
    manager: Manager, keeper_of: Callable[[InheritedListeners], ListenerRegistry]
) -> None:
    manager.always()
    ports = free_ports(20)
    inherited, turns = InheritedListeners(), Turns()
    inherited.store.later = turns.later
    listeners = keeper_of(inherited)
    listeners.keep("one", LOCAL, ports)
    taken = Ports.of(ports.first, ports.first + 4)
    listeners.reserve("two", LOCAL, taken, instead_of=["one"])
    listeners.defer_close("one")
    listeners.keep("two", LOCAL, taken)
    listeners.close_deferred("one")
    inherited.store.flush()
    wait_until(lambda: len(manager.names()) == 1, "the batch of both is released")
    abandon(listeners)
    assert [accepts(port) for port in ports] == [port in taken for port in ports]


def test_a_batch_is_released_when_all_of_it_goes_on_as_ports_of_others(
    manager: Manager, keeper_of: Callable[[InheritedListeners], ListenerRegistry]
) -> None:
    manager.always()
    ports = free_ports(20)
    first, rest = Ports.of(ports.first, ports.first + 9), Ports.of(ports.first + 10, ports.last)
    inherited, turns = InheritedListeners(), Turns()
    inherited.store.later = turns.later
    listeners = keeper_of(inherited)
    listeners.keep("one", LOCAL, ports)
    listeners.reserve("two", LOCAL, rest, instead_of=["one"])
    listeners.keep("one", LOCAL, first)
    for _ in range(9):
        turns.turn()  # all is sent before the other proxy is stored
    listeners.keep("two", LOCAL, rest)
    inherited.store.flush()
    wait_until(lambda: len(manager.names()) == 2, "the batch of both is released")
    abandon(listeners)
    assert all(accepts(port) for port in ports)


def test_sockets_in_two_batches_are_stored_once_after_a_restart(
    manager: Manager, keeper_of: Callable[[InheritedListeners], ListenerRegistry]
) -> None:
    ports = free_ports(20)
    halves = [Ports.of(ports.first, ports.first + 9), Ports.of(ports.first + 10, ports.last)]
    with ExitStack() as stack:
        made = [stack.enter_context(listen(LOCAL, port)) for port in ports]
        for group in (made[5:15], made[:10], made[10:]):  # the first one is of ranges before
            with carrier_of(group) as carrier:
                systemd.store(batch_name(map(stored_name, group)), carrier.fileno())
        manager.listen()
    manager.always()
    listeners = keeper_of(passed(manager))
    for name, half in zip(("one", "two"), halves, strict=True):
        listeners.keep(name, LOCAL, half)
    wait_until(lambda: len(manager.names()) == 2, "the batch that is not used is released")
    abandon(listeners)
    assert all(accepts(port) for port in ports)


def test_sockets_that_were_stored_one_by_one_are_stored_together_for_a_range(
    manager: Manager, keeper_of: Callable[[InheritedListeners], ListenerRegistry]
) -> None:
    manager.always()
    ports, store = free_ports(20), DescriptorStore()
    for port in ports:
        with listen(LOCAL, port) as each:
            store.put(each)
    wait_until(lambda: len(manager.names()) == 20, "each is stored")
    again = keeper_of(passed(manager))
    again.keep("one", LOCAL, ports)
    wait_until(lambda: len(manager.names()) == 1, "they are stored together")
    abandon(again)
    assert all(accepts(port) for port in ports)


def test_a_range_that_the_program_before_hands_over_is_stored_once(
    manager: Manager, keeper_of: Callable[[InheritedListeners], ListenerRegistry]
) -> None:
    manager.always()
    ports = free_ports(20)
    before = keeper_of(InheritedListeners())
    before.keep("one", LOCAL, ports)
    wait_until(lambda: len(manager.names()) == 1, "they are stored")
    [name] = manager.names()
    given = [(HANDED_OVER, socket.socket(fileno=each)) for each in before.hand_over()]
    now = keeper_of(InheritedListeners(given))
    now.keep("one", LOCAL, ports)
    wait_until(lambda: any(f"FDSTOREREMOVE=1\nFDNAME={name}" in each for each in manager.received), "it is replaced")
    wait_until(lambda: manager.names() == [name], "they are stored anew")
    abandon(now)
    assert all(accepts(port) for port in ports)


def test_a_batch_without_its_sockets_is_released(manager: Manager) -> None:
    carrier = carrier_of([])
    assert listeners_of(carrier) == []
    systemd.store(batch_name(["x"]), carrier.fileno())
    assert len(manager.names()) == 1
    passed(manager).close_unclaimed()
    assert manager.names() == []
    carrier.close()


@pytest.mark.parametrize(("before", "after"), [(1, 1), (3, 3), (1, 3), (3, 1)])
def test_a_proxy_that_follows_at_an_address_by_another_name_stays_stored(
    manager: Manager, keeper_of: Callable[[InheritedListeners], ListenerRegistry], before: int, after: int
) -> None:
    manager.always()
    first = free_ports(3).first
    port, following = (Ports.of(first, first + count - 1) for count in (before, after))
    listeners = keeper_of(InheritedListeners())
    listeners.keep("one", "localhost", port)
    listeners.reserve("two", LOCAL, following, instead_of=["one"])
    listeners.defer_close("one")
    listeners.keep("two", LOCAL, following)
    listeners.close_deferred("one")
    wait_until(lambda: len(manager.names()) == 1, "nothing else is stored")
    abandon(listeners)
    assert all(accepts(each) for each in following)


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
            timeout=180,
        )
    assert done.stdout.splitlines() == [str([("api", ports[0], False), ("other", ports[1], False)]), "[]"], done.stderr


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
            timeout=180,
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
