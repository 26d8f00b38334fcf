"""A forwarding actor in a thread of the test, for what can't be seen from outside: what it holds, and faults put in."""

from __future__ import annotations

import gc
import os
import select
import subprocess
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from actors.bus.messages.common import forwarding_name
from actors.forwarding.actor import ForwardingActor
from actors.forwarding.context import ForwardingContext
from actors.process import Boot
from tests.kit.forked_actor import Forked
from tests.kit.forwarding_rig import PROXY_ID, Rig, until
from tests.kit.settings import boot_settings

T = TypeVar("T")


class Threaded(Forked):
    """Stands where the process of a rig would."""

    def __init__(self, actor: ForwardingActor) -> None:
        self.pid = os.getpid()
        self.returncode: int | None = None
        self._actor = actor
        self._calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._wake = os.eventfd(0)
        actor.loop.watch(self._wake, select.EPOLLIN, self._woken)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def poll(self) -> int | None:
        """None while it lives."""
        return None if self._thread.is_alive() else self.returncode

    def wait(self, seconds: float) -> int:
        """0 once its loop has ended as it should, 1 after an exception. Raises `subprocess.TimeoutExpired`."""
        self._thread.join(seconds)
        if self._thread.is_alive() or self.returncode is None:
            raise subprocess.TimeoutExpired("the actor's thread", seconds)
        return self.returncode

    def kill(self) -> None:
        """Have it end."""
        self.do(self._actor.finish)

    def do(self, call: Callable[[], object]) -> None:
        """Call in the actor's thread, between its turns."""
        self._calls.put(call)
        os.eventfd_write(self._wake, 1)

    def _woken(self, _mask: int) -> None:
        os.eventfd_read(self._wake)
        while not self._calls.empty():
            self._calls.get()()

    def _run(self) -> None:
        status = 1
        try:
            self._actor.loop.run()
            status = 0
        finally:
            self._actor.close()
            self._actor.loop.close()
            os.close(self._wake)
            self.returncode = status


class Inside(Rig):
    """As `Rig`, with the actor at hand."""

    actor: ForwardingActor

    def inspect(self, at: Callable[[ForwardingContext], T]) -> T:
        """What `at` gives for what the connections share, between two turns of the actor's loop."""
        seen: list[T] = []
        assert isinstance(self.process, Threaded)
        self.process.do(lambda: seen.append(at(self.actor.forwarding)))
        until(lambda: seen, "the actor's loop turns")
        return seen[0]

    def referenced(self, *kinds: type) -> list[Any]:
        """The objects of these classes that are still referenced by anything at all, or by each other."""
        return [each for each in gc.get_objects() if type(each) in kinds]

    def _spawn(self) -> Forked:
        boot = Boot(
            forwarding_name(PROXY_ID),
            1,
            self.folder,
            self.folder,
            settings=boot_settings(proxy=self._proxy),
            params=self._params,
        )
        self._lifeline = os.open(os.devnull, os.O_RDONLY)
        self.actor = ForwardingActor(boot, [each.dup() for each in self.listeners])
        return Threaded(self.actor)
