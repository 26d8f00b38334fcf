"""Between the supervisor and the API, telemetry and the command line: desired and actual state, settings, upgrades.

No predecessor sends or receives any of these: an upgrade ends the API and telemetry before the next program starts, and
only forwarding actors outlive it. `Upgrade`, `DescribeProgram` and `Program` alone cross two releases, between the
command that is installed and the program that runs.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from actors.bus.codec import message
from actors.bus.messages.common import Problem
from actors.bus.messages.specs import FleetObject, ProxySpec


@message
class ReserveListener:
    """API → supervisor, before a proxy is stored or started: bind and reserve its listening sockets.

    → `ListenerReserved` or `ListenerRefused`. Unless `ApplyProxies` follows within ten seconds they are closed. An
    address that the proxy has already is a success. Its present listeners stay until then, too. Where one of
    `instead_of`, which are about to leave their addresses, listens at one of the ports, the proxy gets that socket.
    `last_port` is the last of a range that begins with `port`, 0 for one port.
    """

    proxy_id: str
    host: str
    port: int
    instead_of: tuple[str, ...] = ()
    last_port: int = 0


@message
class CancelListeners:
    """API → supervisor: close the reservations for these proxies; what is kept stays. → `Done`."""

    proxy_ids: tuple[str, ...]


@message
class ListenerReserved:
    """Supervisor → API: the socket is bound and listening."""

    host: str
    port: int


@message
class ListenerRefused:
    """Supervisor → API: the address can't be bound. `field` is `host` or `port`; `error` is a sentence.

    `holder` is the id of the proxy that has the port, empty if none of the product's has it.
    """

    field: str
    error: str
    holder: str = ""


@message
class ApplyProxies:
    """API → supervisor, after the store has them: these proxies have changed; `gone` are the ids of deleted ones.

    → `Done` when the listeners of those that are gone or inactive are closed. An older revision than the known is
    ignored. An active one that has no socket yet is bound, after those that leave or move; when that fails its runtime
    becomes `failed`.
    """

    specs: tuple[ProxySpec, ...]
    gone: tuple[str, ...] = ()


@message
class RestartProxy:
    """API → supervisor: a new process on the same socket; the old one drains.

    → `Done` when the new process serves, or after four seconds while it still starts; `Failed` when it died at its
    start (then the old one continues), or when the proxy is unknown or inactive.
    """

    proxy_id: str


@message
class AwaitProxy:
    """API → supervisor, after a proxy was created, started or restarted: wait for its process.

    → `Done` as soon as the proxy isn't starting (any more): it runs, it failed, it sleeps, or it is not to run. After
    `seconds` the reply is sent in any case. `wake`: one that sleeps is started.
    """

    proxy_id: str
    seconds: float
    wake: bool = False


@message
class StartExplainer:
    """API → supervisor: have a process that explains the decisions of a proxy that sleeps, for the next seconds.

    → `Done` when it is ready for `Explain` under `explainer_name`, or `Failed`.
    """

    proxy_id: str


@message
class QueryDesired:
    """API → supervisor, before `ReplaceProxies`: request what it knows of the desired state. → `DesiredRevisions`."""


@message
class DesiredRevisions:
    """Supervisor → API: the revisions of all proxies that it knows, by id."""

    proxies: dict[str, int]


@message
class ReplaceProxies:
    """API → supervisor, at the API's start and after an import: the desired state of all proxies, and all objects.

    `unchanged` are the ids of proxies that the supervisor has in their present revision, so that thousands are not sent
    again; `specs` are all others. → `Done` when the listeners of those that are gone are closed, and the processes that
    need changed objects have them; `Failed`, and nothing has changed, when it doesn't have one that is `unchanged`.
    """

    specs: tuple[ProxySpec, ...]
    objects: tuple[FleetObject, ...] = ()
    unchanged: tuple[str, ...] = ()


@message
class ApplyObjects:
    """API → supervisor, after the store has them: these objects have changed; `gone` are the ids of deleted ones.

    → `Done` when the processes that need them have them. An older revision than the known is ignored.
    """

    objects: tuple[FleetObject, ...]
    gone: tuple[str, ...] = ()


@message
class DrainConnections:
    """Supervisor → API, when the TLS terminator ends: close each connection after its next response. → `Done`."""


@message
class Upgrade:
    """Command line → supervisor: become the program that is installed now. → `Done` or `Failed`.

    `Done` means that the new program would start, and comes before the supervisor becomes it; `Failed` gives the reason
    why it would not, and nothing has changed.
    """


@message
class DescribeProgram:
    """Command line → supervisor: identify the program. → `Program`."""


@message
class Program:
    """Supervisor → command line: its version, its start in Unix seconds, and whether it is ready for work."""

    version: str
    started_at: float
    ready: bool


@message
class QueryRuntime:
    """API or telemetry → supervisor: the actual state of these proxies, of all if empty. → `RuntimeReport`.

    Without `stopped` those are left out that have no process and need none. With `asleep_since`, the
    `asleep_step` of an earlier report or 0, those that sleep are apart from the others in the report, and only what has
    changed since then.
    """

    proxy_ids: tuple[str, ...]
    stopped: bool = True
    asleep_since: int | None = None


@message
class QueryWorkers:
    """API → supervisor: the processes that serve these proxies, to ask each of them. → `Workers`."""

    proxy_ids: tuple[str, ...]


@message
class Workers:
    """Supervisor → API: by proxy, the instances of its processes that serve, the first worker's first.

    Messages reach each at its address (`actors.bus.mailbox.address_of`). A proxy without any is left out.
    """

    instances: dict[str, tuple[int, ...]]


@message
class SetProxyNames:
    """Supervisor → metrics collector and telemetry: names and ports of proxies, by id; `gone` are deleted.

    All of them when the receiver has started, then what changes. Nothing replies.
    """

    names: dict[str, tuple[str, int]]
    gone: tuple[str, ...] = ()


@message
class WorkerRuntime:
    """The actual state of one of several workers of a proxy, as `Runtime` has it. A value, not a message by itself."""

    index: int
    pid: int | None
    state: str
    since: float
    restarts: int
    error: str | None


@message
class Runtime:
    """The actual state of one actor. A value, not a message by itself.

    `state` is `starting`, `running`, `degraded`, `draining`, `failed`, `sleeping` or `stopped`; `since` is when its
    life entered that state, of which `degraded` is `running` with `problems`; `restarts` counts starts that were not
    asked for. `error` is all problems in one text. `name` and `protocol` are those of a proxy. `certificate_ends` is
    when the certificate that it serves ends, 0 without one. Of a proxy with several workers
    all of this is of all: `pid` and `since` of the first in this state, `restarts` the sum; `workers` are its workers,
    empty with one.
    """

    state: str
    pid: int | None
    since: float
    restarts: int
    error: str | None
    name: str = ""
    protocol: str = ""
    problems: tuple[Problem, ...] = ()
    certificate_ends: float = 0.0
    workers: tuple[WorkerRuntime, ...] = ()

    @property
    def runs(self) -> bool:
        """True if its process works, even if degraded."""
        return self.state in ("running", "degraded")

    @property
    def workers_running(self) -> int:
        """The number of its workers that run."""
        return sum(each.state == "running" for each in self.workers) if self.workers else int(self.runs)

    @property
    def works(self) -> bool:
        """True if its process works, or starts as soon as a client comes."""
        return self.runs or self.state == "sleeping"

    @property
    def serves(self) -> bool:
        """True if clients can be served: a process that rejects all of them runs and doesn't serve."""
        return self.works and all(problem.serves for problem in self.problems)


@message
class RuntimeReport:
    """Supervisor → API or telemetry: the actual state of proxies by proxy id, and of the other actors by name.

    With `asleep_since`, `asleep` are those that sleep, by id: `since`, `restarts` and `certificate_ends` as `Runtime`
    has them (`asleep_runtime`). They are all that do where `asleep_all`, else those that have fallen asleep since that
    step; `woken` are those that have woken since. `asleep_step` is the step of this report. `pools` are the names of
    the pools that a proxy which is active may use.

    `older` are the instances of forwarding actors of an older program that drain, by proxy; `older_connections` are
    open in them, and `older_until` (Unix seconds) is the end of their time.
    """

    proxies: dict[str, Runtime]
    actors: dict[str, Runtime]
    started_at: float
    asleep: dict[str, tuple[float, int, float]] = field(default_factory=dict)
    asleep_all: bool = True
    woken: tuple[str, ...] = ()
    asleep_step: int = 0
    pools: tuple[str, ...] = ()
    older: dict[str, tuple[int, ...]] = field(default_factory=dict)
    older_connections: int = 0
    older_until: float = 0.0


def asleep_runtime(since: float, restarts: int, certificate_ends: float) -> Runtime:
    """The actual state of a proxy that sleeps, without its name and protocol."""
    return Runtime("sleeping", None, since, restarts, None, certificate_ends=certificate_ends)


# --- the settings that are changed through the API ----------------------------------------------------------------


@message
class ValidateSettings:
    """API → supervisor, before a change of the settings is stored: check that it could be applied.

    `stored` is a `config.settings.runtime.Stored`. → `Done` or `Failed`.
    """

    stored: dict[str, dict[str, Any]]


@message
class DescribeSettings:
    """API → supervisor: where the value of each key of the configuration comes from. → `SettingSources`."""


@message
class SettingSources:
    """Supervisor → API: the keys, each as `config.settings.loading.EffectiveValue`, without secrets."""

    settings: tuple[dict[str, Any], ...]


@message
class ApplyOverrides:
    """API → supervisor, after the store has it: apply these overrides. → `ApplySettings`."""

    stored: dict[str, dict[str, Any]]
