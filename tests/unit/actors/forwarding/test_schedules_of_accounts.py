"""An account with a schedule: when its connections end, by clocks set by hand."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.specs import AccountSpec
from actors.forwarding.limits.limits import LimitsOfProxy
from actors.forwarding.limits.meter import Meter
from tests.kit.forwarding_rig import spec


class Clocks:
    """Monotonic and wall clock, in step."""

    def __init__(self, wall: datetime) -> None:
        self.now = 100.0
        self._wall = wall.timestamp()

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self._wall + self.now - 100.0


class Holder:
    """A connection that only ends."""

    client_ip = "192.0.2.1"
    meter: Meter | None = None

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def measure(self, meter: Meter) -> None:
        self.meter = meter

    def end(self, reason: str) -> None:
        self.reasons.append(reason)

    def destinations_changed(self) -> None:
        raise AssertionError


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    """The day of 2026 on which clocks in Berlin go forward, at 00:30 there."""
    clocks = Clocks(datetime(2026, 3, 28, 23, 30, tzinfo=UTC))
    monkeypatch.setattr(time, "time", clocks.wall)
    return clocks


def pass_time(loop: Loop, clocks: Clocks, minutes: float) -> None:
    for _ in range(round(minutes)):
        clocks.now += 60
        loop.turn(0)


def opened(limits: LimitsOfProxy) -> tuple[Any, Holder]:
    meter, holder = limits.new_meter(), Holder()
    assert meter is not None
    return meter.admit("ada", holder), holder


def test_a_tunnel_ends_when_its_window_does_and_the_next_one_with_the_next_window(clocks: Clocks) -> None:
    """From 01:00 to 04:00 there are two hours on this day; the next window is the following night's."""
    loop = Loop(clocks.monotonic)
    limits = LimitsOfProxy(loop)
    ada = AccountSpec("acc_1", "ada", None, schedule=("Europe/Berlin", (((5, 6, 0), 60, 240),)))
    limits.configure(spec(1, accounts=(ada,), auth_required=True))

    assert opened(limits)[0].rule == "outside_schedule"
    pass_time(loop, clocks, 30)
    failure, first = opened(limits)
    assert failure is None
    pass_time(loop, clocks, 119)
    assert first.reasons == []
    pass_time(loop, clocks, 2)
    assert first.reasons == ["outside_schedule"]
    pass_time(loop, clocks, 22 * 60)
    failure, second = opened(limits)
    assert failure is None
    pass_time(loop, clocks, 4 * 60)
    assert second.reasons == ["outside_schedule"]
