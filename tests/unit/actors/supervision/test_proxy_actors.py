"""What the next program gets of proxies that changed while this one ended, and processes that are slow to change."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.common import Done, Failed
from actors.bus.messages.forwarding import Configure
from actors.bus.messages.specs import EgressSpec
from actors.process import Boot
from actors.supervision.callbacks import CountdownLatch
from actors.supervision.lifecycle import ActorState
from actors.supervision.listeners.registry import ListenerRegistry
from actors.supervision.processes.actor_specs import SupervisionContext, WorkerId
from actors.supervision.processes.live_state_files import LiveStateFiles
from actors.supervision.proxies.proxy_actors import APPLIED_WITHIN, CONFIGURED_WITHIN, ProxyActors
from actors.supervision.proxies.reconcile import Bind, Start, Watch
from config.net.names import Ports
from tests.kit.clocks import Clock
from tests.kit.ports import free_port
from tests.kit.standin_actors import spec

LOCAL = "127.0.0.1"


def test_a_proxy_that_was_just_made_is_left_with_its_socket_and_one_that_was_removed_is_not() -> None:
    listeners = ListenerRegistry(lambda: 0.0)
    noop: Any = SimpleNamespace()
    asleep: Any = SimpleNamespace(by_id={})
    actors = ProxyActors(noop, noop, "a:B", noop, listeners, noop, asleep, noop, noop)
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
        self.sent: list[Any] = []

    def ask(self, _to: str, message: Any, on_reply: Callable[[Any], None], timeout: float) -> None:
        self.sent.append(message)
        self.asked.append((on_reply, timeout))


@pytest.mark.parametrize(("reply", "keeps"), [(Done(), True), (Failed("no"), False)])
def test_a_change_waits_a_while_for_a_slow_process_which_gets_it_once(reply: Any, keeps: bool) -> None:
    clock, router = Clock(100.0), Router()
    loop = Loop(clock)
    context: Any = SimpleNamespace(loop=loop, router=router)
    noop: Any = SimpleNamespace()
    actors = ProxyActors(context, noop, "a:B", noop, noop, noop, noop, noop, noop)
    actor: Any = SimpleNamespace(
        name="forwarding.a", worker=WorkerId("a"), life=SimpleNamespace(state=ActorState.RUNNING)
    )
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


def test_a_process_gets_the_objects_that_have_changed_and_all_of_them_after_a_failure() -> None:
    router = Router()
    loop = Loop(Clock(100.0))
    context: Any = SimpleNamespace(loop=loop, router=router)
    noop: Any = SimpleNamespace()
    actors = ProxyActors(context, noop, "a:B", noop, noop, noop, noop, noop, noop)
    actor: Any = SimpleNamespace(
        name="forwarding.a", worker=WorkerId("a"), life=SimpleNamespace(state=ActorState.RUNNING)
    )

    def sent(**objects: bytes) -> tuple[dict[str, bytes], bool]:
        actors.configure(actor, 1, Configure(spec("a", 1), EgressSpec("all", (), ()), objects), CountdownLatch(bool))
        return router.sent[-1].objects, router.sent[-1].changes

    assert sent(x=b"1", y=b"1", z=b"1") == ({"x": b"1", "y": b"1", "z": b"1"}, False)
    assert sent(x=b"1", y=b"2", new=b"1") == ({"y": b"2", "new": b"1", "z": b""}, True)
    assert sent(x=b"2", y=b"2", new=b"1") == ({"x": b"2"}, True)
    router.asked[1][0](Failed("no"))
    assert sent(x=b"2", y=b"2", new=b"1") == ({"x": b"2", "y": b"2", "new": b"1"}, False)
    loop.close()


class Zygote:
    """Makes no processes; `boots` are those that were requested, in order."""

    def __init__(self) -> None:
        self.boots: list[Boot] = []

    def spawn(self, _entry: str, boot: Boot, _sockets: Any, _observer: Any) -> Any:
        self.boots.append(boot)
        return SimpleNamespace(instance=boot.instance, pid=None, deadline=0.0)


class SomeAsleep:
    """The proxies that sleep, each until it is started, and those that are watched."""

    def __init__(self, *proxy_ids: str) -> None:
        self.by_id: dict[str, Any] = {each: SimpleNamespace(restarts=0) for each in proxy_ids}
        self.watched: set[str] = set()
        self.release, self.listen = self.watched.discard, self.watched.add

    def __contains__(self, proxy_id: str) -> bool:
        return proxy_id in self.by_id

    def end(self, proxy_id: str) -> None:
        self.by_id.pop(proxy_id, None)


def with_asleep(folder: Path, zygote: Zygote, listeners: Any, *proxy_ids: str) -> ProxyActors:
    """The actors of proxies, of which these sleep, or `a` alone; each has two workers."""
    router: Any = SimpleNamespace(**dict.fromkeys(("expect", "clear_current_instance"), lambda _name: None))
    router.set_current_instance = lambda _name, _instance: None
    spawner: Any = zygote
    numbers = iter(range(1, 9))
    context = SupervisionContext(
        Loop(Clock(100.0)),
        router,
        spawner,
        lambda name, settings, params: Boot(name, next(numbers), "", "", settings, params),
        LiveStateFiles(folder),
    )
    context.settings.put({"logging": {}, "proxy": {}, "server": {"tls": {}}})
    observer: Any = SimpleNamespace(label=lambda name, _index=None: name)
    config: Any = SimpleNamespace(drain_timeout=1.0, upgrade_drain=1.0)
    sleepers: Any = SomeAsleep(*(proxy_ids or ("a",)))
    configure = Configure(spec("a", 1, workers=2, sleep_after=60), EgressSpec("all", (), ()))
    older: Any = SimpleNamespace()
    actors = ProxyActors(
        context, observer, "a:B", config, listeners, older, sleepers, lambda _id: configure, lambda _id: None
    )
    observer.actor_down, observer.actor_up = lambda _actor: None, actors.serves
    observer.actor_ready = lambda _actor, _instance: None
    return actors


def test_the_first_worker_of_a_proxy_that_wakes_counts_that_also_at_its_second_try(tmp_path: Path) -> None:
    zygote = Zygote()
    listeners = SimpleNamespace(get=lambda _proxy_id: [], kept=lambda _proxy_id: (LOCAL, Ports.of(1)))
    actors = with_asleep(tmp_path, zygote, listeners)

    def start(index: int) -> Any:
        actors.execute([Start(WorkerId("a", index))], CountdownLatch(lambda: None))
        return actors.by_id["a"][index]

    first = start(0)
    first.process_ended(first._current.process, "was not made: no memory")
    start(1)
    first = start(0)
    first.hello(first.instance, 4711)
    first.process_ended(first._current.process, "was killed by SIGKILL")
    start(0)
    assert [bool(boot.params.get("asleep")) for boot in zygote.boots] == [True, False, True, False]
    actors._context.loop.close()


def test_one_that_sleeps_and_is_moved_to_an_address_that_cannot_be_bound_listens_nowhere(tmp_path: Path) -> None:
    before, taken = free_port(), free_port()
    listeners = ListenerRegistry(lambda: 0.0)
    listeners.keep("a", LOCAL, Ports.of(before))
    actors = with_asleep(tmp_path, Zygote(), listeners)
    sleepers: Any = actors._sleepers
    with socket.create_server((LOCAL, taken)):
        actors.execute([Bind("a", (LOCAL, Ports.of(taken))), Watch("a")], CountdownLatch(lambda: None))
    assert (listeners.kept("a"), "a" in sleepers) == (None, False)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOCAL, before), 60)
    assert actors.by_id["a"][0].life.state is ActorState.FAILED
    actors._context.loop.close()


def test_those_that_sleep_and_change_places_sleep_on(tmp_path: Path) -> None:
    places = {"a": free_port(), "b": free_port(), "c": free_port()}
    moved = dict(zip("abc", (places["b"], places["c"], places["a"]), strict=True))
    listeners, zygote = ListenerRegistry(lambda: 0.0), Zygote()
    for name, port in places.items():
        listeners.keep(name, LOCAL, Ports.of(port))
    actors = with_asleep(tmp_path, zygote, listeners, *places)
    sleepers: Any = actors._sleepers
    steps = [step for name, port in moved.items() for step in (Bind(name, (LOCAL, Ports.of(port))), Watch(name))]
    actors.execute(steps, CountdownLatch(lambda: None))
    assert {name: listeners.kept(name) for name in places} == {name: (LOCAL, Ports.of(moved[name])) for name in places}
    assert (sleepers.by_id.keys(), sleepers.watched) == (places.keys(), places.keys())
    assert (actors.by_id, zygote.boots) == ({}, [])
    actors._context.loop.close()
    listeners.close()
