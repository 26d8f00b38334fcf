"""Tables of live state: what one process counts the others see, whenever and however it ends."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors import mapped_file
from actors.state.processes import NO_PROCESSES, PLACES, UNOWNED, instance_of, make_places, open_processes, short
from actors.state.table import NEXT, NO_LINE, NUMBERS, RELEASED, UNTIL, Table, TableKind, make_table, open_table
from tests.kit.live_state import Killed, dies_after

KIND = TableKind("test", pages=1, lines=64, line=8)
SAME_BUCKET = tuple(KIND.buckets * each + 5 for each in range(4))
"""Keys that meet in one bucket."""
SECOND = 1000


class Machine:
    """A supervisor with its places, a clock, and one file of live state."""

    def __init__(self, folder: Path) -> None:
        self.processes = make_places(folder / "processes")
        self.path = folder / "table"
        self.now = 1000.0
        self.instances = 0

    def start(self, kind: TableKind = KIND) -> Table:
        """The table as a new process has it."""
        self.instances += 1
        return make_table(self.path, kind, self.processes, self.processes.begin(self.instances), lambda: self.now)

    def end(self, table: Table) -> None:
        """Its process has died."""
        table.close()
        self.processes.end(instance_of(table._number))


def count(table: Table, key: int, seconds: float = 0, now: float = 1000.0) -> int:
    """Add 1 to what a process counts of a key, and have that count so long when it has ended."""
    line = table.claim(key)
    assert line
    table.words[line + NUMBERS] += 1
    table.words[line + UNTIL] = int((now + seconds) * SECOND)
    return line


def total(table: Table, key: int) -> int:
    return sum(table.words[line + NUMBERS] for line in table.lines(key))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_each_process_counts_for_itself_and_all_see_the_sum(machine: Machine) -> None:
    one, other = machine.start(), machine.start()
    for key in SAME_BUCKET[:2]:
        count(one, key)
        count(one, key)
        count(other, key)
        assert (total(one, key), total(other, key)) == (3, 3)
    assert total(one, SAME_BUCKET[2]) == 0


def test_a_process_has_one_line_of_a_key(machine: Machine) -> None:
    one, other = machine.start(), machine.start()
    assert one.claim(7) == one.claim(7) != other.claim(7)


def test_what_a_process_has_counted_ends_with_it_or_when_its_time_is_over(machine: Machine) -> None:
    one, other = machine.start(), machine.start()
    count(one, 7)
    count(one, 8, seconds=60)
    machine.end(one)
    assert (total(other, 7), total(other, 8)) == (0, 1)
    machine.now += 60
    assert total(other, 8) == 0


def test_a_released_line_counts_until_its_time_is_over(machine: Machine) -> None:
    one, other = machine.start(), machine.start()
    one.release(count(one, 7, seconds=60))
    assert total(other, 7) == 1
    machine.now += 60
    assert total(other, 7) == 0


def test_a_table_says_nothing_when_the_time_of_its_last_line_is_over(machine: Machine) -> None:
    one = machine.start()
    assert one.spent_after() == 0
    for key, seconds in ((7, 5), (8, 60), (9, 0)):
        count(one, key, seconds)
    assert one.spent_after() == 60
    machine.now += 59
    assert one.spent_after() == 1
    machine.now += 1
    assert one.spent_after() == 0


def test_lines_that_say_nothing_are_used_again(machine: Machine) -> None:
    one, other = machine.start(), machine.start()
    released, ended = count(one, SAME_BUCKET[0]), count(one, SAME_BUCKET[1])
    one.release(released)
    machine.end(one)
    assert {other.claim(SAME_BUCKET[2]), other.claim(SAME_BUCKET[3])} == {released, ended}
    assert [total(other, key) for key in SAME_BUCKET] == [0, 0, 0, 0]


def test_the_word_of_a_bucket_is_another_after_each_claim_in_it(machine: Machine) -> None:
    one, other = machine.start(), machine.start()
    bucket = one.bucket(SAME_BUCKET[0])
    seen = [one.words[bucket]]
    line = one.claim(SAME_BUCKET[0])
    seen.append(one.words[bucket])
    one.release(line)
    other.claim(SAME_BUCKET[1])  # uses it again
    seen.append(one.words[bucket])
    other.claim(SAME_BUCKET[0] + 1)
    assert len(set(seen)) == 3
    assert one.words[bucket] == seen[-1]


def test_lines_of_no_process_are_one_for_each_time(machine: Machine) -> None:
    """As those of the clients of an account, which any process may write."""
    table = machine.start()
    with table.exclusive(7) as alone:
        assert alone
        one = table.take(7, RELEASED)
        table.words[one + UNTIL] = int((machine.now + 60) * SECOND)
        other = table.take(7, RELEASED)
    assert NO_LINE not in (one, other)
    assert one != other


def test_a_full_table_has_no_more_lines(machine: Machine) -> None:
    one = machine.start()
    claimed = [one.claim(key) for key in range(1, KIND.lines + 1)]
    assert NO_LINE not in claimed
    assert len(set(claimed)) == KIND.lines
    assert one.claim(KIND.lines + 1) == NO_LINE
    one.release(claimed[0])
    assert one.claim(1 + KIND.buckets) == claimed[0]


# --- files ---


def test_the_file_outlives_all_processes(machine: Machine) -> None:
    one = machine.start()
    count(one, 7, seconds=60)
    machine.end(one)
    assert total(machine.start(), 7) == 1


def test_torn_and_foreign_files_are_made_anew(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def of_another_boot() -> None:
        monkeypatch.setattr(mapped_file, "boot_id", lambda: b"another")
        make_table(machine.path, KIND, NO_PROCESSES, 1).close()
        monkeypatch.undo()

    spoilers: dict[str, Callable[[], object]] = {
        "empty": lambda: machine.path.write_bytes(b""),
        "torn": lambda: os.truncate(machine.path, KIND.size // 2),
        "no mark": lambda: machine.path.write_bytes(bytes(KIND.size)),
        "another kind": lambda: make_table(machine.path, KIND._replace(name="x"), NO_PROCESSES, 1).close(),
        "another boot": of_another_boot,
    }
    for name, spoil in spoilers.items():
        machine.path.unlink(missing_ok=True)
        count(machine.start(), 7)
        spoil()
        table = machine.start()
        assert (total(table, 7), total(machine.start(), 7), count(table, 7) > 0) == (0, 0, True), name
        assert total(machine.start(), 7) == 1, name


def test_what_another_program_has_written_ends_a_walk(machine: Machine) -> None:
    table = machine.start()
    line = count(table, 7)
    for wrong in (line, line + 1, 2**63, 1, len(table.words)):
        table.words[line + NEXT] = wrong
        assert total(table, 7) >= 1
        assert total(table, 7 + KIND.buckets) == 0


def test_processes_that_begin_at_once_have_one_file(machine: Machine) -> None:
    children = [_forked(partial(_count_once, machine, number)) for number in range(1, 9)]
    assert [_status(child) for child in children] == [0] * 8
    table = machine.start()
    assert sum(table.words[line + NUMBERS] for line in table.all_lines(7)) == 8


def test_a_file_that_another_process_has_made_is_opened_though_the_folder_is_locked(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, folder = machine.path.with_name("made"), os.open(machine.path.parent, os.O_RDONLY)
    make_table(made, KIND, machine.processes, 0).close()
    monkeypatch.setattr(time, "sleep", lambda _seconds: made.exists() and made.rename(machine.path))
    fcntl.flock(folder, fcntl.LOCK_EX)
    assert machine.start().claim(1)
    os.close(folder)


def test_a_full_file_system_costs_no_process_its_life(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, "no space")

    def fail(*_args: object) -> None:
        raise full

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(OSError, match="no space"):
        machine.start()
    assert not [each for each in machine.path.parent.iterdir() if each.name != "processes"]
    monkeypatch.undo()
    table = machine.start()
    monkeypatch.setattr(os, "posix_fallocate", fail)
    assert table.claim(7) == NO_LINE
    monkeypatch.undo()
    assert table.claim(7)


def test_who_only_reads_makes_no_file(machine: Machine) -> None:
    assert open_table(machine.path, KIND, machine.processes, 1) is None
    assert not machine.path.exists()
    count(machine.start(), 7)
    found = open_table(machine.path, KIND, machine.processes, 1)
    assert found is not None
    assert total(found, 7) == 1


# --- kills after every write ---


def test_a_kill_after_any_write_of_a_claim_leaves_a_table_that_is_whole(tmp_path: Path) -> None:
    for used_again in (False, True):
        for writes in range(40):
            with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
                machine = Machine(Path(folder))
                one, other = machine.start(), machine.start()
                count(one, SAME_BUCKET[0])
                if used_again:
                    other.release(count(other, SAME_BUCKET[1]))
                other.words = dies_after(other.words, [writes])
                try:
                    other.claim(SAME_BUCKET[2])
                    finished = True
                except Killed:
                    finished = False
                machine.end(other)
                third = machine.start()
                assert [total(third, key) for key in SAME_BUCKET] == [1, 0, 0, 0]
                for key in SAME_BUCKET:
                    count(third, key)
                    count(one, key)
                assert [total(one, key) for key in SAME_BUCKET] == [3, 2, 2, 2]
                if finished:
                    break
        else:
            pytest.fail("a claim has more writes than were tried")


Step = tuple[str, int, int, int]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("count", "count", "count", "lasting", "release", "kill", "killed within", "time")),
            st.integers(0, 2),
            st.integers(0, 3),
            st.integers(0, 12),
        ),
        max_size=50,
    )
)
def test_sums_are_exact_in_any_order_of_claims_releases_and_kills(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        tables = [machine.start() for _ in range(3)]
        mine: list[dict[int, tuple[int, float]]] = [{}, {}, {}]
        """What each has counted of a key, and until when it counts."""
        left: list[tuple[int, int, float]] = []
        """Key, number and end of what processes have left."""

        def leave(who: int) -> None:
            left.extend((key, *counted) for key, counted in mine[who].items())
            mine[who] = {}
            machine.end(tables[who])
            tables[who] = machine.start()

        for what, who, which, extent in steps:
            table, key = tables[who], SAME_BUCKET[which]
            if what in ("count", "lasting"):
                before, end = mine[who].get(key, (0, 0.0))
                end = machine.now + extent if what == "lasting" else end
                count(table, key, end - machine.now, machine.now)
                mine[who][key] = before + 1, end
            elif what == "release" and key in mine[who]:
                table.release(table.claim(key))
                left.append((key, *mine[who].pop(key)))
            elif what == "kill":
                leave(who)
            elif what == "killed within":
                table.words = dies_after(table.words, [extent])
                with suppress(Killed):
                    table.claim(key)
                leave(who)
            elif what == "time":
                machine.now += extent
            for each in SAME_BUCKET:
                expected = sum(counted[each][0] for counted in mine if each in counted)
                expected += sum(number for left_key, number, end in left if left_key == each and end > machine.now)
                assert [total(each_table, each) for each_table in tables] == [expected] * 3


# --- processes ---


def machine_child(machine: Machine, number: int) -> Table:
    """The table in another process."""
    return make_table(machine.path, KIND, machine.processes, number, lambda: machine.now)


def _count_once(machine: Machine, number: int) -> None:
    count(machine_child(machine, number), 7, seconds=60)


def _forked(body: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            body()
            status = 0
        finally:
            os._exit(status)
    return pid


def _status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@contextmanager
def _within_a_claim(machine: Machine, key: int) -> Iterator[int]:
    """A process that stands still while it claims this key."""
    reads, writes = os.pipe()

    def body() -> None:
        with machine_child(machine, 99).exclusive(key):
            os.write(writes, b"x")
            signal.pause()

    child = _forked(body)
    try:
        os.read(reads, 1)
        os.kill(child, signal.SIGSTOP)
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        _status(child)
        os.close(reads)
        os.close(writes)


def test_a_process_that_hangs_within_a_claim_blocks_its_bucket_alone_and_no_process_for_long(machine: Machine) -> None:
    table = machine.start()
    mine = table.claim(SAME_BUCKET[1])
    with _within_a_claim(machine, SAME_BUCKET[0]):
        begun = time.monotonic()
        assert table.claim(SAME_BUCKET[0]) == NO_LINE
        assert time.monotonic() - begun < 0.5
        assert table.claim(SAME_BUCKET[0] + 1)
        table.words[mine + NUMBERS] += 1
        assert total(table, SAME_BUCKET[1]) == 1
        table.release(mine)
    assert table.claim(SAME_BUCKET[0])


def test_a_process_that_hangs_while_it_takes_a_new_line_keeps_none_from_others(machine: Machine) -> None:
    table, other = machine.start(), machine.start()
    for stripe in range(3):
        assert other._lock(8 * (4 + stripe), 1)
    assert table.claim(7)


def test_killed_processes_leave_a_table_that_is_whole(machine: Machine) -> None:
    """Real processes that claim, count and release as fast as they can, each killed at a moment of its own."""
    keys = SAME_BUCKET + tuple(range(20, 24))

    def body(number: int) -> None:
        choices, table = random.Random(number), machine_child(machine, number)
        while True:
            key = choices.choice(keys)
            line = table.claim(key)
            if line:
                table.words[line + NUMBERS] += 1
                if choices.random() < 0.3:
                    table.release(line)

    machine.start().close()
    for _ in range(5):
        numbers = [machine.processes.begin(machine.instances + each) for each in range(1, 4)]
        machine.instances += 3
        children = [_forked(partial(body, number)) for number in numbers]
        for child, number in zip(children, numbers, strict=True):
            time.sleep(0.02)
            os.kill(child, signal.SIGKILL)
            _status(child)
            machine.processes.end(instance_of(number))
    table = machine.start()
    assert [total(table, key) for key in keys] == [0] * len(keys)
    lines = Counter(line for key in range(1, KIND.buckets + 1) for line in table._chain(key))
    assert set(lines.values()) == {1}
    for key in keys:
        assert count(table, key)
        assert total(table, key) == 1


# --- who lives ---


def test_a_process_lives_from_its_start_to_its_end(tmp_path: Path) -> None:
    supervisor = make_places(tmp_path / "processes")
    seen = open_processes(tmp_path / "processes")
    assert seen is not None
    one, other = supervisor.begin(11), supervisor.begin(12)
    assert supervisor.begin(11) == one
    assert (seen.lives(one), seen.lives(other), seen.lives(UNOWNED), seen.lives(RELEASED)) == (
        True,
        True,
        False,
        False,
    )
    supervisor.end(11)
    third = supervisor.begin(13)
    assert (seen.lives(one), seen.lives(other), seen.lives(third)) == (False, True, True)
    supervisor.end(11)
    assert seen.lives(third), "the place of one that ended long ago is another's"


def test_numbers_have_64_bits_whatever_the_year(tmp_path: Path) -> None:
    places = make_places(tmp_path / "processes")
    instance = int(datetime(2200, 1, 1, tzinfo=UTC).timestamp() * 1e6)
    number = places.begin(instance)
    assert places.lives(number)
    assert instance_of(number) == short(instance)
    make_places(tmp_path / "processes").adopt([instance])
    assert places.lives(number)
    places.end(instance)
    assert not places.lives(number)


def test_a_program_takes_over_the_places_of_those_that_live(tmp_path: Path) -> None:
    before = make_places(tmp_path / "processes")
    one, other = before.begin(11), before.begin(12)
    after = make_places(tmp_path / "processes")
    after.adopt([12, 77])
    assert (before.lives(one), before.lives(other)) == (False, True)
    after.end(12)
    assert not before.lives(other)


def test_with_all_places_taken_a_process_counts_alone_which_is_beyond_10_000_proxies_at_an_upgrade(
    tmp_path: Path,
) -> None:
    places = make_places(tmp_path / "processes")
    numbers = [places.begin(instance) for instance in range(1, PLACES)]
    assert len(set(numbers)) == PLACES - 1 > 3 * 10_000
    assert places.begin(PLACES) == UNOWNED
    places.end(7)
    assert places.begin(PLACES + 1) != UNOWNED


def test_places_of_another_format_or_boot_are_none(tmp_path: Path) -> None:
    path = tmp_path / "processes"
    assert open_processes(path) is None
    number = make_places(path).begin(1)
    data = path.read_bytes()
    for spoilt in (data[:-1], b"x" + data[1:], b""):
        path.write_bytes(spoilt)
        assert open_processes(path) is None
        assert not make_places(path).lives(number)
