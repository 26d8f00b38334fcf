"""The public socket: what subscribers hear, and what none of them can do to others."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest
import zmq

from actors.bus.events import new_event
from actors.bus.loop import Loop
from actors.metrics import public
from actors.metrics.public import PublicSocket, event_payload

DEADLINE = 10.0


class Stage:
    """A public socket with its loop, turned by the test, and subscribers."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.context: zmq.Context[Any] = zmq.Context()
        self.public = PublicSocket(self.loop, self.context, "tcp://127.0.0.1:0")
        self.subscribers: list[zmq.Socket[bytes]] = []

    def subscriber(self, *topics: str) -> zmq.Socket[bytes]:
        made: zmq.Socket[bytes] = self.context.socket(zmq.SUB)
        made.linger = 0
        for topic in topics:
            made.subscribe(topic)
        made.connect(self.public.endpoint)
        self.subscribers.append(made)
        return made

    def until(self, condition: Callable[[], Any], before_each: Callable[[], Any] = lambda: None) -> Any:
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            before_each()
            self.loop.turn(0.01)
            if found := condition():
                return found
        raise AssertionError("it did not happen in time")

    def close(self) -> None:
        self.public.close()
        for each in self.subscribers:
            each.close()
        self.context.term()
        self.loop.close()


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


def received(subscriber: zmq.Socket[bytes]) -> tuple[str, dict[str, Any]] | None:
    try:
        topic, payload = subscriber.recv_multipart(zmq.NOBLOCK)
    except zmq.Again:
        return None
    return topic.decode(), msgpack.unpackb(payload)


def test_a_subscriber_hears_what_it_asked_for_as_topic_and_map(stage: Stage) -> None:
    subscriber = stage.subscriber("metrics.system")

    def say() -> None:
        stage.public.say("metrics.proxy.prx_0123456789abcdef", {"v": 1, "n": 1})
        stage.public.say("metrics.system", {"v": 1, "n": 2})

    assert stage.until(lambda: received(subscriber), say) == ("metrics.system", {"v": 1, "n": 2})
    assert stage.public.hears_system()
    assert stage.public.heard_of(("prx_0123456789abcdef",)) == []


def test_one_proxy_all_proxies_and_everything_can_be_asked_for(stage: Stage) -> None:
    stage.subscriber("metrics.proxy.prx_0123456789abcdef")
    stage.until(
        lambda: stage.public.heard_of(("prx_0123456789abcdef", "prx_0000000000000002")) == ["prx_0123456789abcdef"]
    )
    assert not stage.public.hears_system()
    stage.subscriber("")
    stage.until(
        lambda: (
            stage.public.heard_of(("prx_0123456789abcdef", "prx_0000000000000002"))
            == ["prx_0123456789abcdef", "prx_0000000000000002"]
        )
    )
    assert stage.public.hears_system()


def test_events_are_heard_by_their_name(stage: Stage) -> None:
    subscriber = stage.subscriber("events.proxy.")
    event = new_event("proxy.down", {"proxy_id": "prx_0123456789abcdef"})

    def say() -> None:
        stage.public.say("events.settings.updated", {})
        stage.public.say(f"events.{event.type}", event_payload(event))

    topic, payload = stage.until(lambda: received(subscriber), say)
    assert topic == "events.proxy.down"
    assert payload == {"v": 1, "id": event.id, "type": "proxy.down", "timestamp": event.timestamp, "data": event.data}


def test_one_that_comes_and_goes_takes_nothing_from_another(stage: Stage) -> None:
    stays, goes = stage.subscriber("metrics.system"), stage.subscriber("metrics.system")
    for each in (stays, goes):
        stage.until(lambda each=each: received(each), lambda: stage.public.say("metrics.system", {"v": 1}))  # type: ignore[misc]
    goes.unsubscribe("metrics.system")
    goes.close()
    for number in range(20):
        stage.until(
            lambda number=number: (received(stays) or ("", {}))[1].get("n") == number,  # type: ignore[misc]
            lambda number=number: stage.public.say("metrics.system", {"n": number}),  # type: ignore[misc]
        )


def test_a_subscriber_that_never_reads_holds_up_nobody(stage: Stage) -> None:
    quick, stuck = stage.subscriber("metrics.system"), stage.subscriber("metrics.system")
    stuck.rcvhwm = 1
    stage.until(lambda: received(quick), lambda: stage.public.say("metrics.system", {"v": 1}))
    filler = os.urandom(10_000)
    for _ in range(3_000):
        stage.public.say("metrics.system", {"filler": filler})
        received(quick)
    while received(quick):
        pass
    assert stage.until(
        lambda: (received(quick) or ("", {}))[1].get("last"), lambda: stage.public.say("metrics.system", {"last": True})
    )


def test_a_flood_of_subscriptions_is_ended_and_others_come_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(public, "TOPICS_MAX", 100)
    honest = stage.subscriber("metrics.system")
    stage.until(stage.public.hears_system)
    hostile = stage.subscriber("metrics.system")
    for number in range(150):
        hostile.subscribe(f"metrics.proxy.{number}")
    stage.until(lambda: "subscriptions" in caplog.text)
    hostile.close()
    while received(honest):
        pass
    assert stage.until(lambda: received(honest), lambda: stage.public.say("metrics.system", {"v": 1}))
    assert len(stage.public._named) <= 101


def test_garbage_on_the_port_harms_nobody(stage: Stage) -> None:
    host, _, port = stage.public.endpoint.removeprefix("tcp://").rpartition(":")
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 5_000, os.urandom(5_000), b""):
        with socket.create_connection((host, int(port)), timeout=5) as raw:
            raw.sendall(garbage)
    honest = stage.subscriber("metrics.system")
    assert stage.until(lambda: received(honest), lambda: stage.public.say("metrics.system", {"v": 1}))


def test_a_taken_port_is_said_and_nothing_else_stops(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    second = PublicSocket(stage.loop, stage.context, stage.public.endpoint)
    assert second.endpoint == ""
    second.say("metrics.system", {})
    stage.loop.turn(0.0)
    assert "metrics.publish" in caplog.text
    assert stage.public.endpoint in caplog.text
    second.close()


def test_without_an_address_nothing_is_bound(stage: Stage) -> None:
    silent = PublicSocket(stage.loop, stage.context, "")
    silent.say("metrics.system", {})
    assert silent.endpoint == ""
    silent.close()
