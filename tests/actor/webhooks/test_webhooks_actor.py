"""The webhook sender's actor on a full disk: events that it receives meanwhile are stored later, or counted as lost."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from actors.bus import events
from actors.bus.events import Forwarder, event_topic, new_event
from actors.bus.mailbox import MailboxRouter
from actors.bus.messages.common import Hello
from actors.bus.messages.events import QueryWebhookSender, ReplayedEvents, ReplayEvents, WebhookSenderState
from actors.process import Boot
from actors.webhooks import actor as module
from actors.webhooks import outbox
from actors.webhooks.actor import WebhooksActor
from actors.webhooks.outbox import MissedEvents
from tests.kit.bus import Bench
from tests.kit.settings import boot_settings

REMEMBERED = 10


class Office:
    """The supervisor's end of the bus, and the actor beside it with a disk that may be `full`."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench, self.full, self.here, self.happened = bench, False, False, 0
        address = bench.run_dir
        self.forwarder = Forwarder(bench.loop, bench.context, address.events_in, address.events_out)
        self.router = MailboxRouter(bench.loop, bench.context, address.mailbox, self._receive)
        boot = Boot("webhooks", 1, str(address.path), str(address.path / "data"), boot_settings())
        self.actor = WebhooksActor(boot, [])
        add = self.actor._outbox.add

        def add_if_there_is_room(event: Any) -> Any:
            if self.full:
                raise sqlite3.OperationalError("database or disk is full")
            return add(event)

        monkeypatch.setattr(self.actor._outbox, "add", add_if_there_is_room)
        self.until(lambda: self.here, "it registers")
        # A subscription takes effect some time after it is made.
        self.until(self._receives_events, "it receives events")
        self.until(lambda: self.actor._taken == self.happened, "it has received all")

    def _receives_events(self) -> bool:
        self.happen(1)
        self.bench.loop.turn(0.01)
        return self.actor._taken > 0

    def _receive(self, _sender: str, message: Any, answer: Any) -> None:
        if isinstance(message, Hello):
            self.here = True
            self.router.set_current_instance("webhooks", message.instance)
        elif isinstance(message, ReplayEvents):
            answer(ReplayedEvents(self.forwarder.recall(message.since)))

    def happen(self, count: int) -> None:
        self.happened += count
        for _ in range(count):
            event = new_event("proxy.down", {})
            self.forwarder.publish(event_topic(event), event)

    def state(self) -> WebhookSenderState:
        replies: list[Any] = []
        self.router.ask("webhooks", QueryWebhookSender(), replies.append, 10.0)
        self.until(lambda: replies, "the sender replies")
        state = replies[0]
        assert isinstance(state, WebhookSenderState)
        return state

    def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, f"not in time: {what}"
            self.bench.loop.turn(0.005)
            self.actor.loop.turn(0.005)

    def close(self) -> None:
        self.actor.close()
        self.router.close()
        self.forwarder.close()


@pytest.fixture
def office(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    monkeypatch.setattr(events, "REMEMBERED", REMEMBERED)
    monkeypatch.setattr(outbox, "REMEMBERED", REMEMBERED)
    monkeypatch.setattr(module, "DISK_PAUSE", 0.05)
    made = Office(bench, monkeypatch)
    yield made
    made.close()


def receive_on_a_full_disk(office: Office, count: int) -> int:
    """So many events are received and not stored; returns how many were stored before."""
    office.full = True
    before = office.actor._taken
    office.happen(count)
    kept = min(count, REMEMBERED)
    missed = office.actor._missed
    office.until(lambda: len(missed.missing()) + missed.lost >= count, "all were received")
    assert len(missed.missing()) == kept
    return before


def test_what_the_supervisor_still_remembers_is_stored_later_and_nothing_is_counted_as_lost(office: Office) -> None:
    before = receive_on_a_full_disk(office, REMEMBERED)
    office.full = False
    office.until(lambda: office.actor._taken >= before + REMEMBERED, "all are stored")
    assert office.state().lost == 0


def test_what_is_remembered_no_more_is_counted_and_logged_once_and_still_known_after_a_restart(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    receive_on_a_full_disk(office, REMEMBERED + 7)
    assert office.state().lost >= 7
    office.full = False
    office.until(lambda: "lost 7 events" in caplog.text, "it is logged")
    lost = office.state().lost
    assert lost == 7
    assert caplog.text.count("lost 7 events") == caplog.text.count("lost ") == 1
    assert office.actor._outbox.lost() == 7


def test_what_was_stored_before_the_disk_was_full_is_not_counted_when_it_is_replayed(office: Office) -> None:
    office.full = True
    office.actor._since = 0.0
    office.actor._replay()
    office.until(lambda: office.actor._replay_scheduled, "it is replayed, and not stored")
    assert office.actor._missed.missing() == frozenset()
    office.happen(REMEMBERED)
    office.until(lambda: len(office.actor._missed.missing()) == REMEMBERED, "the others are received")
    office.full = False
    office.until(lambda: office.actor._taken == office.happened, "all are stored")
    assert office.state().lost == 0


def test_an_event_that_is_received_after_the_request_is_not_lost_because_the_replay_lacks_it() -> None:
    missed = MissedEvents()
    missed.add("before")
    requested = missed.missing()
    missed.add("after")
    missed.settle(requested)
    assert (missed.lost, missed.missing()) == (1, {"after"})
    missed.stored("after")
    missed.settle(missed.missing())
    assert missed.lost == 1
