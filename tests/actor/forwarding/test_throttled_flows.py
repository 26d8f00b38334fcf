"""Flows with a throttle take from the source what it lets pass, by the kernel as through this process."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from actors.bus.loop import Loop
from actors.forwarding.limits.token_bucket import Throttle, TokenBucket, Wake
from actors.forwarding.net.splice import AnyFlow, CopyFlow, Flow, PipePool, Progress


class Turnstile:
    """Lets pass what a test says, as an account does whose quota has so much room."""

    def __init__(self) -> None:
        self.open_for = 0
        self.spent = 0
        self._loop = Loop()
        self._unlimited = TokenBucket(self._loop, 0)

    def throttle(self) -> Throttle:
        throttle = Throttle(True, self._unlimited)
        throttle.attach(self)
        return throttle

    def close(self) -> None:
        self._loop.close()

    def bucket(self, _inward: bool) -> TokenBucket:
        return self._unlimited

    def room(self) -> int:
        return self.open_for

    def wait(self, _wake: Wake) -> bool:
        raise AssertionError

    def count(self, _inward: bool, bytes_moved: int) -> None:
        self.open_for -= bytes_moved
        self.spent += bytes_moved


class Street:
    """Bytes are put in at one end and come out at the other, through a flow with a turnstile."""

    def __init__(self, kernel: bool, length: int | None) -> None:
        self.start, source = socket.socketpair()
        destination, self.end = socket.socketpair()
        self.sockets = (self.start, source, destination, self.end)
        for each in self.sockets:
            each.setblocking(False)
        self.turnstile = Turnstile()
        throttle = self.turnstile.throttle()
        self.flow: AnyFlow
        if kernel:
            self.pipes = PipePool()
            self.flow = Flow(self.pipes, source.fileno(), destination.fileno(), length, throttle)
        else:
            self.flow = CopyFlow(source, destination, length, throttle)

    def close(self) -> None:
        self.turnstile.close()
        for each in self.sockets:
            each.close()

    def arrived(self) -> int:
        try:
            return len(self.end.recv(1 << 20))
        except BlockingIOError:
            return 0


@pytest.fixture(params=[True, False], ids=["spliced", "copied"])
def street(request: pytest.FixtureRequest) -> Iterator[Street]:
    made = Street(request.param, None)
    yield made
    made.close()


def test_a_closed_gate_lets_nothing_pass_and_is_no_end(street: Street) -> None:
    street.start.send(b"x" * 1000)
    assert street.flow.pump() is Progress.THROTTLED
    assert (street.arrived(), street.turnstile.spent) == (0, 0)


def test_what_the_gate_gives_is_what_moves(street: Street) -> None:
    street.start.send(b"x" * 1000)
    for share, moved in ((300, 300), (1, 1), (5000, 699)):
        street.turnstile.open_for = share
        progress = street.flow.pump()
        assert street.arrived() == moved
        assert progress is (Progress.EMPTY if share == 5000 else Progress.THROTTLED)
    assert street.turnstile.spent == street.flow.moved == 1000


def test_the_end_is_seen_once_the_gate_opens_again(street: Street) -> None:
    street.start.send(b"x" * 10)
    street.start.close()
    street.turnstile.open_for = 10
    assert street.flow.pump() is Progress.THROTTLED
    street.turnstile.open_for = 1
    assert street.flow.pump() is Progress.ENDED
    assert street.turnstile.spent == 10


@pytest.mark.parametrize("kernel", [True, False])
def test_a_flow_of_known_length_is_complete_whatever_the_gate_says_then(kernel: bool) -> None:
    street = Street(kernel, 10)
    street.start.send(b"x" * 20)
    street.turnstile.open_for = 10
    assert street.flow.pump() is Progress.COMPLETE
    assert street.arrived() == 10
    street.close()
