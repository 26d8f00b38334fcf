"""What the next program gets of proxies that changed while this one ended, and processes that are slow to change."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.common import Done, Failed
from actors.bus.messages.forwarding import Configure
from actors.bus.messages.specs import EgressSpec
from actors.supervision.callbacks import CountdownLatch
from actors.supervision.listeners.registry import ListenerRegistry
from actors.supervision.processes.lifecycle import State
from actors.supervision.processes.proxy_actors import APPLIED_WITHIN, CONFIGURED_WITHIN, ProxyActors
from actors.supervision.processes.worker_id import Worker
from config.net.ports import Ports
from tests.kit.clocks import Clock
from tests.kit.ports import free_port
from tests.kit.standin_actors import spec

LOCAL = "127.0.0.1"


def test_a_proxy_that_was_just_made_is_left_with_its_socket_and_one_that_was_removed_is_not() -> None:
    listeners = ListenerRegistry(lambda: 0.0)
    noop: Any = SimpleNamespace()
    actors = ProxyActors(noop, noop, "a:B", noop, listeners, noop, lambda _proxy_id: None)
    actors.attach(SimpleNamespace(by_id={}), lambda _proxy_id: None)  # type: ignore[arg-type]
    made, gone = free_port(), free_port()
    listeners.keep("gone", LOCAL, Ports.of(gone))
    actors.by_id["gone"] = {}
    listeners.reserve("made", LOCAL, Ports.of(made))
    (descriptor,) = listeners.get("made")
    number = descriptor.fileno()

    actors.settle_listeners({"made": spec("made", made)})
    assert listeners.hand_over() == [number]
    os.close(number)


class Router:
    """The bus to a process whose replies the test gives."""

    def __init__(self) -> None:
        self.asked: list[tuple[Callable[[Any], None], float]] = []

    def ask(self, _to: str, _message: Any, on_reply: Callable[[Any], None], timeout: float) -> None:
        self.asked.append((on_reply, timeout))


@pytest.mark.parametrize(("reply", "keeps"), [(Done(), True), (Failed("no"), False)])
def test_a_change_waits_a_while_for_a_slow_process_which_gets_it_once(reply: Any, keeps: bool) -> None:
    clock, router = Clock(100.0), Router()
    loop = Loop(clock)
    context: Any = SimpleNamespace(loop=loop, router=router)
    noop: Any = SimpleNamespace()
    actors = ProxyActors(context, noop, "a:B", noop, noop, noop, lambda _proxy_id: None)
    actor: Any = SimpleNamespace(name="forwarding.a", worker=Worker("a"), life=SimpleNamespace(state=State.RUNNING))
    actors.by_id["a"] = {0: actor}
    applied: list[bool] = []
    latch = CountdownLatch(lambda: applied.append(True))
    configure = Configure(spec("a", 1), EgressSpec("all", (), ()), {"list:x": b""})
    actors.configure(actor, 1, configure, latch)
    latch.release()

    clock.now += CONFIGURED_WITHIN - 1
    loop.turn(0)
    assert not applied
    clock.now += 2
    loop.turn(0)
    assert applied == [True]
    ((on_reply, within),) = router.asked
    assert within == APPLIED_WITHIN
    assert not actors.any_unconfigured()
    on_reply(reply)
    assert applied == [True]
    assert actors.any_unconfigured() is not keeps
    loop.close()
