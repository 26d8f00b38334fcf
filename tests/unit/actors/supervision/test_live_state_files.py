"""The supervisor's side of the live state: which processes count, and which files stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from actors.pools.state import OwnStates
from actors.pools.upstream import OWN_SPANS
from actors.state.choices import SharedChoices
from actors.state.counts import COUNTED
from actors.state.processes import UNOWNED, open_processes
from actors.supervision.processes import live_state_files
from actors.supervision.processes.live_state_files import LiveStateFiles
from tests.kit.clocks import Clock
from tests.kit.live_state import PROXY, Machine


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_the_file_of_a_proxy_that_sleeps_stays_for_as_long_as_it_says_something(tmp_path: Path, clock: Clock) -> None:
    machine = Machine(tmp_path, clock)
    state = machine.state()
    state.key("client", "a").add_requests(1)
    OwnStates(state, OWN_SPANS).slot(("http", "192.0.2.1", 3128, None), clock.now)
    of_upstreams = f"{PROXY}.upstreams"
    due: list[tuple[float, Callable[[], None]]] = []
    files = LiveStateFiles(tmp_path, clock, lambda seconds, call: due.append((clock.now + seconds, call)))
    files.adopt({PROXY: [1]})
    clock.now += COUNTED
    files.remove_spent(PROXY)
    assert names(tmp_path) == ["processes", PROXY, of_upstreams], "one of its processes lives"
    SharedChoices(state, "sessions").keep(b"7", 1, clock.now + 86_400)
    files.end(PROXY, 1)
    assert not files.has_living(PROXY)
    for _ in range(3):
        files.remove_spent(PROXY)
    assert names(tmp_path) == ["processes", PROXY, of_upstreams]
    ((clock.now, call),) = due
    call()
    files.remove_spent("px2")
    assert (names(tmp_path), len(due)) == (["processes", of_upstreams], 1)
    assert (tmp_path / of_upstreams).stat().st_blocks * 512 <= 8192
    files.remove(PROXY)
    assert names(tmp_path) == ["processes"]


def test_a_program_awaits_the_end_of_what_sleepers_of_the_one_before_have_counted(tmp_path: Path, clock: Clock) -> None:
    before = Machine(tmp_path, clock).state()
    before.key("client", "a").add_requests(1)
    OwnStates(before, OWN_SPANS).slot(("http", "192.0.2.1", 3128, None), clock.now)
    due: list[Callable[[], None]] = []
    LiveStateFiles(tmp_path, clock, lambda _seconds, call: due.append(call)).adopt({})
    clock.now += COUNTED
    for call in due:
        call()
    assert names(tmp_path) == ["processes", f"{PROXY}.upstreams"]


def test_a_program_ends_the_processes_of_the_one_before_but_those_that_it_takes_over(
    tmp_path: Path, clock: Clock
) -> None:
    before = Machine(tmp_path, clock)
    for proxy_id in (PROXY, PROXY, "px2"):
        before.state(proxy_id).key("client", "a").add_requests(1)
    clock.now += COUNTED
    after = LiveStateFiles(tmp_path, clock)
    after.adopt({PROXY: [2]})
    living = open_processes(tmp_path / "processes")
    assert living is not None
    assert living.instances() == {2}
    assert names(tmp_path) == ["processes", PROXY]
    after.remove(PROXY)
    assert names(tmp_path) == ["processes"]


def test_what_a_program_takes_over_is_not_lost_when_there_is_no_room_at_its_start(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Machine(tmp_path, clock)
    for _ in range(2):
        before.state()

    def fail(_path: Path) -> None:
        raise OSError(28, "no space")

    after = LiveStateFiles(tmp_path, clock)
    monkeypatch.setattr(live_state_files, "make_places", fail)
    after.adopt({PROXY: [2]})
    monkeypatch.undo()
    after.begin("px2", 3)
    living = open_processes(tmp_path / "processes")
    assert living is not None
    assert living.instances() == {2, 3}
    after.end(PROXY, 2)
    assert living.instances() == {3}


def test_without_room_for_its_files_every_process_counts_alone() -> None:
    files = LiveStateFiles(Path("/dev/null/state"))
    assert files.begin(PROXY, 1) == UNOWNED
    assert files.has_living(PROXY)
    files.end(PROXY, 1)
    files.remove_spent(PROXY)
    files.adopt({})
    assert not files.has_living(PROXY)
