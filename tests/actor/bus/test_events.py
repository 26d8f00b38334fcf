"""The events plane: subscribers receive them, others cost nothing, and a stuck reader blocks no other."""

from __future__ import annotations

import time
from typing import Any

import zmq

from actors.bus.events import Forwarder, Publisher, Subscription, event_topic, new_event
from actors.bus.loop import new_socket
from tests.kit.bus import Bench


def plane(bench: Bench) -> Forwarder:
    forwarder: Forwarder = bench.keep(
        Forwarder(bench.loop, bench.context, bench.run_dir.events_in, bench.run_dir.events_out)
    )
    return forwarder


def listen(bench: Bench, *prefixes: str) -> list[tuple[str, Any]]:
    received: list[tuple[str, Any]] = []
    bench.keep(
        Subscription(
            bench.loop,
            bench.context,
            bench.run_dir.events_out,
            prefixes,
            lambda topic, message: received.append((topic, message)),
        )
    )
    return received


def test_a_listener_receives_the_topics_it_asked_for_and_no_others(bench: Bench) -> None:
    plane(bench)
    received = listen(bench, "events.proxy.")
    publisher: Publisher = bench.keep(Publisher(bench.context, bench.run_dir.events_in))
    wanted, unwanted = new_event("proxy.down", {"proxy_id": "x"}), new_event("user.created", {})

    def said() -> bool:
        for event in (unwanted, wanted):
            publisher.publish(event_topic(event), event)
        return bool(received)

    bench.until(said, "the event arrives")
    assert {topic for topic, _message in received} == {"events.proxy.down"}
    assert received[0] == ("events.proxy.down", wanted)


def test_the_supervisors_own_events_reach_listeners(bench: Bench) -> None:
    forwarder, received = plane(bench), listen(bench, "events.")
    event = new_event("proxy.up", {})
    bench.until(lambda: forwarder.publish(event_topic(event), event) or received, "the event arrives")
    assert received[0] == (event_topic(event), event)


def test_a_stuck_reader_loses_events_and_neither_blocks_the_publisher_nor_the_other_readers(bench: Bench) -> None:
    plane(bench)
    stuck = bench.keep(new_socket(bench.context, zmq.SUB, high_water=1))
    stuck.setsockopt(zmq.SUBSCRIBE, b"")
    stuck.connect(bench.run_dir.events_out)
    received = listen(bench, "events.")
    publisher: Publisher = bench.keep(Publisher(bench.context, bench.run_dir.events_in))
    event = new_event("proxy.up", {"padding": "x" * 1_000})
    bench.until(lambda: publisher.publish(event_topic(event), event) or received, "the plane works")
    received.clear()

    slowest, published = 0.0, 0
    for _ in range(150):  # in all more than fit into the queues, of 10,000 each
        for _ in range(100):
            began = time.monotonic()
            publisher.publish(event_topic(event), event)
            slowest = max(slowest, time.monotonic() - began)
            published += 1
        bench.loop.turn(0.01)
    bench.until(lambda: len(received) > published // 2, "the other reader receives them")
    assert slowest < 60.0
    received = 0
    while stuck.poll(200):
        stuck.recv_multipart()
        received += 1
    assert received < published


def test_publishing_to_no_one_does_not_block(bench: Bench) -> None:
    publisher: Publisher = bench.keep(Publisher(bench.context, bench.run_dir.events_in))
    event = new_event("proxy.up", {})
    for _ in range(20_000):
        publisher.publish(event_topic(event), event)


def test_garbage_on_the_plane_is_passed_over(bench: Bench) -> None:
    plane(bench)
    received = listen(bench, "")
    rude = bench.keep(new_socket(bench.context, zmq.PUB))
    rude.connect(bench.run_dir.events_in)
    publisher: Publisher = bench.keep(Publisher(bench.context, bench.run_dir.events_in))
    event = new_event("proxy.up", {})

    def said() -> bool:
        for frames in ([b"alone"], [b"events.x", b"\xc1"], [b"\xff", b"a", b"b"]):
            rude.send_multipart(frames)
        publisher.publish(event_topic(event), event)
        return len(received) > 3

    bench.until(said, "events arrive")
    assert {message for _topic, message in [(t, m.id) for t, m in received]} == {event.id}


def test_events_that_no_one_received_can_be_asked_for_again(bench: Bench) -> None:
    run = bench.run_dir
    forwarder = bench.keep(Forwarder(bench.loop, bench.context, run.events_in, run.events_out))
    publisher = bench.keep(Publisher(bench.context, run.events_in))
    received: list[str] = []
    leaver = Subscription(
        bench.loop, bench.context, run.events_out, ("events.",), lambda topic, _message: received.append(topic)
    )

    def said(kind: str) -> bool:
        event = new_event(kind, {})
        publisher.publish(event_topic(event), event)
        bench.loop.turn(0.02)
        return any(each.type == kind for each in forwarder.recall(0.0))

    bench.until(lambda: said("proxy.up") and received, "both know each other")
    leaver.close()
    for _ in range(5):
        bench.loop.turn(0.02)
    bench.until(lambda: said("proxy.down"), "it is remembered")
    newest = forwarder.recall(0.0)[-1]
    assert forwarder.recall(newest.timestamp) == (newest,)
    assert forwarder.recall(newest.timestamp + 1) == ()
