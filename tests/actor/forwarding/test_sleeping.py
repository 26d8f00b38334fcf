"""A process of a proxy that goes to sleep, and the next one, under a stand-in for the supervisor."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from actors.bus.codec import pack
from actors.bus.messages.common import Done, Failed, Hello, forwarding_name
from actors.bus.messages.forwarding import Configure, Idle, Resume, Sleep
from actors.bus.messages.specs import LimitsSpec
from actors.process import Boot
from tests.actor.forwarding.http_client import connect, get, read_response
from tests.kit.forked_actor import fork_actor
from tests.kit.forwarding_rig import PROXY_ID, Rig, until
from tests.kit.scripted_origins import Origin, notes_heads
from tests.kit.settings import boot_settings

TRIES = 100
A_MINUTE = LimitsSpec(requests_per_minute=3)


class Sleepy(Rig):
    """`at_idle` is called in the thread of the stand-in with each report that there are no clients.

    It doesn't reply to the hello of the second process, which so has the configuration of its start alone.
    """

    def __init__(self, **changes: Any) -> None:
        self.idle = threading.Event()
        self.at_idle: Callable[[], None] = self.idle.set
        super().__init__(**changes)

    def _received(self, sender: str, message: Any, response: Callable[[Any], None]) -> None:
        if isinstance(message, Idle):
            self.at_idle()
        elif isinstance(message, Hello) and message.instance == 2:
            self._router.set_current_instance(forwarding_name(PROXY_ID), 2)
            self._helloed.set()
        else:
            super()._received(sender, message, response)

    def wake(self, **more: Any) -> None:
        """End the process, and make another one on its socket, with `more` parameters."""
        self.stop(5.0)
        self.process.wait(60)
        self.live_state.end(PROXY_ID, 1)
        number = self.live_state.begin(PROXY_ID, 2)
        params = {"asleep": True, "number": number, "configure": pack(Configure(self.spec, self.egress, {})), **more}
        boot = Boot(forwarding_name(PROXY_ID), 2, self.folder, self.folder, boot_settings(), params)
        os.close(self._lifeline)
        lifeline, self._lifeline = os.pipe()
        self._helloed.clear()
        self.process = fork_actor(boot, self.listeners, lifeline)
        os.close(lifeline)
        until(self._helloed.is_set, "the second process says hello")


@pytest.fixture
def rig() -> Iterator[Sleepy]:
    with Sleepy(sleep_after=1, limits=A_MINUTE) as rig:
        yield rig


def status(rig: Rig, origin: Origin) -> bytes:
    """The status of the reply to one request on a connection of its own."""
    with connect(rig) as client:
        client.sendall(get(origin))
        return read_response(client)[0].split()[1]


def test_the_next_process_serves_who_has_waited_and_counts_on(rig: Sleepy) -> None:
    with Origin(notes_heads([])) as origin:
        assert [status(rig, origin) for _ in range(2)] == [b"200", b"200"]
        until(rig.idle.is_set, "it has no clients")
        until(lambda: isinstance(rig.ask(Sleep()), Done), "it goes to sleep")
        with connect(rig) as waiting:
            waiting.sendall(get(origin))
            rig.wake()
            assert read_response(waiting)[0].startswith(b"HTTP/1.1 200 ")
        assert status(rig, origin) == b"429"
    assert (rig.run_dir.state / PROXY_ID).exists()
    until(lambda: len(rig.records) == 4, "each request has a record")


def test_a_client_that_comes_while_it_falls_asleep_is_served_when_it_goes_on(rig: Sleepy) -> None:
    with Origin(notes_heads([])) as origin:
        until(lambda: isinstance(rig.ask(Sleep()), Done), "it goes to sleep")
        with connect(rig) as waiting:
            waiting.sendall(get(origin))
            assert rig.ask(Sleep()) == Done()  # asleep it is
            assert rig.ask(Resume()) == Done()
            assert read_response(waiting)[0].startswith(b"HTTP/1.1 200 ")
            assert isinstance(rig.ask(Sleep()), Failed)
        assert status(rig, origin) == b"200"


def test_a_hundred_clients_that_come_as_it_goes_to_sleep_are_served(rig: Sleepy) -> None:
    """The order of the supervisor: Sleep, then a look at the socket, then Resume or the next process."""
    rig.configure(limits=LimitsSpec())
    with Origin(notes_heads([])) as origin:
        for _ in range(TRIES):
            replies: list[Any] = []
            rig.do(lambda into=replies: rig._router.ask(forwarding_name(PROXY_ID), Sleep(), into.append))  # type: ignore[misc]
            with connect(rig) as client:
                client.sendall(get(origin))
                if isinstance(until(lambda into=replies: into, "a reply")[0], Done):
                    rig.ask(Resume())
                assert read_response(client)[0].startswith(b"HTTP/1.1 200 ")
    until(lambda: len(rig.records) == TRIES, "each has a record")
