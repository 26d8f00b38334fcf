"""What a process leaves for the next one while its proxy sleeps, by a clock that is set by hand."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors.bus.codec import pack
from actors.bus.loop import Loop
from actors.bus.messages.common import UPSTREAM_DOWN
from actors.forwarding.access.username_parameters import Parameters
from actors.forwarding.context import ForwardingContext
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


def one_down(hand: Hand, index: int = 1) -> ForwardingContext:
    """A process that knows that an upstream is down."""
    made = hand.first(upstreams=UPSTREAMS)
    assert made.upstreams is not None
    made.upstreams.members[index].failed(hand.time, "refused")
    return made


def states(context: ForwardingContext) -> list[str]:
    assert context.upstreams is not None
    return [each.state for each in context.upstreams.members]


def test_workers_leave_one_pack_each_and_all_are_taken(hand: Hand, tmp_path: Path) -> None:
    for worker in range(2):
        write(tmp_path, worker, one_down(hand, worker))
    assert len(list(tmp_path.iterdir())) == 2
    after = hand.woken(tmp_path, upstreams=UPSTREAMS)
    assert states(after) == ["down", "down", "unknown"]
    assert list(tmp_path.iterdir()) == []


def test_there_is_no_file_where_nothing_is_worth_keeping(hand: Hand, tmp_path: Path) -> None:
    write(tmp_path / "none", 0, hand.first())
    assert not (tmp_path / "none").exists()
    write(tmp_path, 0, one_down(hand))
    assert (tmp_path / "asleep.0").exists()
    write(tmp_path, 0, hand.first())
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
        pack(Pack(FORMAT, b"", upstreams=("no set",))),  # type: ignore[arg-type]
    ],
)
def test_a_damaged_pack_is_ignored_with_a_line(
    hand: Hand, tmp_path: Path, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    (tmp_path / "asleep.0").write_bytes(data)
    with caplog.at_level(logging.INFO):
        after = hand.woken(tmp_path, upstreams=UPSTREAMS)
    assert "what the proxy knew before it slept is ignored" in caplog.text
    assert states(after) == ["unknown"] * 3
    assert read(data) is None
    assert not (tmp_path / "asleep.0").exists()


def test_a_pack_that_cannot_be_written_leaves_no_half_of_it(hand: Hand, tmp_path: Path) -> None:
    before = one_down(hand)
    (tmp_path / "asleep.0").mkdir()  # nothing can be renamed to it
    with pytest.raises(OSError, match=r"asleep\.0"):
        write(tmp_path, 0, before)
    assert [each.name for each in tmp_path.iterdir()] == ["asleep.0"]
