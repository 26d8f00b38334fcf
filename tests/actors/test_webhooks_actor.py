"""The webhook sender's actor and a disk that takes nothing: what it hears meanwhile is made up for, or counted."""

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
from actors.bus.messages.events import QueryWebhookSender, WebhookSenderState
from actors.bus.messages.webhooks import ReplayedEvents, ReplayEvents
from actors.process import Boot
from actors.webhooks import actor as module
from actors.webhooks import missed_events
from actors.webhooks.actor import WebhooksActor
from actors.webhooks.missed_events import MissedEvents
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
        take = self.actor._outbox.take

        def take_if_there_is_room(event: Any) -> Any:
            if self.full:
                raise sqlite3.OperationalError("database or disk is full")
            return take(event)

        monkeypatch.setattr(self.actor._outbox, "take", take_if_there_is_room)
        self.until(lambda: self.here, "it says hello")
        # A subscription takes effect some time after it is made.
        self.until(self._hears, "it hears of events")
        self.until(lambda: self.actor._taken == self.happened, "it has heard of all")

    def _hears(self) -> bool:
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
        answers: list[Any] = []
        self.router.ask("webhooks", QueryWebhookSender(), answers.append, 10.0)
        self.until(lambda: answers, "the sender answers")
        state = answers[0]
        assert isinstance(state, WebhookSenderState)
        return state

    def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + 20
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
    monkeypatch.setattr(missed_events, "REMEMBERED", REMEMBERED)
    monkeypatch.setattr(module, "DISK_PAUSE", 0.05)
    made = Office(bench, monkeypatch)
    yield made
    made.close()


def heard_on_a_full_disk(office: Office, count: int) -> int:
    """So many events are heard and not stored; how many were taken before."""
    office.full = True
    before = office.actor._taken
    office.happen(count)
    kept = min(count, REMEMBERED)
    office.until(lambda: len(office.actor._owed.asked_for()) == kept, "all were heard")
    return before


def test_what_the_supervisor_still_remembers_is_made_up_for_and_nothing_is_counted_as_lost(office: Office) -> None:
    before = heard_on_a_full_disk(office, REMEMBERED)
    office.full = False
    office.until(lambda: office.actor._taken >= before + REMEMBERED, "all are stored")
    assert office.state().lost == 0


def test_what_nobody_remembers_any_more_is_counted_and_said_once_and_still_known_after_a_restart(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    heard_on_a_full_disk(office, REMEMBERED + 7)
    assert office.state().lost >= 7
    office.full = False
    office.until(lambda: "lost 7 events" in caplog.text, "it is logged")
    lost = office.state().lost
    assert lost == 7
    assert caplog.text.count("lost 7 events") == caplog.text.count("lost ") == 1
    assert office.actor._outbox.lost() == 7


def test_what_was_stored_before_the_disk_was_full_is_not_counted_when_it_is_heard_again(office: Office) -> None:
    office.full = True
    office.actor._since = 0.0
    office.actor._recall()
    office.until(lambda: office.actor._recalling, "it is heard again, and not taken")
    assert office.actor._owed.asked_for() == frozenset()
    office.happen(REMEMBERED)
    office.until(lambda: len(office.actor._owed.asked_for()) == REMEMBERED, "the others are heard")
    office.full = False
    office.until(lambda: office.actor._taken == office.happened, "all are stored")
    assert office.state().lost == 0


def test_an_event_that_is_heard_after_the_question_is_not_lost_because_the_answer_lacks_it() -> None:
    heard = MissedEvents()
    heard.add("before")
    asked = heard.asked_for()
    heard.add("after")
    heard.settle(asked)
    assert (heard.lost, heard.asked_for()) == (1, {"after"})
    heard.stored("after")
    heard.settle(heard.asked_for())
    assert heard.lost == 1
