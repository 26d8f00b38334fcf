"""How the processes of each kind of actor are made, which groups of the settings each gets, and what all managed actors
share for that.

The zygote imports the classes of the actors by name; this module imports none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import getitem
from socket import socket
from typing import Any, NamedTuple

from actors.bus.codec import pack
from actors.bus.loop import Loop
from actors.bus.mailbox import MailboxRouter
from actors.bus.messages.common import (
    API,
    EGRESS,
    LAB,
    LOGS,
    METRICS,
    POOLS,
    PROXY_RESOLVER,
    QUOTA_OFFLINE,
    RESOLVER,
    TELEMETRY,
    TLS,
    WEBHOOKS,
    forwarding_name,
)
from actors.bus.messages.forwarding import Configure
from actors.process import Boot
from actors.supervision.processes.live_state_files import LiveStateFiles
from actors.supervision.processes.spawner import Spawner
from actors.supervision.settings_updates import SupervisionConfig


class ActorSettings:
    """The effective values; every start of a process reads them, and a change sends what has changed."""

    def __init__(self) -> None:
        self._groups: dict[str, Any] = {}

    def put(self, groups: Mapping[str, Any]) -> None:
        """These groups have these values from now on."""
        self._groups.update(groups)

    def of(self, names: Iterable[str]) -> dict[str, Any]:
        """The groups with these names; a part of a group has its name behind a dot."""
        return {name: reduce(getitem, name.split("."), self._groups) for name in names}


@dataclass(frozen=True, slots=True)
class WorkerId:
    """One of the processes that serve a proxy at the same time; `index` counts from 0."""

    proxy_id: str
    index: int = 0


NO_PROXY = WorkerId("")
"""That of an actor which belongs to no proxy."""


NO_PARAMS: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class ActorSpec:
    """How processes of an actor are made.

    `settings` names the groups of the settings that it gets; `sockets` returns the listening sockets at a start.
    `worker` is which process of a proxy it is; `params_of` returns further `params` of an instance, and `on_end` is
    called with each instance that has ended or could not be made.
    """

    name: str
    actor_class: str
    settings: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    sockets: Callable[[], list[socket]] = list
    worker: WorkerId = NO_PROXY
    params_of: Callable[[int], Mapping[str, Any]] = lambda _instance: NO_PARAMS
    on_end: Callable[[int], None] = lambda _instance: None


@dataclass(slots=True)
class SupervisionContext:
    """What all managed actors share. `new_boot(name, settings, params)` assigns the instance number.

    `state` is what processes count together.
    """

    loop: Loop
    router: MailboxRouter
    spawner: Spawner
    new_boot: Callable[[str, dict[str, Any], dict[str, Any]], Boot]
    state: LiveStateFiles
    settings: ActorSettings = field(default_factory=ActorSettings)


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
    yield ActorSpec(METRICS, classes.metrics, ("logging", "alerts", "metrics", QUOTA_OFFLINE))
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
