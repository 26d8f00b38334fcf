"""The webhook sender against real targets: signed, in order, retried, disabled, and no target delays another."""

from __future__ import annotations

import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from standardwebhooks.webhooks import WebhookVerificationError

from actors.bus.events import new_event
from actors.bus.loop import Loop
from actors.bus.messages.events import Delivery, Event, WebhookTried
from actors.webhooks import queues
from actors.webhooks.outbox import Outbox
from actors.webhooks.sender import Sender
from config.model.webhooks import new_secret
from config.settings.groups import WebhookSettings as Settings
from tests.kit.endless_peer import EndlessPeer
from tests.kit.upstreams import closed_port
from tests.kit.wait import wait_until
from tests.kit.webhook_targets import Target

ALLOWING = Settings(allow_private=True, timeout=10, retry_schedule=(0.05, 0.05, 0.05))


class Office:
    """A sender with its outbox and its loop."""

    def __init__(self, folder: Path, settings: Settings = ALLOWING) -> None:
        self.loop = Loop()
        self.outbox = Outbox(folder)
        self.now_is: float | None = None
        self.sender = Sender(self.loop, self.outbox, settings, lambda: None, self._clock, lambda: 0.0)

    def _clock(self) -> float:
        return time.time() if self.now_is is None else self.now_is

    def publish(self, count: int = 1, kind: str = "proxy.down") -> list[str]:
        """Events happen; their ids."""
        events = [new_event(kind, {"n": number}) for number in range(count)]
        for event in events:
            self.sender.add(event)
        return [event.id for event in events]

    def until(self, condition: Any, what: str, seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
            self.loop.turn(0.02)

    def settle(self, waiting: int = 0) -> None:
        """Turn until no more than so many deliveries wait, and no request is under way."""
        self.until(lambda: self.outbox.waiting() <= waiting and not self.sender.busy, "all is delivered")

    def log(self, webhook_id: str = "wh_1") -> list[Delivery]:
        """Its deliveries, oldest first."""
        return self.outbox.deliveries(webhook_id, "", 10_000, 0)[0][::-1]

    def close(self) -> None:
        self.sender.close()
        self.outbox.close()
        self.loop.close()


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    made = Office(tmp_path / "w")
    yield made
    made.close()


@pytest.fixture
def target() -> Iterator[Target]:
    with Target() as made:
        yield made


def responses(*statuses: int) -> Any:
    """These, then the last of them for ever."""
    return lambda number, _received: (statuses[min(number, len(statuses)) - 1], {})


# --- what is sent ---


def test_a_request_is_signed_and_contains_the_event(office: Office, target: Target) -> None:
    spec = target.spec(headers={"X-Token": "sesame"})
    office.sender.set_webhooks((spec,))
    event = Event("evt_1", "proxy.down", 1_700_000_000.5, {"name": "büro"})
    office.sender.add(event)
    office.settle()
    (received,) = target.received
    assert received.verified(spec.secrets[0]) == {
        "id": "evt_1",
        "type": "proxy.down",
        "timestamp": "2023-11-14T22:13:20.500Z",
        "data": {"name": "büro"},
    }
    assert (received.headers["content-type"], received.headers["x-token"]) == ("application/json", "sesame")
    assert received.id == "evt_1"
    with pytest.raises(WebhookVerificationError):
        received.verified(new_secret())


def test_after_a_rotation_both_secrets_verify_until_the_older_ones_time_is_over(office: Office, target: Target) -> None:
    new, old = new_secret(), new_secret()
    office.sender.set_webhooks((target.spec(secrets=(new, old), previous_until=(time.time() + 60,)),))
    office.publish()
    office.settle()
    assert target.received[0].verified(new) == target.received[0].verified(old)
    office.sender.set_webhooks((target.spec(secrets=(new, old), previous_until=(time.time() - 1,)),))
    office.publish()
    office.settle()
    target.received[1].verified(new)
    with pytest.raises(WebhookVerificationError):
        target.received[1].verified(old)


def test_only_what_is_subscribed_to_is_sent_and_nothing_from_before_the_webhook(office: Office, target: Target) -> None:
    office.sender.set_webhooks((target.spec(events=("user.*", "proxy.up"), created_at=1000.0),))
    kinds = ("proxy.down", "proxy.up", "user.created", "users", "webhook.test")
    for kind in kinds:
        office.sender.add(Event(f"evt_{kind}", kind, 2000.0, {}))
    office.sender.add(Event("evt_old", "proxy.up", 999.0, {}))
    office.settle()
    assert target.ids == ["evt_proxy.up", "evt_user.created"]


def test_after_the_clock_was_set_back_a_new_webhook_gets_what_happens_from_then_on(
    office: Office, target: Target
) -> None:
    office.sender.set_webhooks((target.spec(created_at=5_000.0),))
    office.sender.add(Event("evt_replayed", "proxy.up", 4_000.0, {}))
    office.sender.add(Event("evt_live", "proxy.up", 1_400.0, {}), live=True)
    office.settle()
    assert target.ids == ["evt_live"]


def test_events_from_before_the_configuration_is_known_wait_for_it(office: Office, target: Target) -> None:
    ids = office.publish(3)
    office.loop.turn(0.0)
    assert office.outbox.waiting() == 3
    office.sender.set_webhooks((target.spec(),))
    office.settle()
    assert target.ids == ids


def test_the_log_has_every_attempt_without_the_headers_values(office: Office, target: Target) -> None:
    target.responds = responses(503, 200)
    office.sender.set_webhooks((target.spec(headers={"X-Token": "sesame"}),))
    office.publish()
    office.settle()
    (delivery,) = office.log()
    assert (delivery.status, delivery.next_attempt_at) == ("delivered", None)
    first, second = delivery.attempts
    assert (first.number, first.status_code, first.error) == (1, 503, "the target answered 503")
    assert (second.number, second.status_code, second.error, second.response_body) == (2, 200, None, "thanks")
    assert first.url == target.url
    assert first.request_headers["webhook-id"] == delivery.event.id
    assert first.request_headers["X-Token"] == "***"


# --- what goes wrong ---


def test_a_failing_target_is_tried_again_with_the_same_id_and_what_is_behind_waits(
    office: Office, target: Target
) -> None:
    target.responds = responses(500, 503, 429, 200)
    office.sender.set_webhooks((target.spec(),))
    first, *rest = office.publish(4)
    office.settle()
    assert target.ids == [first] * 4 + rest


def test_a_delivery_that_is_rejected_does_not_delay_the_others(office: Office, target: Target) -> None:
    rejected = "evt_rejected"
    target.responds = lambda _number, received: (400 if received.id == rejected else 200, {})
    office.sender.set_webhooks((target.spec(),))
    office.sender.add(Event(rejected, "proxy.down", time.time(), {}))
    ids = office.publish(3)
    office.settle()
    assert [each for each in target.ids if each != rejected] == ids
    assert target.ids.count(rejected) == 4
    assert office.log()[0].status == "failed"
    assert office.outbox.disabled() == []


def test_a_redirect_is_not_followed_and_no_success(office: Office, target: Target) -> None:
    with Target() as elsewhere:
        target.responds = lambda _number, _received: (307, {"location": elsewhere.url})
        office.sender.set_webhooks((target.spec(),))
        office.publish()
        office.until(lambda: len(target.received) > 1, "it is tried again")
        assert elsewhere.received == []
        assert office.log()[0].attempts[0].error == "the target answered 307"


def test_retry_after_makes_a_pause_longer(office: Office, target: Target) -> None:
    target.responds = lambda _number, _received: (503, {"retry-after": "1000"})
    office.sender.set_webhooks((target.spec(),))
    office.publish()
    office.until(lambda: office.log() and office.log()[0].attempts, "the first attempt")
    (delivery,) = office.log()
    assert delivery.next_attempt_at == pytest.approx(time.time() + 1000, abs=60)
    assert len(target.received) == 1


def test_410_disables_at_once(office: Office, target: Target) -> None:
    target.responds = responses(410)
    office.sender.set_webhooks((target.spec(),))
    office.publish(3)
    office.settle(waiting=2)
    assert len(target.received) == 1
    ((webhook_id, reason, _at),) = office.outbox.disabled()
    assert webhook_id == "wh_1"
    assert "410" in reason


def test_a_target_that_was_away_for_the_whole_schedule_is_disabled(office: Office, target: Target) -> None:
    target.responds = responses(500)
    office.sender.set_webhooks((target.spec(),))
    office.publish(2)
    office.settle(waiting=1)
    assert len(target.received) == 4
    assert [each.status for each in office.log()] == ["failed", "waiting"]
    assert "used up" in office.outbox.disabled()[0][1]


def test_what_waited_is_sent_when_the_webhook_is_enabled_again(office: Office, target: Target) -> None:
    target.responds = responses(410, 200)
    office.sender.set_webhooks((target.spec(),))
    _gone, *ids = office.publish(3)
    office.settle(waiting=2)
    office.sender.set_webhooks((target.spec(enabled=False),))
    office.sender.disable_acknowledged("wh_1")
    office.publish()  # no webhook subscribes to it
    office.settle(waiting=2)
    office.sender.set_webhooks((target.spec(),))
    office.settle()
    assert target.ids[1:] == ids


def test_a_target_that_is_silent_fails_in_its_time(tmp_path: Path, target: Target) -> None:
    office = Office(tmp_path / "w", Settings(allow_private=True, timeout=0.3, retry_schedule=()))
    target.responds = target.hang
    office.sender.set_webhooks((target.spec(),))
    office.publish()
    office.settle()
    (attempt,) = office.log()[0].attempts
    assert (attempt.status_code, attempt.error) == (None, "no whole answer within 0.3 s")
    office.close()


@pytest.mark.parametrize(
    ("head", "more"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"x"),
    ],
)
def test_a_target_whose_response_has_no_end_fails_in_its_time(tmp_path: Path, head: bytes, more: bytes) -> None:
    office = Office(tmp_path / "w", Settings(allow_private=True, timeout=0.4, retry_schedule=()))
    with EndlessPeer(head, more) as peer:
        office.sender.set_webhooks((Target().spec(url=peer.url),))
        office.publish()
        office.settle()
    assert office.log()[0].attempts[0].error == "no whole answer within 0.4 s"
    office.close()


def test_a_target_that_does_not_listen_is_an_error_in_words(office: Office) -> None:
    url = f"http://127.0.0.1:{closed_port()}/"
    office.sender.set_webhooks((Target().spec(url=url),))
    office.publish()
    office.settle()
    assert office.log()[0].attempts[0].error == "Connection refused"


def test_no_webhook_reaches_a_listener_of_the_product_itself(office: Office, target: Target) -> None:
    office.sender.set_own_addresses([("0.0.0.0", target.port)])
    office.sender.set_webhooks((target.spec(url=f"http://localhost:{target.port}/"),))
    office.publish()
    office.settle()
    assert target.received == []
    assert office.log()[0].attempts[0].error == "the target is this service itself"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]"])
def test_the_guard_denies_addresses_that_are_not_public(tmp_path: Path, target: Target, host: str) -> None:
    office = Office(tmp_path / "w", Settings(retry_schedule=()))
    office.sender.set_webhooks((target.spec(url=f"http://{host}:{target.port}/"),))
    office.publish()
    office.settle()
    assert target.received == []
    error = str(office.log()[0].attempts[0].error)
    assert "is not a public address" in error
    assert "webhooks.allow_private" in error
    office.close()


# --- one and the others ---


def test_a_dead_and_a_slow_target_delay_no_other_and_all_arrive_in_order(tmp_path: Path) -> None:
    count = 60
    office = Office(tmp_path / "w", Settings(allow_private=True, timeout=300, retry_schedule=()))
    with Target() as slow, socket.create_server(("127.0.0.1", 0)) as dead:
        slow.responds = slow.hang
        healthy = [Target() for _ in range(4)]
        for each in healthy:
            each.__enter__()
        specs = [each.spec(f"wh_{number}") for number, each in enumerate(healthy)]
        gone = slow.spec("wh_dead", url=f"http://127.0.0.1:{dead.getsockname()[1]}/")
        office.sender.set_webhooks((slow.spec("wh_slow"), gone, *specs))
        ids = office.publish(count)
        office.until(lambda: all(len(each.received) == count for each in healthy), "the others have all")
        for each in healthy:
            assert each.ids == ids
            each.__exit__()
        assert len(slow.received) == 1
    office.close()


def test_more_slow_targets_than_slots_leave_half_of_them_to_those_that_are_quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "QUICK", 100.0)
    office = Office(tmp_path / "w", Settings(allow_private=True, timeout=300, max_concurrent=4))
    with Target() as slow, Target() as quick:
        slow.responds = slow.hang
        office.sender.set_webhooks((quick.spec("wh_quick"),))
        office.publish()
        office.settle()
        office.sender.set_webhooks((*(slow.spec(f"wh_slow{n}") for n in range(10)), quick.spec("wh_quick")))
        ids = office.publish(20)
        office.until(lambda: len(quick.received) == 21, "the quick one has all")
        assert quick.ids[1:] == ids
        office.until(lambda: len(slow.received) == 2, "half of the slots")
        tested: list[WebhookTried] = []
        assert office.sender.send_test("wh_quick", tested.append)
        office.until(lambda: tested, "a test doesn't wait for them")
        assert len(slow.received) == 2
    office.close()


def test_what_waits_for_a_slot_is_not_sent_to_a_webhook_that_was_deleted_meanwhile(tmp_path: Path) -> None:
    office = Office(tmp_path / "w", Settings(allow_private=True, timeout=30, max_concurrent=1))
    with Target() as slow, Target() as gone, Target() as quick:
        slow.responds = slow.hang
        others = (gone.spec("wh_gone", events=("proxy.*",)), quick.spec("wh_quick", events=("proxy.*",)))
        office.sender.set_webhooks((slow.spec("wh_slow", events=("user.*",)), *others))
        office.publish(kind="user.created")
        office.until(lambda: slow.received, "the only slot is taken")
        office.publish(kind="proxy.down")
        office.until(lambda: office.outbox.waiting() == 3, "the others wait")
        office.sender.set_webhooks((slow.spec("wh_slow", events=("user.*",)), others[1]))
        slow.release.set()
        office.settle()
        assert (len(gone.received), len(quick.received)) == (0, 1)
    office.close()


def test_waiting_targets_get_slots_in_their_order_and_a_quick_one_that_was_slow_once_must_wait_again() -> None:
    order: list[str] = []
    made = queues.SlotScheduler()
    made.slots = 2
    acquired = {name: made.acquire(name, lambda name=name: order.append(name)) for name in "abc"}
    assert (order, set(acquired.values())) == (["a"], {False})
    made.release("a", False, 0.1)
    assert order == ["a", "b"]
    assert made.acquire("a", lambda: order.append("a")), "it was quick"
    assert order == ["a", "b", "a"]
    made.release("a", True, queues.QUICK + 1)
    made.acquire("a", lambda: order.append("a again"))
    made.release("b", False, 99.0)
    assert order[3:] == ["c"]
    made.release("c", False, 99.0)
    assert order[4:] == ["a again"]


def test_when_the_target_is_back_what_waited_for_a_long_pause_goes_on_at_once(tmp_path: Path, target: Target) -> None:
    office = Office(tmp_path / "w", Settings(allow_private=True, retry_schedule=(3600,)))
    target.responds = responses(500, 200)
    office.sender.set_webhooks((target.spec(),))
    ids = office.publish(2)
    office.until(lambda: office.log() and office.log()[0].attempts, "the first attempt")
    tested: list[WebhookTried] = []
    assert office.sender.send_test("wh_1", tested.append)
    office.settle()
    assert tested[0].delivered
    assert [each for each in target.ids if each in ids] == [ids[0], *ids]
    office.close()


# --- by hand ---


def test_a_test_is_sent_once_whatever_comes_back_also_to_a_disabled_webhook(office: Office, target: Target) -> None:
    target.responds = responses(500)
    office.sender.set_webhooks((target.spec(enabled=False, events=("user.created",)),))
    tested: list[WebhookTried] = []
    assert office.sender.send_test("wh_1", tested.append)
    assert not office.sender.send_test("wh_2", tested.append)
    office.until(lambda: tested, "the result")
    assert (tested[0].delivered, tested[0].status_code, tested[0].error) == (False, 500, "the target answered 500")
    assert target.received[0].content["type"] == "webhook.test"
    assert office.log()[0].status == "failed"
    assert office.outbox.waiting() == 0


def test_a_delivery_is_sent_again_with_the_same_id_and_its_attempts_are_kept(office: Office, target: Target) -> None:
    target.responds = responses(410, 200)
    office.sender.set_webhooks((target.spec(),))
    (event_id,) = office.publish()
    office.settle()
    office.sender.set_webhooks((target.spec(enabled=False),))
    (failed,) = office.log()
    (again,) = office.sender.redeliver("wh_1", failed.id).deliveries
    assert (again.id, again.status) == (failed.id, "waiting")
    office.settle()
    assert target.ids == [event_id, event_id]
    assert [each.status_code for each in office.log()[0].attempts] == [410, 200]
    assert office.log()[0].status == "delivered"
    assert office.sender.redeliver("wh_1", "dlv_unknown").deliveries == ()
    assert office.sender.redeliver("wh_2", failed.id).deliveries == ()


def test_a_deleted_webhook_takes_its_deliveries_with_it(office: Office, target: Target) -> None:
    target.responds = responses(500)
    office.sender.set_webhooks((target.spec(),))
    office.publish(2)
    office.until(lambda: target.received, "it is tried")
    office.sender.set_webhooks(())
    office.settle()
    assert office.log() == []


# --- time and crashes ---


def test_what_was_sent_and_not_stored_is_sent_again_with_the_same_id(tmp_path: Path, target: Target) -> None:
    first = Office(tmp_path / "w")
    target.responds = lambda number, received: target.hang(number, received) if number == 1 else (200, {})
    spec = target.spec()
    first.sender.set_webhooks((spec,))
    ids = first.publish(2)
    first.until(lambda: target.received, "it is sent")
    second = Office(tmp_path / "w")  # the first was never closed, as after SIGKILL: nothing of it was stored
    second.sender.set_webhooks((spec,))
    second.settle()
    assert target.ids == [ids[0], *ids]
    assert target.received[0].body == target.received[1].body
    first.close()
    second.close()


def test_what_can_not_be_stored_on_a_full_disk_is_not_sent_again_and_again(
    office: Office, target: Target, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("actors.webhooks.sender.DISK_PAUSE", 0.02)
    add_attempt, tries = office.outbox.add_attempt, 0

    def full(*given: Any) -> None:
        nonlocal tries
        tries += 1
        if tries < 5:
            raise sqlite3.OperationalError("database or disk is full")
        add_attempt(*given)

    monkeypatch.setattr(office.outbox, "add_attempt", full)
    office.sender.set_webhooks((target.spec(),))
    ids = office.publish(2)
    office.settle()
    assert target.ids == ids
    assert caplog.text.count("database or disk is full") == 1, "it is logged once"
    assert [delivery.status for delivery in office.log()] == ["delivered", "delivered"]


def test_a_clock_that_is_set_back_makes_no_pause_longer(tmp_path: Path, target: Target) -> None:
    office = Office(tmp_path / "w", Settings(allow_private=True, retry_schedule=(0.1,)))
    target.responds = responses(500, 200)
    office.sender.set_webhooks((target.spec(),))
    office.publish()
    office.until(lambda: office.log() and office.log()[0].attempts, "the first attempt")
    office.now_is = time.time() - 3600
    again = Office(tmp_path / "w", Settings(allow_private=True, retry_schedule=(0.1,)))
    again.now_is = office.now_is
    again.sender.set_webhooks((target.spec(),))
    again.settle()
    assert len(target.received) == 2
    again.close()
    office.close()


def test_events_that_are_received_twice_are_sent_once(office: Office, target: Target) -> None:
    office.sender.set_webhooks((target.spec(),))
    event = new_event("proxy.down", {})
    assert [office.sender.add(event), office.sender.add(event)] == [True, False]
    office.settle()
    assert not office.sender.add(event)
    office.settle()
    assert target.ids == [event.id]


def test_old_deliveries_are_deleted(office: Office, target: Target) -> None:
    office.sender.set_webhooks((target.spec(),))
    office.publish(3)
    office.settle()
    office.outbox.prune(time.time() + 1)
    assert office.log() == []
    assert office.outbox.newest_event() == 0.0


def test_a_hundred_changes_of_the_settings_leave_no_thread_and_no_descriptor_behind(
    office: Office, target: Target
) -> None:
    office.sender.set_webhooks((target.spec(),))
    process = psutil.Process()
    others, before = threading.active_count(), process.num_fds()
    for number in range(100):
        office.sender.apply_settings(Settings(allow_private=True, max_concurrent=1 + number % 8))
        office.publish()
        office.settle()
    wait_until(lambda: threading.active_count() <= others + 8 + 8, "threads above the limit end")  # both ends' own
    wait_until(lambda: process.num_fds() <= before + 16, "their connections are closed")
