"""The names of the actors, and the messages between any of them and the supervisor: its problems among them."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from actors.bus.codec import message
from config.net.names import Ports

SUPERVISOR = "supervisor"
API = "api"
TLS = "tls"
"""The TLS terminator in front of the API, when `server.tls.enabled`."""
METRICS = "metrics"
LOGS = "logs"
WEBHOOKS = "webhooks"
QUOTA_OFFLINE = "cluster.quota_offline"
"""The setting that the collector gets; no other of its group."""
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


BY_SIGNAL = "SIGTERM"
"""Why an actor ends that an operator has ended."""


@message
class Terminated:
    """Actor → supervisor: a SIGTERM has reached this process, and maybe the whole product.

    → `Done` when the product ends, so that the actor's `Stop` will come in its turn; `Failed` half a second later when
    it does not, and the actor ends by itself. `why` is what else it ends by, to be started again.
    """

    instance: int
    why: str = BY_SIGNAL


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


CERTIFICATE = "certificate"
UPSTREAM_DOWN = "upstream_down"
UPSTREAMS_UNREACHABLE = "upstreams_unreachable"
NO_DESCRIPTORS = "out_of_descriptors"
BIND_ADDRESS = "bind_address"
ACCOUNTS_TABLE = "accounts_table"
LIST_UNREADABLE = "list_unreadable"
WORKERS = "workers"
LISTENER = "listener"
PROCESS = "process"
REASONS = (
    CERTIFICATE,
    UPSTREAM_DOWN,
    UPSTREAMS_UNREACHABLE,
    NO_DESCRIPTORS,
    BIND_ADDRESS,
    ACCOUNTS_TABLE,
    LIST_UNREADABLE,
    WORKERS,
    LISTENER,
    PROCESS,
)
"""All reasons of a problem. `listener` and `process` are those of an actor that has failed."""


@message
class Problem:
    """One thing that is wrong and not over. A value, not a message by itself.

    `reason` is one of `REASONS`, `detail` a sentence, `since` Unix seconds. `subject` is the part of the proxy that it
    concerns: the name of an upstream or of a list, else empty; in reports of pools `POOL` or `POOL/UPSTREAM`. `serves`
    is False when no client can be served while it lasts.
    """

    reason: str
    detail: str
    since: float
    subject: str = ""
    serves: bool = True


@message
class ReportProblems:
    """Forwarding actor, TLS terminator or pools → supervisor, when configured and at each change. Nothing replies.

    `problems` are all that it has now. `over` are those that have ended since the report before, each with a sentence
    that says how. `certificate_ends` is when the certificate that it serves ends, 0 without one. `instance` is the
    process that reports.
    """

    instance: int
    problems: tuple[Problem, ...]
    over: tuple[Problem, ...] = ()
    certificate_ends: float = 0.0


@message
class ResetPassword:
    """Command line → API: give this user another password, a random one when `password` is None.

    → `PasswordReset`, or `Failed`, whose field is `username` when there is no such user.
    """

    username: str
    password: str | None = field(default=None, repr=False)


@message
class PasswordReset:
    """API → command line: it is stored, and all sign-ins of the user are over.

    `password` is the new one. `disabled` says that the user can't sign in with it, since the account isn't active.
    """

    disabled: bool
    password: str = field(repr=False)
