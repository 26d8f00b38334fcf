"""One thread, one epoll: plain sockets, timers and ZeroMQ sockets together.

Plain descriptors are cheap: a list of handlers by descriptor, called with the epoll mask.

ZeroMQ sockets are not. Their descriptor is edge-triggered for both directions and means only that *something* may
have changed; any send or receive may swallow the edge. So after an edge, a send or a receive the next turn does the
same act, and nothing may come between it and the wait: read `EVENTS` of every ZeroMQ socket, pump those that have
something, and read again, until none has. (Draining, then sending, then waiting loses the edge that the send swallowed,
and hangs.) In a turn in which they were not touched they are left alone, since reading `EVENTS` of two of them costs as
much as serving a request; that is why everything is sent through `Loop.send`.

While a turn lasts, everything else waits, so it has a budget of time for what is due and soon, and another for what
is ready. What is left is first in the next turn, which waits for nothing.
"""

from __future__ import annotations

import heapq
import itertools
import os
import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, TypeVar

import zmq

T = TypeVar("T")

Handler = Callable[[int], None]
"""Called with the epoll mask of what is ready."""

PUMP_LIMIT: Final = 200
"""Messages received from one ZeroMQ socket before the others get their turn."""

EVENTS_MAX: Final = 256
"""Of one wait; the kernel keeps the others, level- and edge-triggered, and reports them first next time."""
EVENTS_BEHIND: Final = 32
"""While calls are left over from the last turn, so that they are not outnumbered by those that events bring."""
UNCHECKED: Final = 4
"""Calls between two looks at the clock."""
CANCELLED_MAX: Final = 64
"""Cancelled timers that are kept in any case; beyond that, never more than others."""

LONGEST_WAIT: Final = 60.0
TURN_MAX: Final = 0.005
"""Seconds after which calls and handlers with more to do leave it for the next turn: once in what is due and soon, once
in what is ready."""
THREADED_WAIT = 10.0
"""The longest wait of a process with other threads: one that holds the interpreter for good is found by it."""
_GOLDEN: Final = 0.6180339887
"""Multiples of it lie evenly between whole numbers: offsets that spread the ticks of processes."""


class Timer:
    """A scheduled call. `cancel` may be called at any time, also after it ran."""

    __slots__ = ("_loop", "call", "when")

    def __init__(self, loop: Loop, when: float, call: Callable[[], None]) -> None:
        self._loop = loop
        self.when = when
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Don't call it any more."""
        if self.call is not None:
            self.call = None
            self._loop.note_cancelled()

    def __repr__(self) -> str:
        return f"<Timer at {self.when:.3f}{'' if self.call else ' cancelled'}>"


class Loop:
    """The event loop of one process. Not thread-safe; other threads wake it through a socket of their own."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.now = clock()
        """The time of this turn, by the monotonic clock; good enough for deadlines and without a call."""
        self._epoll = select.epoll()
        self._handlers: list[Handler | None] = [None] * 64  # by descriptor: they are small numbers, used again
        self._gone: set[int] = set()
        """Descriptors unwatched since the last wait: an event of it is not that of a new descriptor with the same
        number."""
        self._left: list[tuple[int, int]] = []
        """Events of the last wait whose handlers were not called yet."""
        self._timers: list[tuple[float, int, Timer]] = []
        self._cancelled = 0
        """How many of the timers are cancelled."""
        self._numbers = itertools.count()
        self._offset = os.getpid() * _GOLDEN % 1.0
        self._soon: deque[Callable[[], None]] = deque()
        self.longest_wait = LONGEST_WAIT
        self.on_wake_deadline: Callable[[float], None] = ignore_deadline
        """Called with the time until which this loop may be silent: before each wait, and after it."""
        self._on_next_activity: Callable[[], None] | None = None
        self._zmq_dirty = False
        """True if a ZeroMQ socket may have something for which its descriptor will not wake the loop."""
        self._pumps: dict[zmq.Socket[bytes], Callable[[list[bytes]], object]] = {}
        self._eventfds: list[int] = []
        self._stopped = False
        self._woken = self.now
        """When the last wait ended."""
        self.ready = 0
        """How many descriptors this turn has found ready, those of the turn before that were left among them."""
        self.longest_turn = 0.0
        """Seconds of the longest turn, without its wait, since it was last set to 0."""

    # --- plain descriptors ---

    def watch(self, fd: int, mask: int, handler: Handler) -> None:
        """Call `handler` with the events that are ready, of those in `mask` (`select.EPOLL…`)."""
        self._epoll.register(fd, mask)
        if fd >= len(self._handlers):
            self._handlers.extend([None] * (fd + 64 - len(self._handlers)))
        self._handlers[fd] = handler

    def set_handler(self, fd: int, handler: Handler) -> None:
        """From now on `handler` is called for `fd`, with the same mask."""
        self._handlers[fd] = handler

    def unwatch(self, fd: int) -> None:
        """Stop watching `fd`; call it before the descriptor is closed. Harmless when it isn't watched."""
        if 0 <= fd < len(self._handlers) and self._handlers[fd] is not None:
            self._handlers[fd] = None
            self._gone.add(fd)
            self._epoll.unregister(fd)

    def unwatch_closed(self, fd: int) -> None:
        """`unwatch` for a descriptor that is closed at once and has no copy: the close removes it from the epoll."""
        if 0 <= fd < len(self._handlers) and self._handlers[fd] is not None:
            self._handlers[fd] = None
            self._gone.add(fd)

    # --- time ---

    def call_later(self, delay: float, call: Callable[[], None]) -> Timer:
        """Call once after `delay` seconds."""
        timer = Timer(self, self._clock() + delay, call)
        heapq.heappush(self._timers, (timer.when, next(self._numbers), timer))
        return timer

    def note_cancelled(self) -> None:
        """One timer more is cancelled. The heap is made anew without them when they are more than half of it."""
        self._cancelled += 1
        if self._cancelled > CANCELLED_MAX and self._cancelled > len(self._timers) // 2:
            self._timers[:] = [each for each in self._timers if each[2].call is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def call_every(self, period: float, call: Callable[[], None]) -> None:
        """Call every `period` seconds for as long as the loop lives.

        Calls of one process fall together on the ticks of its clock, so that an idle process wakes once for all of
        them; those of different processes are spread, so that a hundred don't wake in the same instant.
        """

        def again() -> None:
            self.call_later(self._until_tick(period), again)
            call()

        self.call_later(self._until_tick(period), again)

    def _until_tick(self, period: float) -> float:
        since = (self._clock() - self._offset) % period
        return period - since

    def call_soon(self, call: Callable[[], None]) -> None:
        """Call in the next turn, without waiting for anything."""
        self._soon.append(call)

    def interrupter(self, call: Callable[[], None]) -> Callable[[], None]:
        """A function for signal handlers: `call` is called in the next turn, and the wait, which continues after a
        handler (PEP 475), ends for it. The descriptor that it needs is made now, since none may be left later."""
        ready = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._eventfds.append(ready)

        def woken(_mask: int) -> None:
            os.eventfd_read(ready)
            call()

        self.watch(ready, select.EPOLLIN, woken)
        return lambda: os.eventfd_write(ready, 1)

    def on_next_activity(self, call: Callable[[], None]) -> None:
        """Call once, after the next turn in which a descriptor was ready: timers alone don't count.

        So an idle process needs no timer for what only a client can change. A second call replaces the first.
        """
        self._on_next_activity = call

    # --- ZeroMQ ---

    def attach(self, socket: zmq.Socket[bytes], receive: Callable[[list[bytes]], object]) -> None:
        """Call `receive` with the frames of every message that arrives at `socket`."""
        self._pumps[socket] = receive
        self._zmq_dirty = True
        self.watch(int(socket.getsockopt(zmq.FD)), select.EPOLLIN, self._touched)

    def detach(self, socket: zmq.Socket[bytes]) -> None:
        """Stop receiving from a ZeroMQ socket; call it before the socket is closed."""
        if self._pumps.pop(socket, None) is not None:
            self.unwatch(int(socket.getsockopt(zmq.FD)))

    def send(self, socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
        """Send at an attached socket without waiting; no other code may send there. Raises `zmq.Again` when it is
        full."""
        self._zmq_dirty = True
        socket.send_multipart(frames, zmq.NOBLOCK)

    def _touched(self, _mask: int) -> None:
        self._zmq_dirty = True

    # --- running ---

    def run(self) -> None:
        """Turn until `stop`."""
        self._stopped = False
        while not self._stopped:
            self.turn(self.longest_wait)

    def stop(self) -> None:
        """End `run` after this turn."""
        self._stopped = True

    def turn_exceeded(self) -> bool:
        """True when a handler or call with more to do should leave it for the next turn."""
        return self._clock() - self.now > TURN_MAX

    def while_time(self, items: Iterable[T]) -> Iterator[T]:
        """Of `items` as many as this turn has time for, `UNCHECKED` at least. An iterator has the others still."""
        iterator = iter(items)
        while some := tuple(islice(iterator, UNCHECKED)):
            yield from some
            if self.turn_exceeded():
                return

    def turn(self, longest: float = LONGEST_WAIT) -> None:
        """One turn: what is due, then the ZeroMQ sockets, then one wait and what it brought."""
        self.now = self._clock()
        behind = self._run_due()
        behind = self._run_soon() or behind
        pending = self._zmq_dirty and self._pump()
        if pending or self._soon or self._left or self._stopped:
            wait, self.now = 0.0, self._clock()
        else:
            wait = self._until_next(longest)
        self.on_wake_deadline(self.now + wait)
        took = self.now - self._woken
        if took > self.longest_turn:
            self.longest_turn = took
        ready = self._left
        if ready:
            self._left = []
        else:
            ready = self._epoll.poll(wait, EVENTS_BEHIND if behind else EVENTS_MAX)
            self._gone.clear()
        self.now = self._woken = now = self._clock()
        self.on_wake_deadline(now)
        self.ready = len(ready)
        self._handle(ready)
        if ready and self._on_next_activity is not None:
            call, self._on_next_activity = self._on_next_activity, None
            call()

    def close(self) -> None:
        """Close its own descriptors."""
        self._epoll.close()
        while self._eventfds:
            os.close(self._eventfds.pop())

    def _run_due(self) -> bool:
        """Call what is due, within the budget. Returns whether some is left."""
        timers, ran = self._timers, 0
        while timers and timers[0][0] <= self.now:
            if ran == UNCHECKED:
                if self.turn_exceeded():
                    return True
                ran = 0
            timer = heapq.heappop(timers)[2]
            call, timer.call = timer.call, None
            if call is None:
                self._cancelled -= 1
            else:
                ran += 1
                call()
        return False

    def _run_soon(self) -> bool:
        """Call what was to be called in this turn, within the budget. Returns whether some is left."""
        for count in range(len(self._soon)):
            if count & (UNCHECKED - 1) == UNCHECKED - 1 and self.turn_exceeded():
                return True
            self._soon.popleft()()
        return False

    def _handle(self, ready: list[tuple[int, int]]) -> None:
        """Call the handlers of what is ready, within the budget."""
        handlers, gone = self._handlers, self._gone
        for count, (fd, mask) in enumerate(ready):
            if count & (UNCHECKED - 1) == UNCHECKED - 1 and self.turn_exceeded():
                self._left = ready[count:]
                return
            handler = handlers[fd]
            if handler is not None and fd not in gone:
                handler(mask)

    def _until_next(self, longest: float) -> float:
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
            self._cancelled -= 1
        self.now = self._clock()
        if not self._timers:
            return longest
        return min(longest, max(0.0, self._timers[0][0] - self.now))

    def _pump(self) -> bool:
        """Read `EVENTS` of every ZeroMQ socket as the last act before the wait; True when messages are left over."""
        pumped = 0
        while self._zmq_dirty and pumped < PUMP_LIMIT:
            self._zmq_dirty = False
            for socket, receive in tuple(self._pumps.items()):
                if socket in self._pumps and int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
                    self._zmq_dirty = True
                    pumped += _drain(socket, receive)
        return self._zmq_dirty or bool(self._soon)


def _drain(socket: zmq.Socket[bytes], receive: Callable[[list[bytes]], object]) -> int:
    """Receive until the socket is empty or had its share; the number of messages."""
    for count in range(PUMP_LIMIT):
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return count
        receive(frames)
        if socket.closed:
            return count + 1
    return PUMP_LIMIT


def ignore_deadline(_when: float) -> None:
    """For a loop whose liveness is not supervised."""


def new_socket(context: zmq.Context[Any], kind: int, high_water: int = 10_000) -> zmq.Socket[bytes]:
    """A ZeroMQ socket that never delays the end of a process (LINGER 0) and holds at most `high_water` messages."""
    socket: zmq.Socket[bytes] = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, high_water)
    socket.setsockopt(zmq.RCVHWM, high_water)
    return socket


def bind(socket: zmq.Socket[bytes], address: str) -> None:
    """Bind; the file of an `ipc://` address is 0600, as all files of the run directory are. Raises `zmq.ZMQError`."""
    socket.bind(address)
    if address.startswith("ipc://"):
        os.chmod(address.removeprefix("ipc://"), 0o600)
