"""What a process has counted last is acknowledged by the metrics collector before it ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from actors.bus.loop import Loop
from actors.bus.mailbox import Mailbox, Reply, address_of
from actors.bus.messages.common import METRICS, Done
from actors.bus.messages.metrics import Counters
from tests.actor.forwarding.http_client import connect, get, read_response
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, counted, responds


class Collector:
    """A stand-in for the metrics collector on the bus of a rig; it replies when the test says so."""

    def __init__(self, rig: Rig) -> None:
        self.loop = Loop()
        self.context: zmq.Context[Any] = zmq.Context()
        self.received: list[tuple[Any, Reply]] = []
        own = address_of(METRICS, 1)
        self.mailbox = Mailbox(self.loop, self.context, rig.run_dir.mailbox, own, self._receive)
        rig.do(lambda: rig._router.set_current_instance(METRICS, 1))

    def _receive(self, _sender: str, message: Any, reply: Reply) -> None:
        self.received.append((message, reply))

    def turn(self) -> None:
        self.loop.turn(0.01)

    def close(self) -> None:
        self.mailbox.close()
        self.context.term()
        self.loop.close()


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig() as made:
        yield made


def test_the_last_counters_are_acknowledged_before_the_end(rig: Rig) -> None:
    collector = Collector(rig)
    try:
        with Origin(responds(counted(b"yes"))) as origin, connect(rig) as client:
            client.sendall(get(origin))
            assert read_response(client)[1] == b"yes"
        rig.stop(5.0)

        def reported() -> bool:
            collector.turn()
            return bool(collector.received)

        until(reported, "the last counters have come")
        assert rig.process.poll() is None
        counters, reply = collector.received[0]
        assert isinstance(counters, Counters)
        assert counters.values["requests"] == 1
        reply(Done())

        def ended() -> bool:
            collector.turn()
            return rig.process.poll() is not None

        until(ended, "it has ended")
    finally:
        collector.close()


def test_without_a_collector_it_ends_at_once(rig: Rig) -> None:
    rig.stop(5.0)
    assert rig.process.wait(60) == 0
