"""The event of refused TLS names: one for each user of a proxy in a minute, over all its processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.accounts import DENIED_TUNNELS_MAX, DeniedNames, RefusedTunnel, ReportDeniedNames
from actors.bus.messages.events import Event
from actors.metrics.denied_names import DENIED, WINDOW, DeniedNameNotices
from config.model.subscriptions import checked

EVIL = RefusedTunnel("good.example:443", "evil.example", "mismatch")
NAMELESS = RefusedTunnel("good.example:443", "", "no_name")


def denied(count: int = 1, user: str = "ada", *tunnels: RefusedTunnel, since: float = 1_700_000_000.0) -> DeniedNames:
    return DeniedNames(f"acc_{user}" if user else "", user, count, since, tunnels or (EVIL,))


class World:
    """A collector's part by a clock that the test sets, and what it has published."""

    def __init__(self, published_after: float = 0.0, windows_max: int = 1_000) -> None:
        self.time = 1000.0
        self.loop = Loop(lambda: self.time)
        self.events: list[Event] = []
        names = {"p": "office"}
        self.notices = DeniedNameNotices(
            self.loop, self.events.append, lambda each: names.get(each, ""), published_after, windows_max
        )

    def report(self, *users: DeniedNames, proxy: str = "p") -> None:
        self.notices.receive(ReportDeniedNames(proxy, users))

    def wait(self, seconds: float) -> None:
        end = self.time + seconds
        while self.time < end:
            self.time += 1.0
            self.loop.turn(0)

    def published(self) -> list[dict[str, Any]]:
        assert {each.type for each in self.events} <= {DENIED}
        found = [checked(each.type, each.data) for each in self.events]
        self.events.clear()
        return found


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.loop.close()


def counts(events: list[dict[str, Any]]) -> list[tuple[str | None, int]]:
    return [(each["username"], each["count"]) for each in events]


def test_the_first_refusal_is_an_event_at_once(world: World) -> None:
    world.report(denied(1, "ada", EVIL, NAMELESS))
    assert world.published() == [
        {
            "account_id": "acc_ada",
            "username": "ada",
            "proxy_id": "p",
            "proxy": "office",
            "count": 1,
            "since": "2023-11-14T22:13:20.000Z",
            "tunnels": [
                {"target": "good.example:443", "tls_name": "evil.example", "kind": "mismatch"},
                {"target": "good.example:443", "tls_name": None, "kind": "no_name"},
            ],
        }
    ]


def test_those_of_a_minute_are_one_event_whichever_process_reports_them(world: World) -> None:
    world.report(denied())
    for count in (1, 5, 10):  # of several workers
        world.report(denied(count))
    assert counts(world.published()) == [("ada", 1)]
    world.wait(WINDOW + 2)
    assert counts(world.published()) == [("ada", 16)]
    world.report(denied(2))
    assert world.published() == [], "an event begins the next minute"
    world.wait(WINDOW + 2)
    assert counts(world.published()) == [("ada", 2)]
    world.wait(WINDOW + 2)
    world.report(denied())
    assert counts(world.published()) == [("ada", 1)], "after a quiet minute the first is an event at once"


def test_accounts_proxies_and_clients_without_an_account_have_events_of_their_own(world: World) -> None:
    world.report(denied(), denied(3, "bob"), denied(2, ""))
    world.report(denied(4), proxy="gone")
    found = world.published()
    assert counts(found) == [("ada", 1), ("bob", 3), (None, 2), ("ada", 4)]
    assert [each["account_id"] for each in found] == ["acc_ada", "acc_bob", None, "acc_ada"]
    assert [each["proxy"] for each in found] == ["office", "office", "office", ""]


def test_different_tunnels_are_named_up_to_a_bound(world: World) -> None:
    world.report(denied())
    for number in range(2 * DENIED_TUNNELS_MAX):
        world.report(denied(1, "ada", RefusedTunnel(f"{number // 2}.example:443", "evil.example", "mismatch")))
        world.report(denied())
    world.wait(WINDOW + 2)
    event = world.published()[1]
    assert (event["count"], len(event["tunnels"])) == (4 * DENIED_TUNNELS_MAX, DENIED_TUNNELS_MAX)
    assert len({each["target"] for each in event["tunnels"]}) == DENIED_TUNNELS_MAX


def test_what_comes_before_events_can_be_published_waits() -> None:
    world = World(published_after=2.0)
    world.report(denied())
    world.report(denied(3))
    assert world.published() == []
    world.wait(3)
    assert counts(world.published()) == [("ada", 4)]
    world.loop.close()


def test_a_flood_of_users_ends_the_oldest_windows_and_loses_nothing() -> None:
    world = World(windows_max=32)
    for user in range(100):
        world.report(denied(1, f"u{user}"), denied(1, f"u{user}"))
    assert sum(count for _user, count in counts(world.published())) >= 168
    world.notices.close()
    assert sum(count for _user, count in counts(world.published())) <= 32
    world.loop.close()


def test_what_waits_is_published_at_the_end(world: World) -> None:
    world.report(denied())
    world.report(denied(7))
    world.notices.close()
    assert counts(world.published()) == [("ada", 1), ("ada", 7)]
