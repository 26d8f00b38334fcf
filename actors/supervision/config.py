"""What the supervisor is told at its start: which classes to run, and what the settings say about the fleet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ActorClasses:
    """The actor classes, `package.module:Class`."""

    api: str = "api.process:ApiActor"
    tls: str = "api.server.tls_terminator:TlsTerminator"
    forwarding: str = "actors.forwarding.actor:ForwardingActor"
    metrics: str = "actors.metrics.actor:MetricsActor"
    logs: str = "actors.logs.actor:LogsActor"
    webhooks: str = "actors.webhooks.actor:WebhooksActor"
    telemetry: str = "actors.telemetry.actor:TelemetryActor"


@dataclass(frozen=True, slots=True)
class SupervisionConfig:
    """What the operator's settings say about the fleet; `services` are the product's own addresses besides proxies."""

    drain_timeout: float
    egress_policy: str
    egress_allow: tuple[str, ...]
    services: tuple[tuple[str, int], ...]
    forwarding_params: dict[str, Any] = field(default_factory=dict)
    metrics_params: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By actor: the groups of the settings that it reads, by name."""
    telemetry_params: dict[str, Any] = field(default_factory=dict)
    """What the push to a collector is told at its start; empty: there is none."""
    upstreams_allow: tuple[str, ...] | None = None
