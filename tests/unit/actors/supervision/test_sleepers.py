"""Which processes a proxy may be sent to sleep with."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.common import Done
from actors.bus.messages.forwarding import Idle, Resume, Sleep
from actors.supervision.proxies.desired_proxies import DesiredProxies
from actors.supervision.proxies.sleepers import Sleepers
from tests.kit.standin_actors import spec

NAME = "forwarding.a"


class Fleet:
    """The bus, and two workers of a proxy that serve."""

    def __init__(self) -> None:
        self.by_id: dict[str, object] = {"a": {}}
        self.workers: list[Any] = [self.worker(1), self.worker(2)]
        self.asked: dict[str, Callable[[Any], None]] = {}
        self.sent: list[tuple[str, Any]] = []
        self.stopped: list[str] = []

    @staticmethod
    def worker(instance: int) -> Any:
        return SimpleNamespace(serving=instance, is_settled=True, life=SimpleNamespace(restarts=0))

    def ask(self, to: str, message: Any, on_reply: Callable[[Any], None], _timeout: float) -> None:
        assert message == Sleep()
        self.asked[to] = on_reply

    def tell(self, to: str, message: Any) -> bool:
        self.sent.append((to, message))
        return True

    def of_proxy(self, _proxy_id: str) -> list[Any]:
        return self.workers

    def sleep(self, proxy_id: str) -> None:
        self.stopped.append(proxy_id)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def sleepers(fleet: Fleet) -> Iterator[Sleepers]:
    desired, loop = DesiredProxies(), Loop()
    desired.replace([spec("a", 1, sleep_after=60, workers=2)])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        context: Any = SimpleNamespace(loop=loop, router=fleet)
        listeners: Any = SimpleNamespace(get=lambda _proxy_id: [listener])
        predecessors: Any = SimpleNamespace(has=lambda _name: False)
        made = Sleepers(context, desired, listeners, predecessors, lambda _proxy_id: None)
        made.awake = fleet
        for instance in (1, 2):
            made.idle(NAME, Idle(instance), lambda _message: None)
        yield made
    loop.close()


def test_it_sleeps_when_the_processes_that_were_asked_accept_nothing(fleet: Fleet, sleepers: Sleepers) -> None:
    for each in fleet.asked.values():
        each(Done())
    assert ("a" in sleepers, fleet.stopped, fleet.sent) == (True, ["a"], [])


def test_it_stays_awake_when_one_of_them_was_replaced_meanwhile(fleet: Fleet, sleepers: Sleepers) -> None:
    fleet.asked[f"{NAME}/1"](Done())
    fleet.workers[0] = fleet.worker(3)  # it accepts clients, and knows nothing of a sleep
    fleet.asked[f"{NAME}/2"](Done())
    assert ("a" in sleepers, fleet.stopped) == (False, [])
    assert fleet.sent == [(f"{NAME}/{instance}", Resume()) for instance in (1, 2)]


def test_it_stays_awake_when_it_has_got_another_worker_meanwhile(fleet: Fleet, sleepers: Sleepers) -> None:
    fleet.workers.append(fleet.worker(3))
    for each in fleet.asked.values():
        each(Done())
    assert ("a" in sleepers, fleet.stopped) == (False, [])
