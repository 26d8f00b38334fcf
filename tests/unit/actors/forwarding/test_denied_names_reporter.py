"""What a forwarding actor reports of refused TLS names: at once, then once a second, and again after a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from actors.bus.loop import Loop
from actors.bus.mailbox import Mailbox
from actors.bus.messages.accounts import RefusedTunnel, ReportDeniedNames
from actors.bus.messages.common import METRICS, Done, Unreachable
from actors.bus.messages.specs import AccountSpec
from actors.forwarding.limits.limits import LimitsOfProxy
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.commands import Report
from actors.forwarding.reporting.denied_names_reporter import USERS_MAX, DeniedNamesReporter
from actors.forwarding.stats import ConnectionStats
from tests.kit.forwarding_rig import spec


class Collector:
    """The other end of the mailbox; `down` while it can't be reached."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.down = False
        self.asked: list[ReportDeniedNames] = []
        self.received: list[ReportDeniedNames] = []

    def ask(self, to: str, message: Any, on_reply: Callable[[Any], None], _timeout: float) -> None:
        self.asked.append(message)
        reply = Unreachable(to, "it is not on the bus") if self.down else Done()
        if not self.down:
            self.tell(to, message)
        self._loop.call_soon(lambda: on_reply(reply))

    def tell(self, to: str, message: Any) -> bool:
        assert to == METRICS
        self.received.append(message)
        return True


class World:
    def __init__(self) -> None:
        self.time = 100.0
        self.loop = Loop(lambda: self.time)
        self.collector = Collector(self.loop)
        limits = LimitsOfProxy(self.loop)
        limits.configure(spec(1, accounts=(AccountSpec("acc_1", "ada", ""),), auth_required=True))
        self.reporter = DeniedNamesReporter(self.loop, cast("Mailbox", self.collector), limits.accounts)
        self.stats = ConnectionStats(self.loop, lambda _row: None, "r-")
        self.stats.proxy_id = "p"
        self.stats.on_name_denied = self.reporter.note

    def refuse(self, user: str = "ada", named: str = "evil.example", reason: str = failures.TLS_NAME_DENIED) -> None:
        report = Report(b"CONNECT", "good.example:443", 200, reason, user, 0.0, 0.0, 0, 0, tls_name=named)
        report.detail = failures.tls_name_denied("mismatch", "two names", "proxy.tls_name").detail
        self.stats.exchange_ended(report, "192.0.2.1", 3128)

    def wait(self, seconds: float) -> None:
        self.loop.turn(0)
        self.loop.turn(0)
        self.time += seconds
        self.loop.turn(0)
        self.loop.turn(0)

    def counted(self) -> list[dict[str, int]]:
        return [{each.username: each.count for each in message.users} for message in self.collector.received]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.loop.close()


def test_the_first_refusal_is_reported_at_once_and_those_of_a_second_together(world: World) -> None:
    world.refuse()
    world.wait(0.0)
    assert world.counted() == [{"ada": 1}]
    (first,) = world.collector.received[0].users
    assert (first.account_id, first.tunnels) == (
        "acc_1",
        (RefusedTunnel("good.example:443", "evil.example", "mismatch"),),
    )
    for user in ("ada", "", "guest", "ada"):
        world.refuse(user)
    world.wait(0.5)
    assert world.counted() == [{"ada": 1}]
    world.wait(0.6)
    assert world.counted()[1:] == [{"ada": 2, "": 1, "guest": 1}]
    assert [each.account_id for each in world.collector.received[1].users] == ["acc_1", "", ""]
    world.wait(5.0)
    assert len(world.collector.asked) == 2
    assert world.loop._timers == [], "nothing is timed while nothing is refused"


def test_other_refusals_and_what_is_only_reported_are_no_part_of_it(world: World) -> None:
    world.refuse(reason="destination_denied")
    world.refuse(reason=f"reported:{failures.TLS_NAME_DENIED}")
    world.wait(2.0)
    assert world.collector.asked == []
    assert (world.stats.refusals, world.stats.reported) == ({"destination_denied": 1}, {"tls_name_denied": 1})


def test_what_the_collector_did_not_take_is_reported_again_with_what_came_meanwhile(world: World) -> None:
    world.collector.down = True
    world.refuse()
    world.wait(1.1)
    world.refuse()
    world.wait(1.1)
    world.collector.down = False
    world.wait(1.1)
    assert world.counted() == [{"ada": 2}]


def test_while_the_collector_is_away_users_wait_up_to_a_bound(world: World) -> None:
    world.collector.down = True
    for number in range(USERS_MAX + 10):
        world.refuse(f"user{number}")
    world.refuse("user0")
    world.collector.down = False
    world.wait(1.1)
    (taken,) = world.counted()
    assert (len(taken), taken["user0"]) == (USERS_MAX, 2)


def test_what_waits_is_sent_before_the_process_ends(world: World) -> None:
    world.refuse()
    world.wait(0.0)
    world.refuse()
    world.reporter.flush()
    assert world.counted() == [{"ada": 1}, {"ada": 1}]
