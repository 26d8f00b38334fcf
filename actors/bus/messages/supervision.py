"""Between the supervisor and the API, telemetry and the command line: desired and actual state, settings, upgrades.

No predecessor sends or receives any of these: an upgrade ends the API and telemetry before the next program starts, and
only forwarding actors outlive it. `Upgrade`, `DescribeProgram` and `Program` alone cross two releases, between the
command that is installed and the program that runs.
"""

from __future__ import annotations

from typing import Any

from actors.bus.codec import message
from actors.bus.messages.problems import Problem
from actors.bus.messages.specs import ProxySpec


@message
class ReserveListener:
    """API → supervisor, before a proxy is stored or started: bind and reserve a listening socket.

    → `ListenerReserved` or `ListenerRefused`. Unless `ApplyProxy` follows within ten seconds it is closed. An address
    that the proxy has already is a success. Its present listener stays until then, too. Where one of `instead_of`,
    which are about to leave their addresses, listens at this very address, the proxy gets that socket.
    """

    proxy_id: str
    host: str
    port: int
    instead_of: tuple[str, ...] = ()


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
    """Supervisor → API: the address can't be bound. `field` is `host` or `port`; `error` is a sentence."""

    field: str
    error: str


@message
class ApplyProxy:
    """API → supervisor, after the store has it: the desired state of one proxy. → `Done`.

    The reply for an inactive one follows when its listener is closed. An older revision than the known is ignored.

    An active one that has no socket yet is bound; when that fails its runtime becomes `failed`.
    """

    spec: ProxySpec


@message
class RemoveProxy:
    """API → supervisor, after the store has it: this proxy is gone. → `Done` when its listener is closed."""

    proxy_id: str


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

    → `Done` as soon as the proxy isn't starting (any more): it runs, it failed, or it is not to run. After `seconds`
    the reply is sent in any case.
    """

    proxy_id: str
    seconds: float


@message
class ReplaceProxies:
    """API → supervisor, at the API's start and after an import: the desired state of all proxies.

    → `Done` when the listeners of those that are gone are closed.
    """

    specs: tuple[ProxySpec, ...]


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

    Without `stopped` those are left out that have no process and need none.
    """

    proxy_ids: tuple[str, ...]
    stopped: bool = True


@message
class SetProxyNames:
    """Supervisor → metrics collector and telemetry: names and ports of proxies, by id; `gone` are deleted.

    All of them when the receiver has started, then what changes. Nothing replies.
    """

    names: dict[str, tuple[str, int]]
    gone: tuple[str, ...] = ()


@message
class Runtime:
    """The actual state of one actor. A value, not a message by itself.

    `state` is `starting`, `running`, `degraded`, `draining`, `failed` or `stopped`; `since` is when its life entered
    that state, of which `degraded` is `running` with `problems`; `restarts` counts starts that were not asked for.
    `error` is all problems in one text. `name` and `protocol` are those of a proxy. `certificate_ends` is when the
    certificate that it serves ends, 0 without one.
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

    @property
    def runs(self) -> bool:
        """True if its process works, even if degraded."""
        return self.state in ("running", "degraded")

    @property
    def serves(self) -> bool:
        """True if clients can be served: a process that rejects all of them runs and doesn't serve."""
        return self.runs and all(problem.serves for problem in self.problems)


@message
class RuntimeReport:
    """Supervisor → API or telemetry: the actual state of proxies by proxy id, and of the other actors by name."""

    proxies: dict[str, Runtime]
    actors: dict[str, Runtime]
    started_at: float


# --- the settings that are changed through the API ----------------------------------------------------------------


@message
class ValidateSettings:
    """API → supervisor, before a change of the settings is stored: check that it could be applied.

    `stored` is a `config.settings.runtime.Stored`. A new address of the API is bound and reserved for ten seconds.
    → `Done`, `ListenerRefused` when the address can't be bound, or `Failed`.
    """

    stored: dict[str, dict[str, Any]]


@message
class DescribeSettings:
    """API → supervisor: where the value of each key of the configuration comes from. → `SettingSources`."""


@message
class SettingSources:
    """Supervisor → API: the keys, each as `config.settings.sources.SettingSource`, without secrets."""

    settings: tuple[dict[str, Any], ...]


@message
class ApplyOverrides:
    """API → supervisor, after the store has it: apply these overrides. → `ApplySettings`.

    A new address of the API comes to the API as a descriptor, by the socket `RunDir.api_handover`.
    """

    stored: dict[str, dict[str, Any]]
