"""The records plane: what was added is stored exactly once, in order, whichever process dies; nothing waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgpack
import pytest

from actors.bus import records
from actors.bus.loop import Loop
from actors.bus.messages.records import QueryLogs
from actors.bus.records import RecordBatch, RecordReceiver, RecordSender
from tests.kit.bus import Bench
from tests.kit.clocks import Clock
from tests.kit.records import NOON, SearchedIndex, row

NO_BATCHES: list[list[object]] = [
    ["s", 1, 1, 1, b"\x05"],
    ["s", 1, 1, 1, b"\xc0"],
    ["s", 1, 1, 1, 7],
    ["s", "1", 1, 1, b"\x90"],
    [["s"], 1, 1, 1, b"\x90"],
    ["s", 1, 1, None, b"\x90"],
    ["s", 1, 1, 1, b"\x93\x05\xc0\x90"],
]
"""Rows that are no list, heads of other types; the last is a batch of three things that are no records."""


def batch_of(content: list[object]) -> list[bytes]:
    return [msgpack.packb(content)]


def everything(index: SearchedIndex) -> list[str]:
    page = index.find(QueryLogs(0.0, NOON * 2, 100_000, 0, None, None, None))
    assert page.total == len(page.rows)
    return [each["target_url"] for each in reversed(page.rows)]


@pytest.fixture
def index(bench: Bench) -> Iterator[SearchedIndex]:
    made = SearchedIndex(bench.run_dir.path / "logs", lambda: NOON)
    yield made
    made.close()


@pytest.fixture
def sender(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> RecordSender:
    monkeypatch.setattr(records, "FLUSH_PERIOD", 0.02)
    monkeypatch.setattr(records, "RESEND_AFTER", 0.2)
    made: RecordSender = bench.keep(RecordSender(bench.loop, bench.context, bench.run_dir.records, "forwarding.p", 7))
    return made


def receive(bench: Bench, commit: records.Commit) -> RecordReceiver:
    return RecordReceiver(bench.loop, bench.context, bench.run_dir.records, commit)


def test_records_are_stored_and_acknowledged(bench: Bench, sender: RecordSender, index: SearchedIndex) -> None:
    receiver = receive(bench, index.commit)
    for number in range(2_500):
        sender.add(row(number))
    bench.until(lambda: sender.settled, "everything is acknowledged")
    assert everything(index) == [f"host:{number}" for number in range(2_500)]
    receiver.close()


def test_records_survive_an_indexer_that_dies_before_and_after_its_commit_and_are_stored_once(
    bench: Bench, sender: RecordSender, index: SearchedIndex
) -> None:
    folder = bench.run_dir.path / "logs"

    class DiedError(Exception):
        pass

    def dies_before(_batch: RecordBatch) -> int:
        raise DiedError

    def dies_after(batch: RecordBatch) -> int:
        index.commit(batch)
        raise DiedError

    number = 0
    for commit in (dies_before, dies_after, dies_before, dies_after):
        receiver = receive(bench, commit)
        for _ in range(10):
            sender.add(row(number))
            number += 1
        with pytest.raises(DiedError):
            bench.until(lambda: False, "the indexer dies")
        receiver.close()
        index.close()
        index = SearchedIndex(folder, lambda: NOON)
    receiver = receive(bench, index.commit)
    bench.until(lambda: sender.settled, "everything is acknowledged")
    assert everything(index) == [f"host:{each}" for each in range(number)]
    receiver.close()


def test_an_indexer_that_can_not_write_acknowledges_nothing_and_loses_nothing(
    bench: Bench, sender: RecordSender, index: SearchedIndex
) -> None:
    full = True
    refused = 0

    def commit(batch: RecordBatch) -> int:
        nonlocal refused
        if full:
            refused += 1
            return batch.first - 1
        return index.commit(batch)

    receiver = receive(bench, commit)
    sender.add(row(0))
    bench.until(lambda: refused >= 2, "it was sent again")
    sender.add(row(1))
    full = False
    bench.until(lambda: sender.settled, "everything is acknowledged")
    assert everything(index) == ["host:0", "host:1"]
    receiver.close()


def test_without_an_indexer_the_sender_keeps_up_to_its_bound_and_counts_what_it_drops(
    bench: Bench,
    sender: RecordSender,
    index: SearchedIndex,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(records, "ROWS_MAX", 2_000)
    for number in range(5_000):
        sender.add(row(number))
        if number % 1_000 == 999:
            sender.flush()
    assert sender.dropped == 3_000
    assert caplog.text.count("access records so far") == 1
    receiver = receive(bench, index.commit)
    bench.until(lambda: sender.settled, "everything that was kept is acknowledged")
    assert everything(index) == [f"host:{number}" for number in range(2_000)]
    receiver.close()


class Wire:
    """In place of a sender's socket: what is sent goes to the test."""

    closed = False

    def __init__(self, send: Callable[[list[bytes]], object]) -> None:
        self._send = send

    def send_multipart(self, frames: list[bytes], _flags: int) -> None:
        self._send(frames)


def test_a_full_batch_is_sent_at_once(sender: RecordSender) -> None:
    for number in range(2 * records.BATCH_ROWS + 1):
        sender.add(row(number))
        assert len(sender._unacknowledged) == (number + 1) // records.BATCH_ROWS
    sender.flush()
    assert [count for _number, count, _frame in sender._unacknowledged] == [1_000, 1_000, 1]


def test_what_is_not_acknowledged_is_sent_again_in_batches(bench: Bench) -> None:
    clock = Clock(100.0)
    loop = Loop(clock)
    sender = RecordSender(loop, bench.context, bench.run_dir.records, "forwarding.p", 7)
    for number in range(20):
        sender.add(row(number))
        sender.flush()
    assert sender._resent == 0
    clock.now = loop.now = clock.now + records.RESEND_AFTER + 0.1
    sender.flush()
    assert sender._resent == records.RESENT_AT_ONCE
    sender._on_acknowledged([msgpack.packb(["forwarding.p", 7, 10])])
    sender.flush()
    assert sender._resent == records.RESENT_AT_ONCE, "one that is under way is not begun anew"
    loop._run_soon()
    assert sender._resent == 18, "what was acknowledged meanwhile is not sent"
    loop._run_soon()
    assert sender._resent == 0, "all were sent"
    sender.close()
    loop.close()


def test_an_indexer_that_lost_its_files_waits_for_nothing_that_will_not_come(
    bench: Bench, sender: RecordSender, index: SearchedIndex
) -> None:
    receiver = receive(bench, index.commit)
    sender.add(row(0))
    bench.until(lambda: sender.settled, "the first is acknowledged")
    receiver.close()
    index.close()
    fresh = SearchedIndex(bench.run_dir.path / "other", lambda: NOON)
    receiver = receive(bench, fresh.commit)
    sender.add(row(1))
    bench.until(lambda: sender.settled, "the second is acknowledged")
    assert everything(fresh) == ["host:1"]
    receiver.close()
    fresh.close()


def test_a_second_process_of_the_same_actor_begins_anew(
    bench: Bench, sender: RecordSender, index: SearchedIndex
) -> None:
    receiver = receive(bench, index.commit)
    successor: RecordSender = bench.keep(
        RecordSender(bench.loop, bench.context, bench.run_dir.records, "forwarding.p", 8)
    )
    sender.add(row(0))
    successor.add(row(1))
    bench.until(lambda: sender.settled and successor.settled, "both are acknowledged")
    assert sorted(everything(index)) == ["host:0", "host:1"]
    receiver.close()


def test_garbage_is_refused_and_the_receiver_goes_on(bench: Bench, sender: RecordSender, index: SearchedIndex) -> None:
    import zmq

    from actors.bus.loop import new_socket

    receiver = receive(bench, index.commit)
    rude = bench.keep(new_socket(bench.context, zmq.DEALER))
    rude.connect(bench.run_dir.records)
    for frames in (
        [b"alone"],
        [b"\xc1", b"\xc1"],
        [b"\x91\x01", b"\x90"],
        [b"a", b"b", b"c"],
        *map(batch_of, NO_BATCHES),
    ):
        rude.send_multipart(frames)
    sender.add(row(0))
    bench.until(lambda: sender.settled, "the good one is acknowledged")
    assert everything(index) == ["host:0"]
    receiver.close()


def test_files_of_the_index_are_private(index: SearchedIndex, bench: Bench) -> None:
    index.commit(RecordBatch("s", 1, 1, 1, [list(row(0))]))
    folder: Path = bench.run_dir.path / "logs"
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
