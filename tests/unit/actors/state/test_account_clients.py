"""Client addresses of accounts: a limit is exact over processes, and an address counts for as long as it is in use."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from actors.mapped_file import Words
from actors.state import account_clients
from actors.state.account_clients import AccountClients, _digest, open_clients
from tests.kit.wait import wait_until

WINDOW = 600


class Machine:
    """Some processes that admit clients; each has the file open by itself."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "clients"
        self.now = 1000.0
        self.failures: list[str] = []

    def process(self) -> AccountClients:
        return open_clients(self.path, lambda: self.now, self.failures.append)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def clients(machine: Machine) -> AccountClients:
    return machine.process()


def admit(clients: AccountClients, address: str, limit: int = 2, window: int = WINDOW, owner: str = "acc_1") -> int:
    return clients.admit(owner, address, limit, window)


def test_so_many_addresses_use_an_account_over_all_processes_and_one_more_waits(machine: Machine) -> None:
    one, other = machine.process(), machine.process()
    assert (admit(one, "192.0.2.1"), admit(other, "192.0.2.2")) == (0, 0)
    assert admit(one, "192.0.2.3") == WINDOW
    assert admit(other, "192.0.2.3") == WINDOW
    assert (admit(one, "192.0.2.2"), admit(other, "192.0.2.1")) == (0, 0), "each is in use already"
    assert one.in_use("acc_1", WINDOW) == 2
    assert admit(one, "192.0.2.3", owner="acc_2") == 0, "another account has places of its own"


def test_those_that_are_there_when_a_limit_comes_count_together_however_many_they_are(machine: Machine) -> None:
    one, other = machine.process(), machine.process()
    there = [f"192.0.2.{number}" for number in range(5)]
    admit(other, there[0])
    one.include("acc_1", there, WINDOW)
    assert one.in_use("acc_1", WINDOW) == 5
    assert [admit(other, each) for each in there] == [0] * 5
    machine.now += 1
    assert admit(other, "192.0.2.9") == WINDOW - 1


def test_an_address_that_was_silent_for_the_window_makes_room(machine: Machine, clients: AccountClients) -> None:
    admit(clients, "192.0.2.1")
    machine.now += 100
    admit(clients, "192.0.2.2")
    machine.now += WINDOW - 101
    assert admit(clients, "192.0.2.3") == 1
    machine.now += 1
    assert admit(clients, "192.0.2.3") == 0
    assert admit(clients, "192.0.2.1") == 100, "the next that may become silent is the second"
    assert clients.in_use("acc_1", WINDOW) == 2


def test_each_use_counts_anew_and_a_refused_try_prolongs_nothing(machine: Machine, clients: AccountClients) -> None:
    admit(clients, "192.0.2.1", 1)
    for _ in range(5):
        machine.now += WINDOW - 1
        assert admit(clients, "192.0.2.1", 1) == 0
    machine.now += WINDOW - 1
    for _ in range(5):
        assert admit(clients, "192.0.2.2", 1) == 1
    machine.now += 1
    assert admit(clients, "192.0.2.2", 1) == 0
    assert admit(clients, "192.0.2.1", 1) == WINDOW


def test_what_is_only_asked_is_not_counted(machine: Machine, clients: AccountClients) -> None:
    assert clients.wait("acc_1", "192.0.2.1", 1, WINDOW) == 0
    assert clients.in_use("acc_1", WINDOW) == 0
    admit(clients, "192.0.2.1", 1)
    machine.now += 10
    assert clients.wait("acc_1", "192.0.2.1", 1, WINDOW) == 0
    assert clients.wait("acc_1", "192.0.2.2", 1, WINDOW) == WINDOW - 10, "nothing was prolonged"


@pytest.mark.parametrize(
    ("first", "second", "places"),
    [
        ("192.0.2.1", "::ffff:192.0.2.1", 1),
        ("2001:db8::1", "2001:db8::ffff:1", 1),
        ("2001:db8::1", "2001:db8:0:1::1", 2),
        ("192.0.2.1", "192.0.2.2", 2),
    ],
)
def test_an_ipv6_address_counts_by_its_64_and_a_mapped_one_as_ipv4(
    clients: AccountClients, first: str, second: str, places: int
) -> None:
    admit(clients, first)
    admit(clients, second)
    assert clients.in_use("acc_1", WINDOW) == places


def test_a_window_that_changes_holds_for_addresses_that_are_there(machine: Machine, clients: AccountClients) -> None:
    admit(clients, "192.0.2.1", 1, window=600)
    machine.now += 20
    assert admit(clients, "192.0.2.2", 1, window=600) == 580
    assert admit(clients, "192.0.2.2", 1, window=10) == 0, "a shorter one"
    machine.now += 20
    assert admit(clients, "192.0.2.3", 1, window=10) == 0
    machine.now += 20
    assert admit(clients, "192.0.2.4", 1, window=600) == 580, "a longer one, while the place is no other's"


def test_with_a_lower_limit_those_that_are_there_stay(machine: Machine, clients: AccountClients) -> None:
    for number in range(4):
        machine.now += 1
        assert admit(clients, f"192.0.2.{number}", 4) == 0
    assert [admit(clients, f"192.0.2.{number}", 2) for number in range(5)] == [0, 0, 0, 0, WINDOW]


def test_without_room_for_it_an_address_is_admitted_which_is_said(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_clients, "KIND", account_clients.KIND._replace(lines=4))
    clients = machine.process()
    assert [admit(clients, f"192.0.2.{number}", 5) for number in range(4)] == [0] * 4
    assert not machine.failures
    assert [admit(clients, "192.0.2.4", each) for each in (5, 4)] == [0, WINDOW], "what is known is refused"
    assert machine.failures == ["no room is left for more client addresses"]
    clients.include("acc_2", ["192.0.2.1"], WINDOW)
    assert machine.failures == ["no room is left for more client addresses"] * 2


def test_addresses_that_come_and_go_take_no_more_room(machine: Machine, clients: AccountClients) -> None:
    for number in range(50):
        assert admit(clients, f"192.0.2.{number}", 2, window=10) == 0
        machine.now += 6
    assert repr(clients) in ("<AccountClients in <Table: 2 lines>>", "<AccountClients in <Table: 3 lines>>")


class Reads:
    """The words of a table, which counts how often one is read."""

    def __init__(self, clients: AccountClients) -> None:
        self._words, self.count = clients._table.words, 0
        clients._table.words = cast("Words", self)

    def __getitem__(self, at: int) -> int:
        self.count += 1
        return self._words[at]

    def __setitem__(self, at: int | slice, value: Any) -> None:
        self._words[at] = value

    def __len__(self) -> int:
        return len(self._words)

    def of(self, admits: Callable[[], int]) -> int:
        self.count = 0
        admits()
        return self.count


def test_neither_who_is_refused_nor_who_is_new_costs_a_look_at_all_addresses(machine: Machine) -> None:
    one, other = machine.process(), machine.process()
    there = [f"10.0.{number // 250}.{number % 250}" for number in range(500)]
    for each in there:
        assert admit(one, each, 500) == 0
    assert admit(other, "192.0.2.1", 500) == WINDOW
    reads = Reads(other)
    assert reads.of(lambda: admit(other, "192.0.2.2", 500)) < 20, "refused"
    assert reads.of(lambda: admit(other, there[7], 500)) < 20, "known to another process"
    assert reads.of(lambda: other.wait("acc_1", there[8], 500, WINDOW)) < 20, "only asked"
    assert reads.of(lambda: admit(other, there[8], 500)) < 20
    machine.now += 1
    assert admit(other, "192.0.2.2", 500) == WINDOW - 1
    assert reads.of(lambda: admit(other, "192.0.2.3", 900)) > 500, "another limit"
    assert reads.of(lambda: admit(other, "192.0.2.4", 900)) < 500, "and one more"
    assert admit(one, "192.0.2.4", 502) == 0
    assert admit(one, "192.0.2.5", 502) == WINDOW - 1


def test_the_oldest_addresses_are_forgotten_first(clients: AccountClients, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_clients, "REMEMBERED", 64)
    for number in range(65):
        admit(clients, f"192.0.2.{number}", 100)
    assert len(clients._places) > 60
    assert (_digest("acc_1"), _digest("192.0.2.64")) in clients._places


def started(path: Path, gate: int, opens: int, addresses: Iterable[str], limit: int) -> int:
    """A process that admits clients at these addresses once `opens` is closed, and then ends with their number."""
    pid = os.fork()
    if not pid:
        with suppress(BaseException):
            os.close(opens)
            clients = open_clients(path)
            os.read(gate, 1)
            os._exit(sum(not clients.admit("acc_1", each, limit, WINDOW) for each in addresses))
        os._exit(255)
    return pid


def test_of_many_processes_at_once_exactly_the_limit_gets_in(tmp_path: Path) -> None:
    path, (gate, opens) = tmp_path / "clients", os.pipe()
    addresses = [f"10.0.{number // 256}.{number % 256}" for number in range(300)]
    processes = [started(path, gate, opens, addresses[each::6], 200) for each in range(6)]
    os.close(opens)
    assert sum(os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in processes) == 200
    assert open_clients(path).in_use("acc_1", WINDOW) == 200
    os.close(gate)


def test_a_process_that_is_killed_leaves_places_that_others_count_on_with(tmp_path: Path) -> None:
    path, (gate, opens) = tmp_path / "clients", os.pipe()
    clients = open_clients(path)  # first: who makes the file waits a few milliseconds for another one that does
    process = started(path, gate, opens, (f"10.0.0.{number % 250}" for number in itertools.count()), 3)
    os.close(opens)
    wait_until(lambda: clients.in_use("acc_1", WINDOW) == 3, "it has admitted three")
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    assert clients.admit("acc_1", "10.0.0.1", 3, WINDOW) == 0
    assert clients.admit("acc_1", "192.0.2.9", 3, WINDOW) > 0
    assert clients.admit("acc_1", "192.0.2.9", 4, WINDOW) == 0
    os.close(gate)


def test_while_a_process_hangs_in_a_bucket_clients_are_admitted_without_being_counted(machine: Machine) -> None:
    hanging, clients = machine.process(), machine.process()
    with hanging._table.exclusive(_digest("acc_1")):
        assert [clients.admit("acc_1", f"192.0.2.{each}", 1, WINDOW) for each in range(3)] == [0, 0, 0]
        clients.include("acc_1", ["192.0.2.7"], WINDOW)
        assert clients.in_use("acc_1", WINDOW) == 0
    assert machine.failures == ["another process that counts client addresses hangs"] * 4
    assert [clients.admit("acc_1", f"192.0.2.{each}", 1, WINDOW) for each in range(2)] == [0, WINDOW]
