"""The file of a pool's state: shared by processes, with lines that come and go with its upstreams, never in the way."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors import mapped_file
from actors.pools.slot import UpstreamSlot
from actors.pools.state import POOL_TABLE, SharedPoolState, identity, known_state, number_of, pool_state, summary_of
from actors.state.table import Table
from tests.kit.live_state import Killed, dies_after
from tests.unit.actors.pools.pools import pool
from tests.unit.actors.pools.processes import ban_and_fail, ban_often, make_at_once, write_often

SPAWN = multiprocessing.get_context("spawn")


def fail(slot: UpstreamSlot, now: float = 10.0) -> None:
    slot.failed(now, "connect", "unreachable", "refused")


def banned(state: SharedPoolState, now: float = 10.0) -> list[bool]:
    return [slot.health(now).banned_until > now for slot in state.slots]


def test_what_one_learns_holds_for_the_other(tmp_path: Path) -> None:
    one, other = (pool_state(tmp_path / "pools", pool("a", "b")) for _ in range(2))
    fail(one.slots[1])
    assert [slot.eligible(10.5) for slot in other.slots] == [True, False]
    other.slots[0].ban(99.0)
    assert not one.slots[0].eligible(10.5)


def test_two_processes_share_it_by_the_same_clock(tmp_path: Path) -> None:
    state = pool_state(tmp_path / "pools", pool("a", "b"))
    process = SPAWN.Process(target=ban_and_fail, args=(tmp_path / "pools", time.monotonic() + 1000))
    process.start()
    process.join()
    assert process.exitcode == 0
    now = time.monotonic()
    assert [slot.state for slot in state.slots] == ["down", "unknown"]
    assert 0 < state.slots[0].failed_at <= now
    assert not state.slots[1].eligible(now)


def test_processes_that_write_at_the_same_time_leave_whole_values(tmp_path: Path) -> None:
    state = pool_state(tmp_path / "pools", pool("a", "b"))
    state.slots[1].ban(1e9)
    processes = [SPAWN.Process(target=write_often, args=(tmp_path / "pools", 3000)) for _ in range(2)]
    for process in processes:
        process.start()
    seen = set()
    while any(process.is_alive() for process in processes):
        seen.add(state.slots[0].state)
        health = state.slots[0].health(100.0)
        assert health.latency in (None, 0.5)
        assert health.last_error in (None, "refused")
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert seen <= {"unknown", "up", "down"}
    assert not state.slots[1].eligible(1e8), "the ban was lost"


def test_it_outlives_all_processes_that_use_it(tmp_path: Path) -> None:
    pool_state(tmp_path / "pools", pool("a")).slots[0].ban(99.0)
    assert banned(pool_state(tmp_path / "pools", pool("a"))) == [True]


def test_a_changed_pool_keeps_what_is_known_of_those_that_stay(tmp_path: Path) -> None:
    before = pool_state(tmp_path / "pools", pool("a", "b", "c"))
    before.slots[0].ban(99.0)
    before.slots[2].ban(99.0)
    after = pool_state(tmp_path / "pools", pool("c", "d", "b", revision=2))
    assert banned(after) == [True, False, False]
    before.refresh()
    after.slots[0].lift(11.0)
    assert banned(before)[2] is False
    assert banned(before)[0] is False, "it is not in the pool any more: nothing is known of it"


def test_a_process_that_gets_the_change_later_changes_no_upstreams(tmp_path: Path) -> None:
    late = pool_state(tmp_path / "pools", pool("a", "b"))
    early = pool_state(tmp_path / "pools", pool("b", "c", revision=2))
    late.refresh()
    fail(late.slots[1])
    assert not early.slots[0].eligible(10.5)
    restarted = pool_state(tmp_path / "pools", pool("a", "b"))
    fail(restarted.slots[0])
    early.refresh()
    assert [slot.eligible(10.5) for slot in early.slots] == [False, True]


def test_the_process_of_the_checks_decides_whatever_the_revision(tmp_path: Path) -> None:
    pool_state(tmp_path / "pools", pool("a", "b", revision=9))
    restored = pool_state(tmp_path / "pools", pool("a", revision=3), decides=True)
    restored.slots[0].ban(99.0)
    assert known_state(tmp_path / "pools", "pool_1", [identity(pool("b").upstreams.entries[0])]) == {}
    assert banned(pool_state(tmp_path / "pools", pool("a", revision=3))) == [True]


@pytest.mark.parametrize("content", [b"", b"x" * 63, b"x" * POOL_TABLE.size, POOL_TABLE.mark + bytes(500)])
def test_another_file_in_its_place_is_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pools").mkdir()
    path = tmp_path / "pools" / "pool_1"
    path.write_bytes(content)
    state = pool_state(tmp_path / "pools", pool("a"))
    state.slots[0].ban(99.0)
    assert banned(pool_state(tmp_path / "pools", pool("a"))) == [True]


def test_after_a_boot_it_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool_state(tmp_path / "pools", pool("a")).slots[0].ban(99.0)
    monkeypatch.setattr(mapped_file, "boot_id", lambda: b"another")
    assert banned(pool_state(tmp_path / "pools", pool("a"))) == [False]


def test_it_is_private_to_the_service(tmp_path: Path) -> None:
    pool_state(tmp_path / "pools", pool("a"))
    assert stat.S_IMODE((tmp_path / "pools").stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "pools").iterdir()} == {0o600}


def test_without_a_file_it_is_the_process_that_knows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "pools").write_text("a file in place of the folder")
    state = pool_state(tmp_path / "pools", pool("a", "b"))
    fail(state.slots[1])
    assert [slot.eligible(10.5) for slot in state.slots] == [True, False]
    assert "can't be shared" in caplog.text


def test_a_full_file_system_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    state = pool_state(tmp_path / "pools", pool("a"))
    fail(state.slots[0])
    assert [each.name for each in (tmp_path / "pools").iterdir()] == []


def test_an_empty_pool(tmp_path: Path) -> None:
    assert pool_state(tmp_path / "pools", pool()).slots == ()


def test_a_deleted_file_is_made_again_for_those_that_come_after(tmp_path: Path) -> None:
    before = pool_state(tmp_path / "pools", pool("a"))
    (tmp_path / "pools" / "pool_1").unlink()
    fail(before.slots[0])
    assert pool_state(tmp_path / "pools", pool("a")).slots[0].state == "unknown"


def test_processes_that_make_it_at_the_same_time_get_the_same(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    processes = [SPAWN.Process(target=make_at_once, args=(tmp_path / "pools", ready)) for _ in range(2)]
    for process in processes:
        process.start()
    ready.touch()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    state = pool_state(tmp_path / "pools", pool("a", "b"))
    assert state.slots[0].health(0.0).checks >= 1


HOSTS = st.lists(st.sampled_from("abcdef"), unique=True, max_size=6)


@given(st.lists(st.tuples(HOSTS, st.sampled_from("abcdef")), max_size=8))
def test_what_is_known_follows_the_identity(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[list[str], str]]
) -> None:
    folder = tmp_path_factory.mktemp("pools")
    known: set[str] = set()
    for revision, (hosts, to_ban) in enumerate(steps):
        state = pool_state(folder, pool(*hosts, revision=revision))
        known &= set(hosts)
        assert banned(state) == [host in known for host in hosts]
        if to_ban in hosts:
            state.slots[hosts.index(to_ban)].ban(99.0)
            known.add(to_ban)


def test_no_ban_is_lost_while_upstreams_come_and_go(tmp_path: Path) -> None:
    folder = tmp_path / "pools"
    pool_state(folder, pool("a", "b"))
    process = SPAWN.Process(target=ban_often, args=(folder, 200))
    process.start()
    revision = 1000
    while process.is_alive():
        revision += 1
        pool_state(folder, pool("a", "b", f"c{revision}", revision=revision), decides=True)
    process.join()
    assert process.exitcode == 0
    last = pool_state(folder, pool("a", revision=revision + 1))
    assert last.slots[0].health(0.0).banned_until == 1199.0


def test_a_change_that_has_the_same_upstreams_keeps_older_ones_from_replacing_them(tmp_path: Path) -> None:
    pool_state(tmp_path / "pools", pool("a", "b", revision=1)).slots[1].ban(99.0)
    pool_state(tmp_path / "pools", pool("a", "b", revision=5))
    pool_state(tmp_path / "pools", pool("a", revision=3))
    assert banned(pool_state(tmp_path / "pools", pool("a", "b", revision=5))) == [False, True]


def test_who_still_uses_a_removed_upstream_writes_no_line_of_another(tmp_path: Path) -> None:
    """Also of one that would get the same line, since it is in the same bucket."""

    def bucket(host: str) -> int:
        return number_of(identity(pool(host).upstreams.entries[0])) % POOL_TABLE.buckets

    other = next(host for host in (f"b{number}" for number in itertools.count()) if bucket(host) == bucket("a"))
    before = pool_state(tmp_path / "pools", pool("a"))
    after = pool_state(tmp_path / "pools", pool(other, revision=2))
    before.slots[0].ban(1e12)
    assert banned(after) == [False]


def test_the_numbers_of_a_pool_are_those_of_its_upstreams_of_now(tmp_path: Path) -> None:
    folder = tmp_path / "pools"
    assert summary_of(folder / "pool_1", 2, 10.0).unknown == 2
    before = pool_state(folder, pool("a", "b", "c"))
    fail(before.slots[0])
    before.slots[2].ban(99.0)
    before.count_check(before.slots[1], failed=True)
    before.slots[1].succeeded(10.0)
    known = summary_of(folder / "pool_1", 3, 10.5)
    assert (known.up, known.down, known.unknown, known.cooling_down, known.banned, known.usable) == (1, 1, 1, 1, 1, 1)
    pool_state(folder, pool("b", revision=2))
    known = summary_of(folder / "pool_1", 1, 10.5)
    assert (known.up, known.down, known.unknown, known.banned, known.checks, known.checks_failed) == (1, 0, 0, 0, 1, 1)


def test_a_kill_within_a_change_leaves_a_pool_that_the_next_change_makes_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Table.__init__
    for writes in range(200):
        folder = tmp_path / str(writes)
        first = pool_state(folder, pool("a", "b"))
        first.slots[1].ban(99.0)

        def dying(table: Table, *given: Any, writes: int = writes) -> None:
            made(table, *given)
            table.words = dies_after(table.words, [writes])

        with monkeypatch.context() as patched:
            patched.setattr(Table, "__init__", dying)
            try:
                pool_state(folder, pool("b", "c", revision=2))
                finished = True
            except Killed:
                finished = False
        after = pool_state(folder, pool("b", "c", "d", revision=3))
        assert after.is_shared
        assert banned(after) == [True, False, False]
        first.refresh()
        assert banned(first) == [False, True]
        fail(after.slots[1])
        assert [each.state for each in pool_state(folder, pool("b", "c", "d", revision=3)).slots] == [
            "unknown",
            "down",
            "unknown",
        ]
        if finished:
            return
    pytest.fail("a change has more writes than were tried")
