"""Several processes of one proxy: what one counts the others see, and what remains of one that has ended."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors import mapped_file
from actors.mapped_file import HEADER, FileKind
from actors.supervision.processes.columns import WorkerColumns
from actors.workers import columns, keys, worker
from actors.workers.columns import (
    ALIVE,
    COLUMNS,
    FULL,
    NO_COLUMN,
    OWNER,
    Columns,
    OpenCount,
    make_columns,
    open_columns,
)
from actors.workers.keys import SETS, WAYS
from actors.workers.worker import WINDOW_KEPT, Worker

NOW = 1000.0
"""For all processes and the supervisor: the machine may have been started later than so many seconds ago."""
SESSION = (1, 2)


def no_failure(detail: str) -> None:
    raise AssertionError(detail)


class Proxy:
    """The supervisor's side of one proxy, and its processes by instance."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.supervisor = self.next_supervisor()
        self.failures: list[str] = []

    def next_supervisor(self) -> WorkerColumns:
        return WorkerColumns(self.folder, lambda: NOW)

    def start(self, instance: int) -> Worker:
        column = self.supervisor.allocate("p", instance)
        return Worker(self.folder / "p", self.columns(), column, self.failures.append)

    def columns(self) -> Columns:
        found = open_columns(self.folder / "p")
        assert found is not None
        return found


@pytest.fixture
def proxy(tmp_path: Path) -> Proxy:
    return Proxy(tmp_path / "workers")


def test_connections_of_all_that_live_are_added(proxy: Proxy) -> None:
    one, other = proxy.start(1), proxy.start(2)
    one.set_open(3, NOW)
    other.set_open(4, NOW)
    assert one.open_connections() == other.open_connections() == OpenCount(7, 2)
    one.set_connections(77, 2)
    assert (other.connections_elsewhere(77, NOW), one.connections_elsewhere(77, NOW)) == (2, 0)
    assert proxy.failures == []


def test_a_process_that_has_ended_is_out_of_every_sum(proxy: Proxy) -> None:
    one, other = proxy.start(1), proxy.start(2)
    one.set_open(3, NOW)
    one.set_connections(77, 2)
    one.add_requests(77, NOW)
    proxy.supervisor.ended("p", 1)
    assert other.open_connections() == OpenCount(0, 1)
    assert other.connections_elsewhere(77, NOW) == 0


def test_its_requests_count_for_another_minute(proxy: Proxy) -> None:
    one, other = proxy.start(1), proxy.start(2)
    one.add_requests(77, NOW)
    proxy.supervisor.ended("p", 1)
    assert other.requests(77, NOW) == 1
    ended = proxy.columns().word(0, columns.ENDED)
    assert list(other.keys.others(WINDOW_KEPT, (ended + WINDOW_KEPT - 1) / 1000)) != []
    assert list(other.keys.others(WINDOW_KEPT, (ended + WINDOW_KEPT) / 1000)) == []


def test_the_next_owner_takes_over_requests_and_sessions_but_no_connections(proxy: Proxy) -> None:
    one, other = proxy.start(1), proxy.start(2)
    one.set_open(3, NOW)
    one.set_connections(77, 2)
    one.add_requests(77, NOW)
    one.rates.own.write(77, 100, (5, 0, 0, 0, 0, 0))
    one.keep_session(SESSION, 9, 2_000_000, NOW)
    proxy.supervisor.ended("p", 1)
    successor = proxy.start(3)
    assert successor.column == one.column
    assert other.open_connections() == OpenCount(0, 2)
    assert other.connections_elsewhere(77, NOW) == 0
    assert other.requests(77, NOW) == successor.requests(77, NOW) == 1
    assert [each.read(77, 100) for each in other.rates.others(0, NOW)] == [None]
    assert other.session(SESSION, NOW) == successor.session(SESSION, NOW) == (9, 2_000_000)


def test_it_counts_once_its_column_is_clean(proxy: Proxy) -> None:
    one = proxy.start(1)
    proxy.supervisor.allocate("p", 2)
    assert proxy.columns().word(1, ALIVE) == 0
    assert one.open_connections().processes == 1


def test_requests_of_all_are_one_minute(proxy: Proxy) -> None:
    one, other = proxy.start(1), proxy.start(2)
    assert one.requests(77, NOW) == 0
    for each, moment in ((one, NOW), (other, NOW), (other, NOW + 10)):
        assert each.add_requests(77, moment)
    assert one.requests(77, NOW + 10) == other.requests(77, NOW + 10) == 3
    assert one.requests_by_age(77, NOW + 10) == other.requests_by_age(77, NOW + 10)
    assert sum(one.requests_by_age(77, NOW + 10)) == 3
    assert one.requests(77, NOW + 68) == 1


def test_a_session_has_the_choice_of_the_one_that_decided_last(proxy: Proxy) -> None:
    one, other = proxy.start(1), proxy.start(2)
    one.keep_session(SESSION, 9, 5000, NOW)
    other.keep_session(SESSION, 8, 4000, NOW)
    assert one.session(SESSION, NOW).value == other.session(SESSION, NOW).value == 8
    one.keep_session(SESSION, 8, 6000, NOW)
    assert other.session(SESSION, NOW) == (8, 6000)


def test_a_key_without_a_place_is_counted_as_such(proxy: Proxy) -> None:
    one = proxy.start(1)
    for number in range(WAYS + 2):
        one.set_connections(5 + SETS * (number + 1), 1)
    assert proxy.columns().word(0, FULL) == 2


def test_without_room_for_its_file_it_counts_for_itself(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    one, other = proxy.start(1), proxy.start(2)
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        one.set_connections(77, 2)
        one.add_requests(77, NOW)
    assert ["No space left" in each for each in proxy.failures] == [True]
    assert (one.requests(77, NOW), other.requests(77, NOW)) == (1, 0)
    assert sorted(os.listdir(proxy.folder / "p")) == ["columns"]


def test_a_damaged_file_of_the_former_owner_is_left_out(proxy: Proxy) -> None:
    one, other = proxy.start(1), proxy.start(2)
    one.set_connections(77, 2)
    proxy.supervisor.ended("p", 1)
    path = proxy.folder / "p" / f"0.{keys.KIND.name}"
    with path.open("r+b") as file:
        file.write(b"damaged!")
    successor = proxy.start(3)
    successor.set_connections(77, 5)
    assert other.connections_elsewhere(77, NOW) == 0


def test_a_file_that_cannot_be_mapped_is_tried_again(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_descriptors(*_arguments: object, **_named: object) -> None:
        raise OSError(24, "Too many open files")

    one, other = proxy.start(1), proxy.start(2)
    one.set_connections(77, 2)
    with monkeypatch.context() as patched:
        patched.setattr(worker, "open_existing", out_of_descriptors)
        assert other.connections_elsewhere(77, NOW) == other.connections_elsewhere(77, NOW) == 0
    assert len(proxy.failures) == 1
    assert other.connections_elsewhere(77, NOW + worker.RETRY) == 2


def test_a_file_of_another_boot_or_kind_or_size_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, path = FileKind("one", 16), tmp_path / "file"
    assert mapped_file.open_existing(path, kind, writes=True) is None
    words = mapped_file.make(path, kind)
    words[HEADER] = 7
    found = mapped_file.open_existing(path, kind, writes=False)
    assert found is not None
    assert (found[HEADER], found.readonly) == (7, True)
    assert mapped_file.open_existing(path, FileKind("other", 16), writes=False) is None
    assert mapped_file.open_existing(path, FileKind("one", 17), writes=False) is None
    monkeypatch.setattr(mapped_file, "boot_id", lambda: b"another boot")
    assert mapped_file.open_existing(path, kind, writes=False) is None


# --- the supervisor ---


def test_every_living_process_has_a_column_of_its_own(proxy: Proxy) -> None:
    allocated = [proxy.supervisor.allocate("p", instance) for instance in range(1, COLUMNS + 2)]
    assert allocated == [*range(COLUMNS), NO_COLUMN]
    proxy.supervisor.ended("p", 60)
    assert proxy.supervisor.allocate("p", 1000) == 59
    assert proxy.columns().word(59, OWNER) == 1000


def test_the_end_of_a_process_without_a_column_changes_nothing(proxy: Proxy) -> None:
    proxy.supervisor.ended("p", 1)
    one = proxy.start(1)
    proxy.supervisor.ended("p", 7)
    assert one.open_connections().processes == 1
    assert proxy.supervisor.has_living("p")


def test_nothing_is_left_of_a_proxy_that_is_gone(proxy: Proxy) -> None:
    proxy.start(1).set_connections(77, 1)
    proxy.supervisor.ended("p", 1)
    assert not proxy.supervisor.has_living("p")
    proxy.supervisor.remove("p")
    assert os.listdir(proxy.folder) == []


def test_what_others_keep_in_the_folder_of_a_proxy_stays(proxy: Proxy) -> None:
    one = proxy.start(1)
    one.set_connections(77, 1)
    one.rates.own.write(77, 100, (5, 0, 0, 0, 0, 0))
    one.keep_session(SESSION, 9, 5000, NOW)
    (proxy.folder / "p" / "asleep.0").touch()
    proxy.supervisor = proxy.next_supervisor()
    proxy.supervisor.adopt({})
    assert os.listdir(proxy.folder / "p") == ["asleep.0"]
    proxy.supervisor.remove("never there")


def test_the_next_program_continues_with_the_processes_that_live(proxy: Proxy) -> None:
    one, other = proxy.start(1), proxy.start(2)
    proxy.supervisor.allocate("gone", 3)
    for each in (one, other):
        each.set_open(5, NOW)
    proxy.supervisor = proxy.next_supervisor()
    proxy.supervisor.adopt({"p": {2}})
    assert other.open_connections() == OpenCount(5, 1)
    assert proxy.start(4).column == 0
    proxy.supervisor.ended("p", 2)
    assert other.open_connections() == OpenCount(0, 1)
    assert os.listdir(proxy.folder) == ["p"]


def test_without_a_folder_there_is_nothing_to_adopt(proxy: Proxy) -> None:
    proxy.supervisor.adopt({"p": {1}})
    assert not proxy.folder.exists()


def test_without_a_file_a_process_counts_for_itself(proxy: Proxy) -> None:
    proxy.folder.write_text("in the way")
    assert proxy.supervisor.allocate("p", 1) == NO_COLUMN


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.just(0), st.just(0)),
        st.tuples(st.just("end"), st.integers(0, 4), st.just(0)),
        st.tuples(st.just("open"), st.integers(0, 4), st.integers(0, 9)),
        st.tuples(st.just("key"), st.integers(0, 4), st.integers(0, 9)),
        st.tuples(st.just("request"), st.integers(0, 4), st.just(0)),
    ),
    max_size=30,
)


@settings(max_examples=25, deadline=None)
@given(steps=STEPS)
def test_all_see_the_same_sums_whatever_starts_and_ends(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    proxy = Proxy(tmp_path_factory.mktemp("workers") / "w")
    living: dict[int, Worker] = {}
    opened: dict[int, int] = {}
    by_key: dict[int, int] = {}
    requests, instance = 0, 0
    for what, which, number in [("start", 0, 0), *steps]:
        chosen = sorted(living)[which % len(living)] if living else 0
        if what == "start" and len(living) < 5:
            instance += 1
            living[instance] = proxy.start(instance)
        elif chosen and what == "end":
            proxy.supervisor.ended("p", chosen)
            del living[chosen]
            opened.pop(chosen, None), by_key.pop(chosen, None)
        elif chosen and what == "open":
            opened[chosen] = number
            living[chosen].set_open(number, NOW)
        elif chosen and what == "key":
            by_key[chosen] = number
            living[chosen].set_connections(77, number)
        elif chosen and what == "request":
            requests += living[chosen].add_requests(77, NOW)
        for identifier, each in living.items():
            assert each.open_connections() == OpenCount(sum(opened.values()), len(living))
            assert each.connections_elsewhere(77, NOW) == sum(by_key.values()) - by_key.get(identifier, 0)
            assert each.requests(77, NOW) == requests
    assert proxy.failures == []


def test_a_new_file_has_no_lines_in_use(tmp_path: Path) -> None:
    assert make_columns(tmp_path / "workers" / "p").open_connections() == OpenCount(0, 0)
