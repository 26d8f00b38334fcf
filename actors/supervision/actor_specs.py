"""The plans of the actors that always run beside the proxies and the API."""

from __future__ import annotations

from collections.abc import Iterator

from actors.bus.messages.common import LOGS, METRICS, TELEMETRY, WEBHOOKS
from actors.supervision.config import Entries, Orders
from actors.supervision.processes.managed_actor import Plan


def helpers(entries: Entries, orders: Orders) -> Iterator[Plan]:
    """In the order in which they are started."""
    yield Plan(METRICS, entries.metrics, orders.metrics_params | orders.groups.get(METRICS, {}))
    yield Plan(LOGS, entries.logs, orders.groups.get(LOGS, {}))
    yield Plan(WEBHOOKS, entries.webhooks, orders.groups.get(WEBHOOKS, {}))
    if orders.telemetry_params:
        yield Plan(TELEMETRY, entries.telemetry, orders.telemetry_params)
