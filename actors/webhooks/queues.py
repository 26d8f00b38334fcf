"""What the sender knows of a webhook: its two lanes, and the request that is under way in each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from actors.bus.loop import Timer
from actors.bus.messages.events import Event
from actors.bus.messages.webhooks import WebhookSpec
from actors.webhooks.outbox import Waiting

if TYPE_CHECKING:
    from actors.webhooks.request import Request


@dataclass(slots=True)
class DeliveryQueue:
    under_way: Request | None = None
    noting: bool = False
    """Does what came of the last request wait for the disk?"""
    timer: Timer | None = None
    waits_for: tuple[int, float] | None = None

    def rest(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self.waits_for = None


@dataclass(slots=True)
class Target:
    webhook: WebhookSpec
    given_up: bool = False
    last_success: float | None = None
    failed_requests: int = 0
    ordered: DeliveryQueue = field(default_factory=DeliveryQueue)
    apart: DeliveryQueue = field(default_factory=DeliveryQueue)


@dataclass(slots=True, eq=False)
class Sending:
    """A request from when it is due. `began` is wall time, `since` the loop's; `quick` is what `SlotScheduler` has
    said."""

    webhook: WebhookSpec
    lane: DeliveryQueue
    delivery: Waiting
    event: Event
    request: Request
    began: float
    since: float
    quick: bool = True
