"""The loop: the ZeroMQ descriptor is edge-triggered for both directions, so EVENTS is read last before the wait."""

from __future__ import annotations

import os
import resource
import select
import signal
import threading
import time
from itertools import chain
from typing import Any

import pytest
import zmq

from actors.bus.loop import LONGEST_WAIT, TURN_MAX, UNCHECKED, Loop, new_socket
from tests.kit.bus import Bench
from tests.kit.clocks import Clock
from tests.kit.compiled import interpreted

MESSAGES = 20_000
WINDOW = 8
"""Messages that each side has under way; few, so that both sides go to sleep again and again."""
PATIENCE = 0.3


class DrainSendWait(interpreted("actors.bus.loop").Loop):  # type: ignore[misc]  # what it shows is of libzmq
    """The tempting order: receive what is there, then send, then wait. The send swallows an edge."""

    def turn(self, longest: float = 60.0) -> None:
        self.now = self._clock()
        for socket, receive in tuple(self._pumps.items()):
            while int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
                receive(socket.recv_multipart(zmq.NOBLOCK))
        self._run_due()
        self._run_soon()
        self._epoll.poll(longest)


class Side:
    """Sends `MESSAGES` and receives as many, never more than `WINDOW` ahead of the other side."""

    def __init__(self, loop: Loop, socket: zmq.Socket[bytes]) -> None:
        self._loop = loop
        self._socket = socket
        self.sent = self.received = 0
        self.stalls = 0
        """Waits that ran out although a message was there."""
        loop.attach(socket, self._on_message)
        loop.call_soon(self._send)

    @property
    def done(self) -> bool:
        return self.received >= MESSAGES and self.sent >= MESSAGES

    def run(self, deadline: float, stalled: threading.Event) -> None:
        while not self.done and not stalled.is_set() and time.monotonic() < deadline:
            began = time.monotonic()
            self._loop.turn(PATIENCE)
            if time.monotonic() - began >= PATIENCE and self._overslept():
                self.stalls += 1
                stalled.set()

    def _overslept(self) -> bool:
        """Is a message here of which the descriptor says nothing, after the other side had time to fall silent?"""
        time.sleep(PATIENCE)
        fd_is_silent = not select.select([self._socket.getsockopt(zmq.FD)], [], [], 0)[0]
        return fd_is_silent and bool(int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)

    def _on_message(self, _frames: list[bytes]) -> None:
        self.received += 1
        self._loop.call_soon(self._send)

    def _send(self) -> None:
        while self.sent < min(MESSAGES, self.received + WINDOW):
            try:
                self._loop.send(self._socket, [b"x"])
            except zmq.Again:  # the other side has not connected yet
                self._loop.call_later(0.01, self._send)
                return
            self.sent += 1


def exchange(loop_class: type[Loop], bench: Bench, seconds: float = 120.0) -> list[Side]:
    """20,000 messages each way between two threads."""
    context: zmq.Context[Any] = zmq.Context()
    sides: list[Side] = []
    try:
        address = f"ipc://{bench.run_dir.path}/pair-{os.urandom(3).hex()}"
        for join in (zmq.Socket.bind, zmq.Socket.connect):
            socket = new_socket(context, zmq.DEALER, high_water=MESSAGES)
            join(socket, address)
            sides.append(Side(loop_class(), socket))
        deadline, stalled = time.monotonic() + seconds, threading.Event()
        threads = [threading.Thread(target=side.run, args=(deadline, stalled)) for side in sides]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        context.destroy(linger=0)
    return sides


@pytest.mark.parametrize("_attempt", range(3))
def test_twenty_thousand_messages_each_way_arrive_without_a_lost_wake_up(bench: Bench, _attempt: int) -> None:
    sides = exchange(Loop, bench)
    assert [side.stalls for side in sides] == [0, 0]
    assert [side.received for side in sides] == [MESSAGES, MESSAGES]


def test_the_same_exchange_catches_a_loop_that_sends_between_reading_and_waiting(bench: Bench) -> None:
    for _attempt in range(15):
        if any(side.stalls for side in exchange(DrainSendWait, bench)):
            return
    pytest.fail("drain, send, wait never lost a wake-up: this test would not catch it in our loop, either")


def test_timers_run_in_order_and_cancelled_ones_do_not() -> None:
    loop, ran = Loop(), []
    loop.call_later(0.02, lambda: ran.append("second"))
    loop.call_later(0.01, lambda: ran.append("first"))
    loop.call_later(0.015, lambda: ran.append("never")).cancel()
    while len(ran) < 2:
        loop.turn(0.5)
    assert ran == ["first", "second"]
    loop.close()


def test_a_handler_may_unwatch_another_that_is_ready_in_the_same_turn() -> None:
    loop, ran = Loop(), []
    pipes = [os.pipe() for _ in range(2)]

    def take(mine: int, other: int) -> None:
        ran.append(mine)
        loop.unwatch(other)

    for index, (reading, writing) in enumerate(pipes):
        other = pipes[1 - index][0]
        loop.watch(reading, select.EPOLLIN, lambda _mask, mine=reading, other=other: take(mine, other))  # type: ignore[misc]
        os.write(writing, b"x")
    loop.turn(1)
    assert len(ran) == 1
    loop.close()
    for pipe in pipes:
        for fd in pipe:
            os.close(fd)


def test_a_turn_is_overdue_by_the_clock_and_not_by_what_it_did() -> None:
    times = [1.0]
    loop = Loop(lambda: times[-1])
    loop.turn(0.0)
    assert not loop.turn_exceeded()
    times.append(1.5)
    assert loop.turn_exceeded()
    loop.turn(0.0)
    assert not loop.turn_exceeded()
    loop.close()


def test_as_many_as_the_turn_has_time_for_and_the_others_are_left_in_the_iterator() -> None:
    clock = Clock(1.0)
    loop = Loop(clock)
    numbers = iter(range(100))
    batches: list[list[int]] = []
    while not batches or batches[-1]:
        loop.turn(0.0)
        batches.append([])
        for number in loop.while_time(numbers):
            batches[-1].append(number)
            clock.advance(TURN_MAX / 10)
    assert list(chain.from_iterable(batches)) == list(range(100))
    assert [len(each) for each in batches[:-1]] == [12] * 8 + [4]
    clock.advance(10 * TURN_MAX)
    assert len(list(loop.while_time(range(100)))) == UNCHECKED
    loop.close()


def test_stirred_is_said_once_after_a_descriptor_was_ready_and_not_by_time_alone(bench: Bench) -> None:
    said: list[str] = []
    reading, writing = os.pipe()
    bench.loop.watch(reading, select.EPOLLIN, lambda _mask: said.append(os.read(reading, 1).decode()))
    bench.loop.on_next_activity(lambda: said.append("stirred"))
    bench.loop.call_later(0.0, lambda: said.append("time"))
    bench.until(lambda: said, "time passes")
    for word in (b"a", b"b"):
        os.write(writing, word)
        bench.until(lambda word=word: word.decode() in said, "it is read")
    os.close(writing)
    bench.loop.unwatch(reading)
    os.close(reading)
    assert said == ["time", "a", "stirred", "b"]


def test_a_signal_handler_ends_the_wait(bench: Bench) -> None:
    interrupt = bench.loop.interrupter(bench.loop.stop)
    before = signal.signal(signal.SIGALRM, lambda _number, _frame: interrupt())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # there is no descriptor left for it
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        began = time.monotonic()
        bench.loop.run()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began < LONGEST_WAIT / 2
