"""The live feed: what subscribers receive, and what none of them can do to others."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq
from zmq.utils import z85

from actors.bus.events import new_event
from actors.bus.loop import Loop
from actors.metrics import live_feed
from actors.metrics.live_feed import LiveFeed, event_payload, server_keys

DEADLINE = 120.0


class Stage:
    """A live feed with its loop, turned by the test, and subscribers."""

    def __init__(self, clients: tuple[str, ...] = (), key_file: Path | None = None) -> None:
        self.loop = Loop()
        self.context: zmq.Context[Any] = zmq.Context()
        self.feed = LiveFeed(self.loop, self.context, "tcp://127.0.0.1:0", clients, key_file)
        self.subscribers: list[zmq.Socket[bytes]] = []

    def subscriber(self, *topics: str) -> zmq.Socket[bytes]:
        made: zmq.Socket[bytes] = self.context.socket(zmq.SUB)
        made.linger = 0
        for topic in topics:
            made.subscribe(topic)
        made.connect(self.feed.endpoint)
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
        self.feed.close()
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


def test_a_subscriber_receives_what_it_subscribed_to_as_topic_and_map(stage: Stage) -> None:
    subscriber = stage.subscriber("metrics.system")

    def publish() -> None:
        stage.feed.publish("metrics.proxy.prx_0123456789abcdef", {"v": 1, "n": 1})
        stage.feed.publish("metrics.system", {"v": 1, "n": 2})

    assert stage.until(lambda: received(subscriber), publish) == ("metrics.system", {"v": 1, "n": 2})
    assert stage.feed.system_wanted
    assert stage.feed.wanted_of(("prx_0123456789abcdef",)) == []


def test_one_proxy_all_proxies_and_everything_can_be_subscribed_to(stage: Stage) -> None:
    stage.subscriber("metrics.proxy.prx_0123456789abcdef")
    stage.until(
        lambda: stage.feed.wanted_of(("prx_0123456789abcdef", "prx_0000000000000002")) == ["prx_0123456789abcdef"]
    )
    assert not stage.feed.system_wanted
    stage.subscriber("")
    stage.until(
        lambda: (
            stage.feed.wanted_of(("prx_0123456789abcdef", "prx_0000000000000002"))
            == ["prx_0123456789abcdef", "prx_0000000000000002"]
        )
    )
    assert stage.feed.system_wanted


def test_events_are_subscribed_to_by_their_name(stage: Stage) -> None:
    subscriber = stage.subscriber("events.proxy.")
    event = new_event("proxy.down", {"proxy_id": "prx_0123456789abcdef"})

    def publish() -> None:
        stage.feed.publish("events.settings.updated", {})
        stage.feed.publish(f"events.{event.type}", event_payload(event))

    topic, payload = stage.until(lambda: received(subscriber), publish)
    assert topic == "events.proxy.down"
    assert payload == {"v": 1, "id": event.id, "type": "proxy.down", "timestamp": event.timestamp, "data": event.data}


def test_one_that_comes_and_goes_takes_nothing_from_another(stage: Stage) -> None:
    stays, goes = stage.subscriber("metrics.system"), stage.subscriber("metrics.system")
    for each in (stays, goes):
        stage.until(lambda each=each: received(each), lambda: stage.feed.publish("metrics.system", {"v": 1}))  # type: ignore[misc]
    goes.unsubscribe("metrics.system")
    goes.close()
    for number in range(20):
        stage.until(
            lambda number=number: (received(stays) or ("", {}))[1].get("n") == number,  # type: ignore[misc]
            lambda number=number: stage.feed.publish("metrics.system", {"n": number}),  # type: ignore[misc]
        )


def test_a_subscriber_that_never_reads_delays_no_other(stage: Stage) -> None:
    quick, stuck = stage.subscriber("metrics.system"), stage.subscriber("metrics.system")
    stuck.rcvhwm = 1
    stage.until(lambda: received(quick), lambda: stage.feed.publish("metrics.system", {"v": 1}))
    filler = os.urandom(10_000)
    for _ in range(3_000):
        stage.feed.publish("metrics.system", {"filler": filler})
        received(quick)

    def received_the_last() -> bool:
        """Whatever is still queued before it is read at once."""
        return any(message.get("last") for _topic, message in iter(lambda: received(quick) or ("", None), ("", None)))

    assert stage.until(received_the_last, lambda: stage.feed.publish("metrics.system", {"last": True}))


def test_a_flood_of_subscriptions_is_ended_and_others_come_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(live_feed, "TOPICS_MAX", 100)
    honest = stage.subscriber("metrics.system")
    stage.until(lambda: stage.feed.system_wanted)
    hostile = stage.subscriber("metrics.system")
    for number in range(150):
        hostile.subscribe(f"metrics.proxy.{number}")
    stage.until(lambda: "subscriptions" in caplog.text)
    hostile.close()
    while received(honest):
        pass
    assert stage.until(lambda: received(honest), lambda: stage.feed.publish("metrics.system", {"v": 1}))
    assert len(stage.feed._prefixes) <= 101


def test_garbage_on_the_port_harms_no_subscriber(stage: Stage) -> None:
    host, _, port = stage.feed.endpoint.removeprefix("tcp://").rpartition(":")
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 5_000, os.urandom(5_000), b""):
        with socket.create_connection((host, int(port)), timeout=60) as raw:
            raw.sendall(garbage)
    honest = stage.subscriber("metrics.system")
    assert stage.until(lambda: received(honest), lambda: stage.feed.publish("metrics.system", {"v": 1}))


def test_a_taken_port_is_logged_and_nothing_else_stops(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    second = LiveFeed(stage.loop, stage.context, stage.feed.endpoint)
    assert second.endpoint == ""
    second.publish("metrics.system", {})
    stage.loop.turn(0.0)
    assert "metrics.publish" in caplog.text
    assert stage.feed.endpoint in caplog.text
    second.close()


def test_without_an_address_nothing_is_bound(stage: Stage) -> None:
    silent = LiveFeed(stage.loop, stage.context, "")
    silent.publish("metrics.system", {})
    assert silent.endpoint == ""
    silent.close()


# --- CURVE ---


class Keys:
    """The keys of a subscriber."""

    def __init__(self) -> None:
        self.public, self.secret = (each.decode() for each in zmq.curve_keypair())


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[Stage, Keys, Path]]:
    """A stage whose feed accepts one key, with the server's key file."""
    known, file = Keys(), tmp_path / "keys" / "metrics-curve.key"
    made = Stage((known.public,), file)
    yield made, known, file
    made.close()


def with_keys(stage: Stage, keys: Keys, server: str) -> zmq.Socket[bytes]:
    made: zmq.Socket[bytes] = stage.context.socket(zmq.SUB)
    made.linger = 0
    made.curve_publickey, made.curve_secretkey = keys.public.encode(), keys.secret.encode()
    made.curve_serverkey = server.encode()
    made.subscribe("metrics.")
    made.connect(stage.feed.endpoint)
    stage.subscribers.append(made)
    return made


def publish(stage: Stage) -> None:
    stage.feed.publish("metrics.system", {"v": 1})


def test_with_curve_a_known_key_is_accepted_and_an_unknown_one_or_none_is_not(
    guarded: tuple[Stage, Keys, Path], caplog: pytest.LogCaptureFixture
) -> None:
    stage, known, file = guarded
    server = file.with_suffix(".pub").read_text().strip()
    unlisted, without = with_keys(stage, Keys(), server), stage.subscriber("metrics.")
    stage.until(lambda: "without a known key" in caplog.text)
    listed = with_keys(stage, known, server)
    for _ in range(20):
        stage.until(lambda: received(listed), lambda: publish(stage))
    assert received(unlisted) is None
    assert received(without) is None


def test_a_subscriber_that_expects_another_server_receives_nothing_from_ours(guarded: tuple[Stage, Keys, Path]) -> None:
    stage, known, file = guarded
    deceived = with_keys(stage, known, Keys().public)
    listed = with_keys(stage, known, file.with_suffix(".pub").read_text().strip())
    for _ in range(20):
        stage.until(lambda: received(listed), lambda: publish(stage))
    assert received(deceived) is None


def test_the_key_of_the_server_is_private_and_stays(guarded: tuple[Stage, Keys, Path]) -> None:
    _stage, _known, file = guarded
    assert file.stat().st_mode & 0o777 == 0o600
    assert server_keys(file).public == file.with_suffix(".pub").read_text().strip() == server_keys(file).public


def test_a_key_that_is_removed_receives_nothing_more_and_the_others_reconnect(
    guarded: tuple[Stage, Keys, Path],
) -> None:
    stage, known, file = guarded
    server, stays = file.with_suffix(".pub").read_text().strip(), Keys()
    stage.feed.set_clients((known.public, stays.public))
    gone, kept = with_keys(stage, known, server), with_keys(stage, stays, server)
    for each in (gone, kept):
        stage.until(lambda each=each: received(each), lambda: publish(stage))  # type: ignore[misc]
    stage.feed.set_clients((stays.public,))
    while received(kept):
        pass
    stage.until(lambda: received(kept), lambda: publish(stage))  # it is back, and what was under way has arrived
    while received(gone):
        pass
    for _ in range(20):
        stage.until(lambda: received(kept), lambda: publish(stage))
    assert received(gone) is None


def test_a_new_key_is_known_at_once_though_the_old_socket_may_still_accept_for_a_moment(
    guarded: tuple[Stage, Keys, Path],
) -> None:
    stage, _known, _file = guarded
    new = Keys()
    stage.feed.set_clients((new.public,))
    asks = stage.context.socket(zmq.REQ)
    stage.subscribers.append(asks)
    asks.linger = 0
    asks.connect("inproc://zeromq.zap.01")  # as ZeroMQ does for a connection at the old socket (RFC 27)
    asks.send_multipart([b"1.0", b"1", b"metrics", b"127.0.0.1", b"", b"CURVE", z85.decode(new.public)])
    status = stage.until(lambda: asks.poll(0) and asks.recv_multipart()[2])
    assert status == b"200"


def test_without_keys_nothing_is_bound_elsewhere_than_on_loopback(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = LiveFeed(stage.loop, stage.context, "tcp://0.0.0.0:0")
    assert elsewhere.endpoint == ""
    assert "metrics.curve_clients" in caplog.text
    elsewhere.close()


def test_a_key_file_that_is_none_is_logged_and_nothing_is_bound(
    stage: Stage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "metrics-curve.key"
    file.write_text("no key")
    broken = LiveFeed(stage.loop, stage.context, "tcp://127.0.0.1:0", (Keys().public,), file)
    assert broken.endpoint == ""
    assert "not a key file" in caplog.text
    broken.close()


def test_garbage_on_a_port_with_curve_harms_no_subscriber(guarded: tuple[Stage, Keys, Path]) -> None:
    stage, known, file = guarded
    listed = with_keys(stage, known, file.with_suffix(".pub").read_text().strip())
    stage.until(lambda: received(listed), lambda: publish(stage))
    host, _, port = stage.feed.endpoint.removeprefix("tcp://").rpartition(":")
    greeting = b"\xff\0\0\0\0\0\0\0\1\x7f\3\1CURVE" + bytes(15) + b"\0" + bytes(31)  # ZMTP 3.1, RFC 37
    for garbage in (
        b"GET / HTTP/1.1\r\n\r\n",
        greeting,
        greeting + os.urandom(200),
        greeting + b"\4\xc8\5HELLO" + bytes(194),
    ):
        with socket.create_connection((host, int(port)), timeout=60) as raw:
            raw.sendall(garbage)
    while received(listed):
        pass
    for _ in range(5):
        stage.until(lambda: received(listed), lambda: publish(stage))
