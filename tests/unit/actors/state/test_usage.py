"""The table of what accounts use: exact for every process, whichever is killed at whatever moment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from actors.mapped_file import Words
from actors.state.booked_usage import BookedUsage, CountedLine, open_booked
from actors.state.processes import open_processes
from actors.state.table import COLLECTOR, FOREVER, OWNER, RELEASED, open_table
from actors.state.usage import (
    BYTES_IN,
    CHANGES,
    CONNECTIONS,
    SERIAL,
    STATE,
    TABLE,
    USAGE,
    SharedUsage,
    UsageOfProcess,
    period_word,
)
from tests.kit.live_state import PROXY, Killed, Machine, Writes, dies_after
from tests.kit.tables import table as table_of

PERIOD = period_word("day", 86_400.0)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.files.adopt({})
    return made


def new(machine: Machine, account_id: str = "acc_1") -> SharedUsage:
    """What a new process has of an account, which has a line in the table."""
    made = UsageOfProcess(machine.state()).account(account_id)
    made.begin(PERIOD)
    assert made.claim()
    return made


def end(machine: Machine, shared: SharedUsage) -> None:
    """Its process has died."""
    machine.files.end(PROXY, shared._process.instance)


def uses(shared: SharedUsage, count: int) -> None:
    shared.numbers[shared.line + BYTES_IN] += count
    shared.numbers[shared.line + CHANGES] += 1


def collector(machine: Machine) -> BookedUsage:
    made = open_booked(machine.folder)
    assert made is not None
    return made


class Ledger:
    """What a collector has booked, by line, as in its own file."""

    def __init__(self) -> None:
        self.booked: dict[tuple[int, int], tuple[int, int]] = {}
        self.total = 0

    def book(self, lines: list[CountedLine]) -> None:
        for each in lines:
            name, number = (each.instance, each.serial), each.figures[0]
            self.total += number - self.booked.get(name, (0, 0))[0]
            self.booked[name] = number, 0

    def write(self, table: BookedUsage, lines: list[CountedLine]) -> None:
        assert table.write_total("acc_1", PERIOD, self.total, 0, self.booked)
        table.free_booked(each for each in lines if each.final)


def test_a_line_says_whose_it_is_and_what_was_counted(machine: Machine) -> None:
    shared, table = new(machine), collector(machine)
    shared.name("ada")
    shared.seen_at("2001:db8::1")
    uses(shared, 300)
    shared.numbers[shared.line + CONNECTIONS] = 2
    [line] = table.lines_of("acc_1")
    assert (line.account_id, line.username, line.proxy_id) == ("acc_1", "ada", PROXY)
    assert (line.instance, line.serial, line.figures) == (1, 1, (300, 0, 0, 0, 0))
    assert (line.connections, line.client_ip, line.final) == (2, "2001:db8::1", False)
    assert table.lines_of("acc_2") == []


def test_open_connections_are_those_of_all_lines_of_processes_that_live(machine: Machine) -> None:
    lines = [new(machine, each) for each in ("acc_1", "acc_1", "acc_2", "crd_1", "acc_3")]
    table = collector(machine)
    assert table.write_total("acc_2", PERIOD, 5, 5, {})
    for shared, count in zip(lines, (2, 3, 0, 4, 7), strict=True):
        shared.numbers[shared.line + CONNECTIONS] = count
    assert table.open_connections("acc_") == {"acc_1": 5, "acc_3": 7}
    end(machine, lines[4])
    assert table.open_connections("acc_") == {"acc_1": 5}


def test_what_is_new_is_found_once_and_what_is_final_until_it_is_free(machine: Machine) -> None:
    one, other, table = new(machine), new(machine), collector(machine)
    assert set(table.changed()) == {one.line, other.line}
    assert table.changed() == []
    uses(one, 1)
    uses(other, 1)
    assert set(table.changed()) == {one.line, other.line}
    assert table.changed() == []
    uses(one, 1)
    end(machine, other)
    for found in ({one.line, other.line}, {other.line}):
        assert set(table.changed()) == found
    table.free([other.line])
    assert table.changed() == []
    table.all_again()
    assert table.changed() == [one.line, other.line]
    assert table.read(other.line) is None


def test_a_long_name_is_cut_behind_a_character_and_a_long_id_is_not_counted(machine: Machine) -> None:
    shared = new(machine)
    shared.name("ä" * 65)
    [line] = collector(machine).lines_of("acc_1")
    assert "ä" * 60 in line.username
    assert set(line.username) == {"ä"}
    assert not UsageOfProcess(machine.state()).account("x" * 33).claim()


def test_what_is_counted_before_there_is_a_line_is_in_it(machine: Machine) -> None:
    shared = UsageOfProcess(machine.state()).account("acc_1")
    shared.begin(PERIOD)
    shared.numbers[BYTES_IN] = 7
    assert shared.used() == 7
    assert shared.claim()
    assert (shared.used(), collector(machine).lines_of("acc_1")[0].figures[0]) == (7, 7)


def test_what_another_program_has_written_is_no_line(machine: Machine) -> None:
    shared, table = new(machine), collector(machine)
    uses(shared, 1)
    words = shared.numbers
    for place, number in ((BYTES_IN, 2**63), (14, 99), (20, 2**60), (24, 0)):
        before = words[shared.line + place]
        words[shared.line + place] = number
        table.read(shared.line)
        assert place == 24 or table.lines_of("acc_1") == [] or place == 20
        words[shared.line + place] = before
    assert len(table.lines_of("acc_1")) == 1


def test_torn_and_foreign_files_are_made_anew(machine: Machine) -> None:
    for spoil in (
        lambda path: os.truncate(path, TABLE.size // 2),
        lambda path: path.write_bytes(b"something else"),
    ):
        uses(new(machine), 5)
        spoil(machine.folder / USAGE)
        table = collector(machine)
        assert table.lines_of("acc_1") == []
        shared = new(machine)
        uses(shared, 3)
        assert [each.figures[0] for each in table.lines_of("acc_1")] == [3]
        shared.release()


def test_without_a_list_of_processes_nothing_is_booked(tmp_path: Path) -> None:
    assert open_booked(tmp_path) is None


def test_the_file_is_large_and_takes_what_is_used(machine: Machine) -> None:
    new(machine)
    status = (machine.folder / USAGE).stat()
    assert status.st_size > 200 * 100_000 * 8 * TABLE.line
    assert status.st_blocks * 512 < 2**20


def test_what_is_known_stays_known_where_the_collector_has_a_line_and_no_total_in_it_yet(machine: Machine) -> None:
    shared = UsageOfProcess(machine.state()).account("acc_1")
    shared.begin(PERIOD)
    table = collector(machine)
    assert table.write_total("acc_1", PERIOD, 700, 0, {})
    assert (shared.used(), shared.known) == (700, True)
    table.free_total("acc_1")
    other = new(machine)
    uses(other, 5)
    assert table._claim(other._key)
    assert (shared.used(), shared.known) == (705, True)
    assert table.write_total("acc_1", PERIOD, 700, 0, {})
    assert [each.used() for each in (shared, other)] == [705, 705]


def test_a_total_stays_while_another_process_claims_a_line_of_the_account(machine: Machine) -> None:
    gone, table = new(machine), collector(machine)
    assert table.write_total("acc_1", PERIOD, 700, 0, {})
    end(machine, gone)
    table.free([gone.line])
    other = gone._process.live.made()
    assert other is not None
    with other.exclusive(gone._key):
        table.free_total("acc_1")
    assert table.has_total("acc_1")
    table.free_total("acc_1")
    assert not table.has_total("acc_1")


class Taken(Writes):
    """The numbers of a table in which another process takes a line while it is read."""

    def __init__(self, words: Words, line: int, owner: int, serial: int) -> None:
        super().__init__(words, [-1])
        self._taken = line, owner, serial

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            line, self._numbers[line + OWNER], self._numbers[line + SERIAL] = self._taken
        return self._numbers[at]


@table_of("serial", [0, 7])
def test_a_line_that_another_process_takes_while_it_is_read_is_neither_freed_nor_final(
    tmp_path: Path, serial: int
) -> None:
    machine = Machine(tmp_path / str(serial))
    machine.files.adopt({})
    old, table, living = new(machine), collector(machine), machine.state()
    end(machine, old)
    words = table._table.words
    table._table.words = cast("Words", Taken(words, old.line, living.number, serial))
    counted = table.read(old.line)
    assert counted is None if not serial else counted and not counted.final
    assert words[old.line + OWNER] == living.number


def test_a_final_line_that_is_damaged_is_freed_and_logged_once(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    shared, table = new(machine), collector(machine)
    shared.numbers[shared.line + BYTES_IN] = 2**63
    end(machine, shared)
    for _ in range(3):
        for line in table.changed():
            assert table.read(line) is None
    assert table.changed() == []
    assert len(caplog.records) == 1


# --- kills after every write ---


def after_each_write(run: Callable[[int], bool]) -> None:
    """`run` gets after how many writes it is to be killed, and returns whether it was."""
    writes = 0
    while run(writes):
        writes += 1
    assert writes > 3


def kills(words_of: object, writes: int, what: Callable[[], object]) -> bool:
    words_of.words = dies_after(words_of.words, [writes])  # type: ignore[attr-defined]
    try:
        what()
    except Killed:
        return True
    return False


def test_a_kill_after_any_write_of_a_total_leaves_the_one_before_or_the_new_one(tmp_path: Path) -> None:
    def run(writes: int) -> bool:
        folder = tmp_path / str(writes)
        folder.mkdir()
        machine = Machine(folder)
        machine.files.adopt({})
        ledger, processes = Ledger(), [new(machine), new(machine)]
        table = collector(machine)
        for each in processes:
            uses(each, 100)
        lines = table.lines_of("acc_1")
        ledger.book(lines)
        ledger.write(table, lines)
        uses(processes[0], 11)
        end(machine, processes[0])
        lines = table.lines_of("acc_1")
        ledger.book(lines)
        killed = kills(table._table, writes, partial(ledger.write, table, lines))
        readers = [processes[1], new(machine)]
        assert [each.used() for each in readers] == [211, 211]
        uses(readers[0], 5)
        uses(readers[1], 4)
        assert [each.used() for each in readers] == [220, 220]
        table = collector(machine)  # another collector, which begins by booking all
        for _ in range(2):
            lines = [line for at in table.changed() if (line := table.read(at)) is not None]
            ledger.book(lines)
            ledger.write(table, lines)
        assert (ledger.total, [each.used() for each in readers]) == (220, [220, 220])
        return killed

    after_each_write(run)


def test_a_kill_after_any_write_of_a_process_costs_no_byte_that_it_has_counted(tmp_path: Path) -> None:
    def run(writes: int) -> bool:
        folder = tmp_path / str(writes)
        folder.mkdir()
        machine = Machine(folder)
        machine.files.adopt({})
        table, ledger = collector(machine), Ledger()
        shared, other = UsageOfProcess(machine.state()).account("acc_1"), new(machine)
        shared.begin(PERIOD)
        live = shared._process.live.made()
        assert live is not None
        moved = 0

        def live_on() -> None:
            nonlocal moved
            assert shared.claim()
            for _ in range(2):
                moved += 10
                shared.numbers[shared.line + BYTES_IN] = moved
                shared.numbers[shared.line + CHANGES] += 1
            shared.release()

        killed = kills(live, writes, live_on)
        end(machine, shared)
        written = sum(line.figures[0] for line in table.lines_of("acc_1"))
        assert written in (moved, moved - 10)
        assert other.used() == written
        for _ in range(2):
            lines = [line for at in table.changed() if (line := table.read(at)) is not None]
            ledger.book(lines)
            ledger.write(table, lines)
        assert (ledger.total, other.used()) == (written, written)
        assert [line.instance for line in table.lines_of("acc_1")] == [other._process.instance]
        return killed

    after_each_write(run)


def test_a_line_of_a_total_goes_with_the_last_process_of_the_account(machine: Machine) -> None:
    one, table, ledger = new(machine), collector(machine), Ledger()
    uses(one, 3)
    ledger.write(table, [])
    table.free_totals()
    assert table.has_total("acc_1")
    end(machine, one)
    lines = table.lines_of("acc_1")
    ledger.book(lines)
    ledger.write(table, lines)
    assert table.has_total("acc_1")
    table.free_totals()
    assert not table.has_total("acc_1")
    assert table.names() == set()


def test_a_line_that_is_used_again_says_nothing_of_the_one_before(machine: Machine) -> None:
    one, other, table, ledger = new(machine), new(machine), collector(machine), Ledger()
    uses(one, 100)
    uses(other, 20)
    assert other.used() == 120
    end(machine, one)
    lines = table.lines_of("acc_1")
    ledger.book(lines)
    ledger.write(table, lines)
    third = new(machine)
    assert third.line == one.line
    uses(third, 3)
    assert (other.used(), third.used()) == (123, 123)


# --- real processes ---


def forked(run: Callable[[], None]) -> int:
    """A child that counts until it is killed."""
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            run()
        os._exit(1)
    return child


def test_what_real_processes_count_is_exact_through_sigkill_and_sigstop(machine: Machine) -> None:
    """Some are killed while they count, and one is stopped: the collector and another process wait for none."""
    onlooker, table, ledger = new(machine), collector(machine), Ledger()
    states = [machine.state() for _ in range(3)]

    def count(number: int) -> None:
        shared = UsageOfProcess(states[number]).account("acc_1")
        shared.begin(PERIOD)
        while not shared.claim():
            pass
        while True:
            uses(shared, 1)

    children = [forked(partial(count, number)) for number in range(3)]
    try:
        deadline = time.monotonic() + 60
        lines: list[Any] = []
        while (ledger.total < 3_000 or len(lines) < 3) and time.monotonic() < deadline:
            lines = table.lines_of("acc_1")
            ledger.book(lines)
            ledger.write(table, lines)
            assert onlooker.used() >= ledger.total
        os.kill(children[0], signal.SIGSTOP)
        os.waitpid(children[0], os.WUNTRACED)
        for child in children[1:]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        for state in states[1:]:
            machine.files.end(PROXY, state.instance)
        lines = table.lines_of("acc_1")
        written = sum(each.figures[0] for each in lines)
        ledger.book(lines)
        ledger.write(table, lines)
        assert ledger.total >= 3_000
        assert [each.final for each in lines].count(True) == 2
        assert onlooker.used() == ledger.total >= written
        assert new(machine).used() == ledger.total, "also for one that begins now"
    finally:
        for child in children:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def test_owners_of_lines_are_no_processes(machine: Machine) -> None:
    processes = open_processes(machine.folder / "processes")
    assert processes is not None
    assert not processes.lives(RELEASED)
    assert not processes.lives(COLLECTOR)
    shared, table = new(machine), collector(machine)
    assert table.write_total("acc_1", PERIOD, 1, 0, {})
    read = open_table(machine.folder / USAGE, TABLE, processes, 0)
    assert read is not None
    key = read.words[shared.line]
    totals = [line for line in read.all_lines(key) if read.words[line + OWNER] == COLLECTOR]
    assert [read.words[line + STATE] for line in totals] == [1]
    assert [read.words[line + 3] for line in totals] == [FOREVER]


def test_a_step_of_this_machines_clock_changes_no_time_of_a_fleet(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = new(machine)
    process, books, clock = shared._process, collector(machine), [5000.0, 100.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    monkeypatch.setattr(time, "monotonic", lambda: clock[1])
    assert process.wall() == 5000.0
    books.set_ahead(-20.0)
    assert process.wall() == 4980.0
    clock[:] = 5000.0 + 3601.0, 101.0
    assert process.wall() == 4981.0, "the clock is an hour ahead, and the collector does not know it yet"
    books.set_ahead(-3620.0)
    assert process.wall() == 4981.0
    books.set_ahead(0.0)
    assert process.wall() == 8601.0, "of this machine alone"
