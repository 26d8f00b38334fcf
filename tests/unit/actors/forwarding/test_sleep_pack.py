"""What a process leaves for the next one while its proxy sleeps, by a clock that is set by hand."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.bus.codec import pack
from actors.bus.loop import Loop
from actors.bus.messages.common import UPSTREAM_DOWN
from actors.bus.messages.specs import AccountSpec, LimitsSpec
from actors.forwarding.access.guess_limit import FAILURES_OF_USER, PAUSE
from actors.forwarding.access.username_parameters import Parameters
from actors.forwarding.context import ForwardingContext
from actors.forwarding.limits.rule_limits import Limited
from actors.forwarding.limits.sliding_window import EXACT, MINUTE, SlidingWindow
from actors.forwarding.net.egress import Requested
from actors.forwarding.sleep_pack import FORMAT, Pack, read, take, write
from tests.kit.forwarding_rig import LOOPBACK_ALLOWED, spec
from tests.kit.upstreams import upstream_entry, upstream_list


class Hand:
    """A clock that is set by hand, for the loops of all processes of a test."""

    def __init__(self) -> None:
        self.time = 1_000.0
        self.loops: list[Loop] = []
        self._configure: Callable[[], None] = lambda: None

    def go_on(self, seconds: float) -> None:
        """Let time pass."""
        self.time += seconds
        for loop in self.loops:
            loop.now = self.time

    def context(self, **changes: object) -> ForwardingContext:
        """What a new process of the proxy has, configured with these changes."""
        loop = Loop(lambda: self.time)
        self.loops.append(loop)
        made = ForwardingContext(loop, lambda _row: None, 10, 60.0)
        self._configure = lambda: made.configure(spec(1, **changes), LOOPBACK_ALLOWED)
        return made

    def woken(self, folder: Path, **changes: object) -> ForwardingContext:
        """A new process, with what those before it have left."""
        made = self.context(**changes)
        take(folder, made)
        self._configure()
        return made

    def first(self, **changes: object) -> ForwardingContext:
        """The first process of the proxy."""
        made = self.context(**changes)
        self._configure()
        return made


@pytest.fixture
def hand() -> Iterator[Hand]:
    made = Hand()
    yield made
    for loop in made.loops:
        loop.close()


ALICE = AccountSpec("a1", "alice", None, limits=LimitsSpec(requests_per_minute=3))


def uses(window: SlidingWindow, limit: int, now: float) -> int:
    """How many more requests it admits now."""
    count = 0
    while window.try_acquire(limit, now) == 0:
        count += 1
    return count


def client_window(context: ForwardingContext) -> SlidingWindow:
    return context.limits._clients.window("198.51.100.7")


def account_window(context: ForwardingContext) -> SlidingWindow:
    return context.limits.accounts["alice"].window


def guest_window(context: ForwardingContext) -> SlidingWindow:
    context.limits.guests.admit("guest", LimitsSpec(requests_per_minute=3))
    found = context.limits.guests.get("guest")
    assert found is not None
    return found.window


def rule_window(context: ForwardingContext) -> SlidingWindow:
    limited = Limited(("p1", "rule"), LimitsSpec(requests_per_minute=100), "policy p1", "rule")
    meter = context.limits.meter()
    assert context.limits.rules.admit(meter, [limited]) is None
    return context.limits.rules._known["p1", "rule"].window


@pytest.mark.parametrize("window", [client_window, account_window, guest_window, rule_window])
def test_requests_count_on_after_a_sleep(
    hand: Hand, tmp_path: Path, window: Callable[[ForwardingContext], SlidingWindow]
) -> None:
    before = hand.first(accounts=(ALICE,))
    used = window(before)
    for _ in range(5):
        assert used.try_acquire(100, hand.time) == 0
    own = len(before.limits.rules._known)  # that one request by its rule
    hand.go_on(10)
    write(tmp_path, 0, before)
    hand.go_on(20)
    after = window(hand.woken(tmp_path, accounts=(ALICE,)))
    times = after.kept().times
    assert len(times) == 5 + 2 * own
    assert uses(after, 100, hand.time) == 95 - 2 * own
    hand.go_on(MINUTE)
    assert uses(after, 100, hand.time) == 100


@given(
    st.lists(st.floats(0, 150), max_size=150).map(sorted),
    st.integers(1, 2 * EXACT),
    st.floats(0, 100),
    st.integers(1, 3),
)
def test_a_window_that_moves_admits_no_more_and_split_over_workers_no_more_either(
    times: list[float], limit: int, later: float, workers: int
) -> None:
    whole, parts = SlidingWindow(0.0), [SlidingWindow(0.0) for _ in range(workers)]
    now = 0.0
    for number, now in enumerate(times):
        if whole.try_acquire(limit, now) == 0:
            parts[number % workers].try_acquire(limit, now)
    moved = SlidingWindow(now)
    for part in parts:
        if not part.idle(now + later):
            moved.add(part.kept())
    left = uses(whole, limit, now + later)
    found = uses(moved, limit, now + later)
    assert found <= left + (1 if limit > EXACT else 0)  # rounding of two numbers
    if workers == 1:
        assert found >= left - (1 if limit > EXACT else 0)


def test_a_pause_after_wrong_passwords_lasts_and_failures_add_up(hand: Hand, tmp_path: Path) -> None:
    before = hand.first()
    for guessing in (before.authenticator.guessing, before.authenticator.backend.guessing):
        for _ in range(FAILURES_OF_USER):
            guessing.failed("198.51.100.7", "alice", hand.time)
        for _ in range(FAILURES_OF_USER - 1):
            guessing.failed("198.51.100.7", "bob", hand.time)
    hand.go_on(5)
    write(tmp_path, 0, before)
    after = hand.woken(tmp_path)
    for guessing in (after.authenticator.guessing, after.authenticator.backend.guessing):
        assert guessing.paused("198.51.100.7", "alice", hand.time)
        assert not guessing.paused("198.51.100.7", "alice", hand.time + PAUSE)
        assert not guessing.paused("198.51.100.7", "bob", hand.time)
        assert guessing.failed("198.51.100.7", "bob", hand.time)


UPSTREAMS = upstream_list(*(upstream_entry(port) for port in (1001, 1002, 1003)))
SEVEN = Parameters("7", 60.0)


def chosen(context: ForwardingContext, now: float) -> int:
    """The upstream of a session."""
    upstreams = context.upstreams
    assert upstreams is not None
    found = upstreams._sessions.choose("alice\0007", SEVEN, lambda _each: True, lambda each: each.state != "down", now)
    return -1 if found is None else found.index


def test_a_session_that_has_moved_stays_and_an_upstream_that_is_down_is_known(hand: Hand, tmp_path: Path) -> None:
    before = hand.first(upstreams=UPSTREAMS)
    assert before.upstreams is not None
    own = before.upstreams.members[chosen(before, hand.time)]
    own.failed(hand.time, "refused")
    own.acquire()
    other = chosen(before, hand.time)
    assert other != own.index
    hand.go_on(10)
    write(tmp_path, 0, before)
    after = hand.woken(tmp_path, upstreams=UPSTREAMS)
    assert after.upstreams is not None
    known = after.upstreams.members[own.index]
    assert (known.state, known.last_error, known.failures, known.connections) == ("down", "refused", 1, 1)
    assert (UPSTREAM_DOWN, own.name) in after.problems._active
    assert chosen(after, hand.time) == other
    known.succeeded(hand.time)
    assert chosen(after, hand.time) == other
    hand.go_on(61)
    assert chosen(after, hand.time) == own.index


def test_what_is_known_of_upstreams_waits_until_they_are_configured(hand: Hand, tmp_path: Path) -> None:
    before = hand.first(upstreams=UPSTREAMS)
    assert before.upstreams is not None
    before.upstreams.members[1].failed(hand.time, "refused")
    write(tmp_path, 0, before)
    write(tmp_path, 0, hand.woken(tmp_path))  # without upstreams for a while
    after = hand.woken(tmp_path, upstreams=UPSTREAMS)
    assert after.upstreams is not None
    assert [each.state for each in after.upstreams.members] == ["unknown", "down", "unknown"]


def test_a_session_that_has_rotated_keeps_its_address(hand: Hand, tmp_path: Path) -> None:
    choice = {"egress": ("127.0.1.0/24",), "bind_policy": "session"}
    context = hand.first(**choice)
    rotated = Requested("198.51.100.7", "alice", "7", rotate=True, ttl=60.0)
    stays = rotated._replace(rotate=False)
    stated = context.sources.stated(None, None)
    first = context.sources.source(stated, stays, None)
    moved = context.sources.source(stated, rotated, None)
    assert context.sources.source(stated, stays, None) == moved
    write(tmp_path, 0, context)
    hand.go_on(30)
    after = hand.woken(tmp_path, **choice)
    assert after.sources.source(stated, stays, None) == moved
    hand.go_on(61)
    assert after.sources.source(stated, stays, None) == first


def test_workers_leave_one_pack_each_and_all_are_taken(hand: Hand, tmp_path: Path) -> None:
    for worker in range(2):
        before = hand.first()
        for _ in range(3):
            client_window(before).try_acquire(100, hand.time)
        write(tmp_path, worker, before)
    assert len(list(tmp_path.iterdir())) == 2
    after = hand.woken(tmp_path)
    assert uses(client_window(after), 100, hand.time) == 94
    assert list(tmp_path.iterdir()) == []


def test_what_was_not_used_since_waits_for_the_next_sleep(hand: Hand, tmp_path: Path) -> None:
    before = hand.first()
    client_window(before).try_acquire(100, hand.time)
    write(tmp_path, 0, before)
    write(tmp_path, 0, hand.woken(tmp_path))
    assert uses(client_window(hand.woken(tmp_path)), 100, hand.time) == 99


def test_there_is_no_file_where_nothing_is_worth_keeping(hand: Hand, tmp_path: Path) -> None:
    before = hand.first(accounts=(ALICE,))
    client_window(before).try_acquire(100, hand.time)
    hand.go_on(2 * MINUTE)
    write(tmp_path / "none", 0, before)
    assert not (tmp_path / "none").exists()
    hand.go_on(-2 * MINUTE)
    write(tmp_path, 0, before)
    assert (tmp_path / "asleep.0").exists()
    hand.go_on(2 * MINUTE)
    write(tmp_path, 0, before)
    assert not (tmp_path / "asleep.0").exists()  # no process has taken that of the sleep before


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"nonsense",
        pack(Pack(FORMAT, b"another boot")),
        pack(Pack(FORMAT + 1, b"")),
        pack(Pack(FORMAT, b""))[:-1],
        pack(Pack(FORMAT, b"", windows=((("client", "x"), "no window"),))),  # type: ignore[arg-type]
    ],
)
def test_a_damaged_pack_is_ignored_with_a_line(
    hand: Hand, tmp_path: Path, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    (tmp_path / "asleep.0").write_bytes(data)
    with caplog.at_level(logging.INFO):
        after = hand.woken(tmp_path)
    assert "what the proxy knew before it slept is ignored" in caplog.text
    assert uses(client_window(after), 10, hand.time) == 10
    assert read(data) is None
    assert not (tmp_path / "asleep.0").exists()


def test_a_pack_that_cannot_be_written_leaves_no_half_of_it(hand: Hand, tmp_path: Path) -> None:
    before = hand.first()
    client_window(before).try_acquire(100, hand.time)
    (tmp_path / "asleep.0").mkdir()  # nothing can be renamed to it
    with pytest.raises(OSError, match=r"asleep\.0"):
        write(tmp_path, 0, before)
    assert [each.name for each in tmp_path.iterdir()] == ["asleep.0"]
