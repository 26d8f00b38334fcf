"""The names of the actors, and the messages between any of them and the supervisor."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from actors.bus.codec import message
from config.net.ports import Ports

SUPERVISOR = "supervisor"
API = "api"
TLS = "tls"
"""The TLS terminator in front of the API, when `server.tls.enabled`."""
METRICS = "metrics"
LOGS = "logs"
WEBHOOKS = "webhooks"
EGRESS = "egress"
"""The group of the settings with the addresses at which the product itself listens."""
RESOLVER = "resolver"
PROXY_RESOLVER = "proxy-resolver"
"""A second resolver, for the name servers that proxies name, while there is such a proxy."""
POOLS = "pools"
"""What checks the upstreams of pools, when a proxy can use one."""
LAB = "lab"
"""The origin of `serve --lab`."""
TELEMETRY = "telemetry"
"""The push to an OpenTelemetry collector, when `telemetry.otlp.endpoint` is set."""


def forwarding_name(proxy_id: str) -> str:
    """The actor name, and so the routing id, of the forwarding actor of a proxy."""
    return f"forwarding.{proxy_id}"


def explainer_name(proxy_id: str) -> str:
    """The actor name of what explains the decisions of a proxy that sleeps."""
    return f"{forwarding_name(proxy_id)}.explain"


def actor_proxy(name: str) -> str:
    """The proxy of the forwarding actor with this name, or of what explains its decisions."""
    return name.removeprefix("forwarding.").removesuffix(".explain")


def proxy_label(name: str, ports: Ports, worker: int = 0, workers: int = 1) -> str:
    """The name of a proxy in logs and lists of processes; with the number of its worker, from 1, where it has
    several."""
    return f"{name} ({ports}) {worker + 1}/{workers}" if workers > 1 else f"{name} ({ports})"


@message
class Done:
    """Receiver → asker: it is done."""


@message
class Failed:
    """Receiver → asker: it could not be done. `field` names the part of the request at fault, or is None."""

    error: str
    field: str | None = None


@message
class Unreachable:
    """Supervisor → asker, at once: no `actor` of this name is on the bus, or its queue is full."""

    actor: str
    reason: str


@message
class Hello:
    """Actor → supervisor, once at its start when it is ready for work. `instance` is the number of this start."""

    instance: int
    pid: int


@message
class Stop:
    """Supervisor → actor: finish within `drain` seconds and end. A forwarding actor stops accepting at once.

    → `Done` as soon as nothing new is accepted any more, not at the end.
    """

    drain: float


@message
class Terminated:
    """Actor → supervisor: a SIGTERM has reached this process, and maybe the whole product.

    → `Done` when the product ends, so that the actor's `Stop` will come in its turn; `Failed` half a second later when
    it does not, and the actor ends by itself.
    """

    instance: int


@message
class ApplySettings:
    """Supervisor → actor: these groups of the settings have changed. → `Done`. Also the reply to `ApplyOverrides`.

    `groups` has plain values by the names that the actor's `ActorSpec` gives; the names of `Boot.settings`.
    """

    groups: dict[str, Any] = field(repr=False)


@message
class Listening:
    """Metrics collector → supervisor: it listens at an address that it has chosen itself; no proxy may reach it.

    Nothing replies. `host` is an IP address.
    """

    host: str
    port: int
