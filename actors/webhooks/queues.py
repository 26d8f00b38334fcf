"""What the sender keeps of a webhook: its two queues, and the request that is under way for each."""

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
    """At most one request at a time."""

    under_way: Request | None = None
    storing: bool = False
    """The result of the last request waits for the disk."""
    timer: Timer | None = None
    scheduled: tuple[int, float] | None = None
    """The delivery that the timer is for, by its number, and its time."""

    def cancel_timer(self) -> None:
        """Wait for nothing."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self.scheduled = None


@dataclass(slots=True)
class Target:
    """A webhook. `disabled`: given up by the sender, which the API has not acknowledged yet."""

    webhook: WebhookSpec
    disabled: bool = False
    last_success: float | None = None
    failed_requests: int = 0
    ordered: DeliveryQueue = field(default_factory=DeliveryQueue)
    apart: DeliveryQueue = field(default_factory=DeliveryQueue)


@dataclass(slots=True, eq=False)
class Sending:
    """A request from when it is due. `began` is wall time, `since` the loop's; `quick` is for `SlotScheduler`."""

    webhook: WebhookSpec
    queue: DeliveryQueue
    delivery: Waiting
    event: Event
    request: Request
    began: float
    since: float
    quick: bool = True
