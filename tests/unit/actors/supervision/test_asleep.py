"""No client falls through when a proxy goes to sleep, in every order of events: processes and kernel are the test's."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from actors.bus.messages.common import Done, Failed
from actors.bus.messages.forwarding import Resume, Sleep
from actors.supervision.proxies.sleepers import SleepWatch, any_readable
from tests.kit.tables import table
from tests.kit.wait import wait_until

PROXY = "px1"
SOCKET = 7


class Process:
    """A process of the proxy, whose steps are those of `actors.forwarding.sleeper`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inbox: deque[tuple[Any, Callable[[Any], None]]] = deque()
        self.outbox: deque[Callable[[], None]] = deque()
        self.steps: Iterator[None] | None = None
        self.accepts = True
        self.has_clients = False
        self.stopped = False


class Choices:
    """One way through all decisions; `next_way` is another one, until there is none."""

    def __init__(self) -> None:
        self._taken: list[list[int]] = []
        self._at = 0

    def choose(self, count: int) -> int:
        if self._at == len(self._taken):
            self._taken.append([0, count])
        taken, known = self._taken[self._at]
        assert known == count, "a way can't be repeated"
        self._at += 1
        return taken

    def next_way(self) -> bool:
        self._at = 0
        while self._taken:
            self._taken[-1][0] += 1
            if self._taken[-1][0] < self._taken[-1][1]:
                return True
            self._taken.pop()
        return False


class World:
    """The kernel's queue of one listening socket, the processes that accept there, and the supervisor."""

    def __init__(self, choices: Choices, workers: int, clients: int, cancels: bool) -> None:
        self._choose = choices.choose
        self._to_come = clients
        self._cancels = cancels
        self.waiting = 0
        self.served = 0
        self.slept = self.woken = 0
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._processes = {name: Process(name) for name in (f"w/{index}" for index in range(workers))}
        self._watch = SleepWatch(
            self, self, lambda _id: (SOCKET,), self._may_sleep, self._asleep, self._waking, self._is_readable
        )
        everyone = tuple(self._processes)
        for name in everyone:
            self._watch.idle(PROXY, name, everyone)

    # --- the supervisor's loop and bus ---

    def watch(self, fd: int, mask: int, handler: Callable[[int], None]) -> None:
        assert fd not in self._handlers, "a descriptor can't be watched twice"
        assert mask
        self._handlers[fd] = handler
        self._maybe_a_client()

    def unwatch(self, fd: int) -> None:
        self._handlers.pop(fd, None)

    def ask(self, to: str, message: Any, on_reply: Callable[[Any], None], timeout: float) -> None:
        assert timeout > 0
        self._processes[to].inbox.append((message, on_reply))

    def tell(self, to: str, message: Any) -> bool:
        self._processes[to].inbox.append((message, lambda _reply: None))
        return True

    def _is_readable(self, descriptors: Iterable[int]) -> bool:
        assert tuple(descriptors) == (SOCKET,)
        self._maybe_a_client()
        found = self.waiting > 0
        self._maybe_a_client()
        return found

    def _asleep(self, proxy_id: str) -> None:
        assert proxy_id == PROXY
        self.slept += 1
        for each in self._processes.values():
            assert not each.accepts, "a process that accepts is stopped as if it slept"
            assert not each.has_clients, "a process with a client is stopped as if it slept"
            each.stopped = True

    def _waking(self, proxy_id: str) -> None:
        assert proxy_id == PROXY
        assert not self._handlers, "the next process accepts, and the supervisor still watches"
        self.woken += 1
        self._processes["next"] = Process("next")

    # --- what may happen next ---

    def run(self) -> None:
        """Let things happen until nothing can."""
        while possible := self._possible():
            possible[self._choose(len(possible))]()

    def _possible(self) -> list[Callable[[], None]]:
        found: list[Callable[[], None]] = []
        if self._to_come:
            found.append(self._client_comes)
        if self.waiting and self._handlers:
            found.append(lambda: self._handlers[SOCKET](1))
        for each in self._processes.values():
            if each.outbox:
                found.append(lambda each=each: each.outbox.popleft()())  # type: ignore[misc]
            if each.steps is not None:
                found.append(lambda each=each: self._step(each))  # type: ignore[misc]
            elif each.inbox and not each.stopped:
                found.append(lambda each=each: self._receive(each))  # type: ignore[misc]
            if each.steps is None and each.accepts and not each.stopped and self.waiting:
                found.append(lambda each=each: self._accept(each))  # type: ignore[misc]
        return found

    def _maybe_a_client(self) -> None:
        if self._to_come and self._choose(2):
            self._client_comes()

    def _client_comes(self) -> None:
        self._to_come -= 1
        self.waiting += 1

    def _may_sleep(self, proxy_id: str, asked: tuple[str, ...]) -> bool:
        """Whether an operator's order has come by now."""
        assert proxy_id == PROXY
        assert asked == tuple(name for name in self._processes if name != "next")
        return not (self._cancels and self._choose(2))

    def _accept(self, process: Process) -> None:
        if self.waiting:
            process.has_clients = True
            self.served += self.waiting
            self.waiting = 0

    def _step(self, process: Process) -> None:
        assert process.steps is not None
        if next(process.steps, self) is self:
            process.steps = None

    def _receive(self, process: Process) -> None:
        message, on_reply = process.inbox.popleft()
        if isinstance(message, Sleep):
            process.steps = self._fall_asleep(process, on_reply)
        else:
            assert isinstance(message, Resume)
            process.accepts = True

    def _fall_asleep(self, process: Process, on_reply: Callable[[Any], None]) -> Iterator[None]:
        self._accept(process)
        yield
        if process.has_clients:
            process.outbox.append(lambda: on_reply(Failed("there is a client")))
            return
        process.accepts = False
        yield
        process.outbox.append(lambda: on_reply(Done()))


@table(("workers", "clients", "cancels"), [(1, 0, False), (1, 1, True), (1, 2, False), (2, 0, True), (2, 1, False)])
def test_every_client_is_served_in_every_order_of_events(workers: int, clients: int, cancels: bool) -> None:
    choices, ways, ends = Choices(), 0, set()
    while True:
        world = World(choices, workers, clients, cancels)
        world.run()
        assert world.waiting == 0, "a client waits, and nothing will happen any more"
        assert world.served == clients
        assert world.woken <= world.slept <= 1
        accepts = [each.accepts for each in world._processes.values() if not each.stopped]
        assert all(accepts), "a process that lives accepts nothing"
        assert accepts or world._handlers, "neither a process nor the supervisor waits for clients"
        ends.add((world.slept, world.woken))
        ways += 1
        if not choices.next_way():
            break
    assert ways > (3 if clients else 0)
    assert (1, 0) in ends or clients  # without clients it sleeps
    assert not clients or {(0, 0), (1, 1)} <= ends  # it stays awake, or is woken


def test_a_proxy_of_many_workers_is_sent_to_sleep_when_all_of_them_are_idle() -> None:
    asked: list[str] = []

    class Bus:
        def ask(self, to: str, message: Any, on_reply: Callable[[Any], None], timeout: float) -> None:
            asked.append(to)

        def tell(self, to: str, message: Any) -> bool:
            return True

        def watch(self, fd: int, mask: int, handler: Callable[[int], None]) -> None: ...

        def unwatch(self, fd: int) -> None: ...

    bus = Bus()
    watch = SleepWatch(bus, bus, lambda _id: (SOCKET,), lambda _id, _all: True, lambda _id: None, lambda _id: None)
    watch.idle(PROXY, "w/1", ("w/1", "w/2"))
    watch.idle(PROXY, "w/1", ("w/1", "w/2"))
    assert asked == []
    watch.idle(PROXY, "w/2", ("w/2", "w/3"))  # the first one was replaced meanwhile
    assert asked == []
    watch.idle(PROXY, "w/3", ("w/2", "w/3"))
    assert asked == ["w/2", "w/3"]
    watch.idle(PROXY, "w/3", ("w/2", "w/3"))
    assert len(asked) == 2


def test_a_listening_socket_is_readable_with_a_client_in_its_queue() -> None:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        descriptors = first.fileno(), second.fileno()
        assert not any_readable(descriptors)
        with socket.create_connection(second.getsockname()), second.accept()[0]:
            assert not any_readable(descriptors)
        with socket.create_connection(second.getsockname()):
            assert wait_until(lambda: any_readable(descriptors), "the client is in the queue")
