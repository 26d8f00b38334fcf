"""How the processes of each kind of actor are made, and which groups of the settings each gets.

The zygote imports the classes of the actors by name; this module imports none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from socket import socket
from typing import Any, NamedTuple

from actors.bus.codec import pack
from actors.bus.messages.common import (
    API,
    EGRESS,
    LAB,
    LOGS,
    METRICS,
    POOLS,
    PROXY_RESOLVER,
    RESOLVER,
    TELEMETRY,
    TLS,
    WEBHOOKS,
    forwarding_name,
)
from actors.bus.messages.forwarding import Configure
from actors.supervision.config import SupervisionConfig
from actors.supervision.processes.actor_spec import ActorSpec, WorkerId


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


Sockets = Callable[[], list[socket]]

AT_START_MAX = 100_000
"""Bytes of a configuration that travels with the request for a process; a longer one follows its hello."""


def collector_specs(classes: ActorClasses, config: SupervisionConfig) -> Iterator[ActorSpec]:
    """The actors that always run beside the proxies and the API, in the order in which they are started."""
    yield ActorSpec(METRICS, classes.metrics, ("logging", "alerts", "metrics"))
    yield ActorSpec(LOGS, classes.logs, ("logging",))
    yield ActorSpec(WEBHOOKS, classes.webhooks, ("logging", "webhooks", EGRESS))
    yield ActorSpec(RESOLVER, classes.resolver, ("logging",))
    if config.groups["telemetry"]["otlp"]["endpoint"]:
        yield ActorSpec(TELEMETRY, classes.telemetry, ("logging", "telemetry"))


def proxy_resolver_spec(classes: ActorClasses) -> ActorSpec:
    """The second resolver, which runs while a proxy names name servers."""
    return ActorSpec(PROXY_RESOLVER, classes.resolver, ("logging", "proxy", EGRESS))


def pools_spec(classes: ActorClasses) -> ActorSpec:
    """The checks of pools, which run while a proxy can use one."""
    return ActorSpec(POOLS, classes.pools, ("logging", "proxy"))


def api_spec(classes: ActorClasses, config: SupervisionConfig, params: dict[str, Any], sockets: Sockets) -> ActorSpec:
    """The API, which serves and compares the settings of all but telemetry, whose headers are secret."""
    groups = tuple(name for name in config.groups if name != "telemetry")
    return ActorSpec(API, classes.api, groups, params, sockets)


def tls_spec(classes: ActorClasses, sockets: Sockets) -> ActorSpec:
    """The TLS terminator of the API."""
    return ActorSpec(TLS, classes.tls, ("logging", "server"), {}, sockets)


def lab_spec(classes: ActorClasses, sockets: Sockets) -> ActorSpec:
    """The origin of `serve --lab`."""
    return ActorSpec(LAB, classes.lab, ("logging",), {}, sockets)


def params_at_start(configure: Configure) -> dict[str, bytes]:
    """The configuration as a param of the process that is requested; nothing of a long one."""
    packed = pack(configure)
    return {"configure": packed} if len(packed) <= AT_START_MAX else {}


def proxy_spec(
    actor_class: str,
    worker: WorkerId,
    sockets: Sockets,
    params_of: Callable[[int], Mapping[str, Any]] = lambda _instance: {},
    on_end: Callable[[int], None] = lambda _instance: None,
) -> ActorSpec:
    """A worker of a proxy: all of a proxy have one name on the bus."""
    groups = ("logging", "proxy", "server.tls")
    return ActorSpec(forwarding_name(worker.proxy_id), actor_class, groups, {}, sockets, worker, params_of, on_end)
