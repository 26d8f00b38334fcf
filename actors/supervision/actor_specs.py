"""The plans of the actors that always run beside the proxies and the API."""

from __future__ import annotations

from collections.abc import Iterator

from actors.bus.messages.common import LOGS, METRICS, TELEMETRY, WEBHOOKS
from actors.supervision.config import ActorClasses, SupervisionConfig
from actors.supervision.processes.managed_actor import ActorSpec


def fixed_actors(classes: ActorClasses, config: SupervisionConfig) -> Iterator[ActorSpec]:
    """In the order in which they are started."""
    yield ActorSpec(METRICS, classes.metrics, config.metrics_params | config.groups.get(METRICS, {}))
    yield ActorSpec(LOGS, classes.logs, config.groups.get(LOGS, {}))
    yield ActorSpec(WEBHOOKS, classes.webhooks, config.groups.get(WEBHOOKS, {}))
    if config.telemetry_params:
        yield ActorSpec(TELEMETRY, classes.telemetry, config.telemetry_params)
