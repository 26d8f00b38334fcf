"""The mailbox: a receiver that isn't there is reported at once, replies reach the process that asked, nothing hangs."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import zmq

from actors.bus import mailbox
from actors.bus.codec import Envelope, EnvelopeRole, encode
from actors.bus.events import Forwarder
from actors.bus.loop import new_socket
from actors.bus.mailbox import Mailbox, MailboxRouter, Reply, address_of, refuse
from actors.bus.messages.common import SUPERVISOR, Done, Failed, Hello, Stop, Unreachable
from actors.bus.messages.events import QueryWebhookSender, WebhookSenderState
from actors.bus.messages.supervision import ApplyProxies
from config.files.paths import IPC_PATH_MAX, PathError, open_run_dir
from tests.kit.bus import Bench
from tests.kit.folders import ROOT


class Star:
    """The exchange, and actors that keep what they receive."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.received: dict[str, list[tuple[str, Any, Reply]]] = {SUPERVISOR: []}
        self.router: MailboxRouter = bench.keep(
            MailboxRouter(bench.loop, bench.context, bench.run_dir.mailbox, self._keeper(SUPERVISOR))
        )

    def join(self, name: str, instance: int = 1, receiver: Any = None) -> Mailbox:
        own = address_of(name, instance)
        self.received[own] = []
        mailbox = Mailbox(
            self.bench.loop, self.bench.context, self.bench.run_dir.mailbox, own, receiver or self._keeper(own)
        )
        self.bench.keep(mailbox)
        mailbox.tell(SUPERVISOR, Hello(instance, 1))
        self.bench.until(lambda: (name, Hello(instance, 1)) in self.messages_to(SUPERVISOR), f"{own} is on the bus")
        return mailbox

    def messages_to(self, own: str) -> list[tuple[str, Any]]:
        return [(sender, message) for sender, message, _answer in self.received[own]]

    def _keeper(self, own: str) -> Callable[[str, Any, Reply], None]:
        return lambda sender, message, reply: self.received[own].append((sender, message, reply))


@pytest.fixture
def star(bench: Bench) -> Star:
    return Star(bench)


def test_a_router_without_mandatory_loses_silently_and_ours_says_unreachable_at_once(star: Star, bench: Bench) -> None:
    plain = bench.keep(new_socket(bench.context, zmq.ROUTER))
    plain.bind(f"ipc://{bench.run_dir.path}/plain")
    plain.send_multipart([b"absent", b"lost"], zmq.NOBLOCK)  # no error: this is the pitfall

    replies: list[Any] = []
    star.join("api").ask("absent", QueryWebhookSender(), replies.append, timeout=60)
    bench.until(lambda: replies, "the reply")
    assert replies == [Unreachable("absent", "it is not on the bus")]


def test_a_receiver_whose_queue_is_full_is_unreachable_and_nothing_blocks(star: Star, bench: Bench) -> None:
    deaf = bench.keep(new_socket(bench.context, zmq.DEALER, high_water=1))
    deaf.setsockopt(zmq.ROUTING_ID, b"deaf")
    deaf.connect(bench.run_dir.mailbox)
    deaf.send(bytes((len(SUPERVISOR),)) + SUPERVISOR.encode())
    bench.until(lambda: star.router.tell("deaf", Hello(1, 1)), "the deaf one is on the bus")
    sent = 0
    while star.router.tell("deaf", Hello(sent, 1)):
        sent += 1
        assert sent < 1_000_000, "the queue never fills"
    replies: list[Any] = []
    star.router.ask("deaf", QueryWebhookSender(), replies.append, timeout=60)
    bench.until(lambda: replies, "the reply")
    assert replies == [Unreachable("deaf", "its queue is full")]


def test_an_asker_receives_unreachable_once_when_no_answer_comes_in_time(star: Star, bench: Bench) -> None:
    star.join("logs")
    star.router.set_current_instance("logs", 1)
    replies: list[Any] = []
    star.join("api").ask("logs", QueryWebhookSender(), replies.append, timeout=0.1)
    bench.until(lambda: replies, "the deadline")
    assert replies == [Unreachable("logs", "no reply in time")]
    (_sender, _question, reply) = star.received["logs/1"][0]
    reply(WebhookSenderState(1, 1))
    star.join("metrics")  # a full turn of everything: the late reply has arrived by then
    assert len(replies) == 1


def test_a_question_is_answered_through_the_star(star: Star, bench: Bench) -> None:
    star.join("webhooks", receiver=lambda _sender, _message, reply: reply(WebhookSenderState(3, 2)))
    star.router.set_current_instance("webhooks", 1)
    replies: list[Any] = []
    star.join("api").ask("webhooks", QueryWebhookSender(), replies.append)
    bench.until(lambda: replies, "the reply")
    assert replies == [WebhookSenderState(3, 2)]


def test_what_is_not_understood_is_answered_by_failed(star: Star, bench: Bench) -> None:
    star.join("webhooks", receiver=refuse)
    star.router.set_current_instance("webhooks", 1)
    replies: list[Any] = []
    star.router.ask("webhooks", Done(), replies.append)
    bench.until(lambda: replies, "the reply")
    assert replies == [Failed("Done is not understood here")]


def test_requests_to_an_actor_that_starts_wait_until_it_is_ready(star: Star, bench: Bench) -> None:
    replies: list[Any] = []
    star.router.expect("logs")
    star.join("api").ask("logs", QueryWebhookSender(), replies.append)
    bench.until(lambda: star.router._starting._expected[b"logs"], "the request is held")
    star.join("logs", 7, lambda _sender, _message, reply: reply(WebhookSenderState(5, 0)))
    star.router.set_current_instance("logs", 7)
    bench.until(lambda: replies, "the reply has come")
    assert replies == [WebhookSenderState(5, 0)]


@pytest.mark.parametrize("ending", ["it does not come", "it died", "too many ask"])
def test_a_request_that_does_not_wait_any_more_is_unreachable(
    star: Star, bench: Bench, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setattr(mailbox, "WAITING_MAX", 1)
    monkeypatch.setattr(mailbox, "WAIT_MAX", 0.2 if ending == "it does not come" else 60.0)
    replies: list[Any] = []
    api = star.join("api")
    star.router.expect("logs")
    api.ask("logs", QueryWebhookSender(), replies.append)
    bench.until(lambda: star.router._starting._expected[b"logs"] or replies, "the request is held")
    if ending == "it died":
        star.router.clear_current_instance("logs")
    elif ending == "too many ask":
        api.ask("logs", QueryWebhookSender(), replies.append)
    bench.until(lambda: replies, "the reply has come")
    reason = "it is not on the bus" if ending == "too many ask" else "it is starting"
    assert replies == [Unreachable("logs", reason)]


def test_what_an_actor_may_not_send_is_refused_and_logged_once(
    star: Star, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    replies: list[Any] = []
    one = star.join("forwarding.one")
    star.join("forwarding.two")
    star.router.set_current_instance("forwarding.two", 1)
    for to, message in ((SUPERVISOR, ApplyProxies((), ("two",))), ("forwarding.two", Stop(0.0))):
        one.ask(to, message, replies.append)
        one.tell(to, message)
    one.ask(SUPERVISOR, ApplyProxies((), ("two",)), replies.append)
    one.tell(SUPERVISOR, Hello(7, 7))
    bench.until(lambda: len(replies) == 3, "the replies have come")
    bench.until(lambda: ("forwarding.one", Hello(7, 7)) in star.messages_to(SUPERVISOR), "what may be sent arrives")
    assert {reply.error for reply in replies} == {
        "forwarding.one/1 may not send ApplyProxies",
        "forwarding.one/1 may not send Stop",
    }
    assert [type(message) for _, message in star.messages_to(SUPERVISOR)] == [Hello] * 3
    assert star.messages_to("forwarding.two/1") == []
    assert caplog.text.count("a message was refused") == 1


def test_a_reply_is_taken_from_the_actor_that_was_asked_alone(star: Star, bench: Bench) -> None:
    replies: list[Any] = []
    api = star.join("api")
    star.join("logs")
    star.router.set_current_instance("logs", 1)
    api.ask("logs", QueryWebhookSender(), replies.append)
    bench.until(lambda: star.messages_to("logs/1"), "the request has come")
    forger = star.join("forwarding.one")
    forger.transmit("api/1", encode(Envelope(WebhookSenderState(9, 9), 1, EnvelopeRole.REPLY)))
    forger.tell(SUPERVISOR, Hello(2, 2))
    bench.until(
        lambda: ("forwarding.one", Hello(2, 2)) in star.messages_to(SUPERVISOR), "the forged reply was passed on"
    )
    star.received["logs/1"][0][2](WebhookSenderState(1, 1))
    bench.until(lambda: replies, "the reply has come")
    assert replies == [WebhookSenderState(1, 1)]


def test_a_name_leads_to_the_current_process_while_an_older_one_lives(star: Star, bench: Bench) -> None:
    for instance in (1, 2):
        star.join("forwarding.x", instance)
    for instance in (1, 2):
        star.router.set_current_instance("forwarding.x", instance)
        star.router.tell("forwarding.x", Done())
        bench.until(
            lambda own=f"forwarding.x/{instance}": (SUPERVISOR, Done()) in star.messages_to(own),  # type: ignore[misc]
            f"process {instance} receives it",
        )
    star.router.tell("forwarding.x/1", Failed("still here?"))
    bench.until(lambda: len(star.messages_to("forwarding.x/1")) == 2, "the older one is still reached by its address")
    assert star.messages_to("forwarding.x/2") == [(SUPERVISOR, Done())]


def test_an_answer_for_a_dead_asker_does_not_reach_its_successor(star: Star, bench: Bench) -> None:
    star.join("logs")
    star.router.set_current_instance("logs", 1)
    replies: list[Any] = []
    star.join("api", 1).ask("logs", QueryWebhookSender(), replies.append)
    star.join("api", 2).ask("logs", QueryWebhookSender(), replies.append)  # both are question 1 of their process
    star.router.set_current_instance("api", 2)
    bench.until(lambda: len(star.received["logs/1"]) == 2, "both questions")
    star.received["logs/1"][1][2](WebhookSenderState(2, 2))
    bench.until(lambda: replies, "the second's reply")
    assert replies == [WebhookSenderState(2, 2)]
    star.received["logs/1"][0][2](WebhookSenderState(1, 1))
    bench.until(lambda: len(replies) == 2, "the first's reply")


def test_a_process_that_connects_anew_keeps_its_address(star: Star, bench: Bench) -> None:
    star.join("api", 1)
    again = star.join("api", 1)
    star.router.set_current_instance("api", 1)
    replies: list[Any] = []
    again.ask("absent", QueryWebhookSender(), replies.append)
    bench.until(lambda: replies, "the reply")
    star.router.tell("api", Done())
    bench.until(lambda: (SUPERVISOR, Done()) in star.messages_to("api/1"), "the newer connection is reached")


def test_garbage_in_the_mailbox_harms_no_one(star: Star, bench: Bench) -> None:
    rude = bench.keep(new_socket(bench.context, zmq.DEALER))
    rude.connect(bench.run_dir.mailbox)
    own = SUPERVISOR.encode()
    for frames in (
        [b""],
        [b"\x0a" + own + b"\xc1"],
        [b"\xff" + own],
        [own, b"\xc1"],
        [b"a", b"b", b"c"],
        [b"\x01\xff\x90"],
    ):
        rude.send_multipart(frames)
    star.join("api")
    assert star.messages_to(SUPERVISOR) == [("api", Hello(1, 1))]


def test_a_run_directory_whose_socket_paths_would_not_fit_is_refused(bench: Bench) -> None:
    base = bench.run_dir.path
    longest = IPC_PATH_MAX - len("/events.out") - len(f"{base}/")
    fits = open_run_dir(base / ("d" * longest))
    socket = bench.keep(new_socket(bench.context, zmq.XPUB))
    socket.bind(fits.events_out)
    with pytest.raises(PathError, match="too long"):
        open_run_dir(base / ("d" * (longest + 1)))


_UNSENT = """
import sys, zmq
from actors.bus.loop import new_socket
context = zmq.Context()
socket = new_socket(context, zmq.DEALER)
socket.connect(sys.argv[1])
socket.send(b"no process receives this")
socket.close()
context.term()
"""


def test_unsent_messages_let_the_process_exit(bench: Bench) -> None:
    """With a socket as ZeroMQ makes it, it would wait for ever."""
    nowhere = f"ipc://{bench.run_dir.path}/nowhere"
    assert subprocess.run([sys.executable, "-c", _UNSENT, nowhere], cwd=ROOT, timeout=60).returncode == 0


def test_sockets_of_the_run_directory_are_private(bench: Bench) -> None:
    bench.keep(MailboxRouter(bench.loop, bench.context, bench.run_dir.mailbox, lambda *_: None))
    bench.keep(Forwarder(bench.loop, bench.context, bench.run_dir.events_in, bench.run_dir.events_out))
    sockets = [path for path in bench.run_dir.path.iterdir() if path.is_socket()]
    assert len(sockets) == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in sockets} == {0o600}
