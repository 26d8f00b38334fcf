"""Processes with accounts and a collector in one process, by a clock set by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from actors.bus.loop import Loop
from actors.bus.messages.accounts import AccountActivity, QueryUsage, ResetUsage
from actors.bus.messages.common import METRICS, Done, Unreachable
from actors.bus.messages.events import Event
from actors.bus.messages.specs import AccountSpec, ProxySpec
from actors.forwarding.limits.earlier_usage import EarlierUsage
from actors.forwarding.limits.limits import LimitsOfProxy
from actors.forwarding.limits.usage import AccountCounter
from actors.metrics.usage.service import UsageService
from tests.kit.forwarding_rig import spec
from tests.kit.live_state import Machine


class Hand:
    """A clock that is set by hand, and goes on by `step` each time that it is read."""

    time = 100.0
    step = 0.0

    def __call__(self) -> float:
        self.time += self.step
        return self.time


class Service(UsageService):
    """A collector's part that hangs while it is `silent`."""

    silent = False

    def _book_changed(self) -> None:
        if not self.silent:
            super()._book_changed()


class Collector:
    """A collector at the other end of a mailbox; `down` while it cannot be reached, `silent` while it hangs."""

    def __init__(self, loop: Loop, folder: Path, state: Path) -> None:
        self._loop = loop
        self._folder, self._state = folder, state
        self.events: list[Event] = []
        self.asked: list[QueryUsage] = []
        self.on_first_use: Callable[[], None] = lambda: None
        self.service = self._start()
        self.down = False

    def _start(self) -> Service:
        return Service(self._loop, self._folder, self._state, self.events.append, self._is_used_first)

    def _is_used_first(self) -> None:
        self.on_first_use()

    @property
    def silent(self) -> bool:
        return self.service.silent

    @silent.setter
    def silent(self, silent: bool) -> None:
        self.service.silent = silent

    def kill(self) -> None:
        """It has died: nothing of it does anything any more."""
        self.service.silent = self.down = True

    def restart(self) -> None:
        """Another one runs in its place."""
        self.service.silent = True
        self.service._ledger.close()
        self.service = self._start()
        self.down = False

    def ask(self, to: str, message: Any, on_reply: Callable[[Any], None], timeout: float = 5.0) -> None:
        assert to == METRICS
        self.asked.append(message)
        if self.down:
            self._loop.call_soon(lambda: on_reply(Unreachable(to, "it is not on the bus")))
        elif self.silent:
            self._loop.call_later(timeout, lambda: on_reply(Unreachable(to, "no reply in time")))
        else:
            self.service.receive(message, lambda reply: self._loop.call_soon(lambda: on_reply(reply)))

    def activity(self, account_id: str = "acc_1", period: str = "total") -> AccountActivity:
        replies: list[Any] = []
        self.service.receive(QueryUsage({account_id: period}), replies.append)
        found: AccountActivity = replies[0].accounts[account_id]
        return found

    def reset(self, account_id: str = "acc_1") -> None:
        replies: list[Any] = []
        self.service.receive(ResetUsage((account_id,)), replies.append)
        assert replies == [Done()]


class Process:
    """The accounts of one process of a proxy."""

    def __init__(self, world: World, proxy_id: str = "px1", shares: bool = True) -> None:
        self._world = world
        self.state = world.machine.state(proxy_id)
        self.limits = LimitsOfProxy(world.loop, self.state if shares else None)
        self.proxy_id = proxy_id
        self.earlier = EarlierUsage(world.loop, world.collector, self.limits.usage)  # type: ignore[arg-type]

    def configure(self, *accounts: AccountSpec) -> None:
        config: ProxySpec = spec(1, id=self.proxy_id, accounts=accounts, auth_required=True)
        self.limits.configure(config)

    @property
    def ada(self) -> AccountCounter:
        return self.limits.accounts["ada"].usage

    def uses(self, count: int) -> None:
        self.ada.count(True, count)

    def knows(self) -> int:
        return self.ada.state().usage.bytes_in

    def die(self) -> None:
        """As the supervisor sees it. It has no time for anything."""
        usage = self.limits.usage
        for timer in (usage._timer, usage._time_timer):
            if timer is not None:
                timer.cancel()
        self._world.machine.end(self.state, self.proxy_id)


class World:
    def __init__(self, folder: Path) -> None:
        self.hand = Hand()
        self.loop = Loop(self.hand)
        self.machine = Machine(folder / "state", lambda: self.loop.now)
        self.machine.files.adopt({})
        self.collector = Collector(self.loop, folder / "metrics", folder / "state")

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.hand.time += 0.1
            self.turn()

    def turn(self) -> None:
        """Let what is due be done, and no time pass."""
        for _ in range(3):
            self.loop.turn(0)

    def booked(self) -> int:
        """Bytes in of the first account that the collector has on disk."""
        return self.collector.service._ledger.usage({"acc_1": "total"})["acc_1"].usage.bytes_in

    def close(self) -> None:
        self.collector.service.close()
        self.loop.close()


ADA = AccountSpec("acc_1", "ada", None, quota=1000)
