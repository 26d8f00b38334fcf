"""The classes of the actors, which the zygote imports by name. This module imports none of them."""

from __future__ import annotations

from typing import NamedTuple


class ActorClasses(NamedTuple):
    """The actor classes, `package.module:Class`."""

    api: str = "api.process:ApiActor"
    tls: str = "api.server.tls_terminator:TlsTerminator"
    forwarding: str = "actors.forwarding.actor:ForwardingActor"
    explaining: str = "actors.forwarding.explaining_actor:ExplainingActor"
    metrics: str = "actors.metrics.actor:MetricsActor"
    logs: str = "actors.logs.actor:LogsActor"
    webhooks: str = "actors.webhooks.actor:WebhooksActor"
    telemetry: str = "actors.telemetry.actor:TelemetryActor"
    resolver: str = "actors.resolver.actor:ResolverActor"
    lab: str = "actors.lab:LabActor"
    pools: str = "actors.pools.actor:PoolsActor"
