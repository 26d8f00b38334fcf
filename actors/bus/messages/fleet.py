"""The wish and what is really so: between the API and the supervisor."""

from __future__ import annotations

from typing import Any

from actors.bus.codec import message
from actors.bus.messages.problems import Problem
from actors.bus.messages.specs import ProxySpec


@message
class ReserveListener:
    """API → supervisor, before a proxy is stored or started: bind the listening socket and hold it.

    Answered by `ListenerReserved` or `ListenerRefused`. What is not followed by `ApplyProxy` within ten seconds is let
    go. A socket that the supervisor already holds for this proxy at this address is a success. What a proxy listens at
    now stays until then, too. Where one of `instead_of`, which are to give up theirs, listens at this very address, the
    proxy goes on with that socket.
    """

    proxy_id: str
    host: str
    port: int
    instead_of: tuple[str, ...] = ()


@message
class CancelListeners:
    """API → supervisor: nothing comes of the reservations for these proxies. What is kept stays. Answered by `Done`."""

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
    """API → supervisor, after the store has it: this is the wish for one proxy from now on. Answered by `Done`.

    The answer to one that is inactive comes when its listener is closed. An older revision than the known is ignored.

    An active one that has no socket yet is bound; when that fails its runtime becomes `failed`.
    """

    spec: ProxySpec


@message
class RemoveProxy:
    """API → supervisor, after the store has it: this proxy is gone. Answered by `Done` when its listener is closed."""

    proxy_id: str


@message
class RestartProxy:
    """API → supervisor: a new process on the same socket; the old one drains.

    Answered by `Done` when the new process has taken over, or after four seconds while it still starts; by `Failed`
    when it died at its start (then the old one goes on), or when the proxy is unknown or inactive.
    """

    proxy_id: str


@message
class AwaitProxy:
    """API → supervisor, after a proxy was created, started or restarted: does its process serve?

    Answered by `Done` as soon as the proxy doesn't start (any more): it runs, it failed, or it is not to run. After
    `seconds` the answer comes in any case.
    """

    proxy_id: str
    seconds: float


@message
class ReplaceProxies:
    """API → supervisor, at the API's start and after an import: the whole wish, in place of what is remembered.

    Answered by `Done` when the listeners of those that are not wished any more are closed.
    """

    specs: tuple[ProxySpec, ...]


@message
class DrainConnections:
    """Supervisor → API, when the TLS front in front of it ends: each connection ends with its next answer. → `Done`."""


@message
class Upgrade:
    """Command line → supervisor: become the program that is installed now. Answered by `Done` or `Failed`.

    `Done` means that the new program would start, and comes before the supervisor becomes it; `Failed` says why it
    would not start, and then nothing has changed.
    """


@message
class DescribeProgram:
    """Command line → supervisor: which program is this? Answered by `Program`."""


@message
class Program:
    """Supervisor → command line: its version, since when it runs, and whether it is ready for work."""

    version: str
    started_at: float
    ready: bool


@message
class QueryRuntime:
    """API or telemetry → supervisor: what is really so? `proxy_ids` empty means all. Answered by `Fleet`.

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
    """What is really so with one actor. A value, not a message by itself.

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
        """Does its process do its work, in whatever condition?"""
        return self.state in ("running", "degraded")

    @property
    def serves(self) -> bool:
        """Can clients be served? A process that turns all of them away runs and doesn't serve."""
        return self.runs and all(problem.serves for problem in self.problems)


@message
class Fleet:
    """Supervisor → API: the runtime of proxies by proxy id, and of the other actors by name."""

    proxies: dict[str, Runtime]
    actors: dict[str, Runtime]
    started_at: float


# --- the settings that are changed through the API ----------------------------------------------------------------


@message
class ValidateSettings:
    """API → supervisor, before a change of the settings is stored: could this be in force?

    `stored` is what `config.settings.runtime.Stored` says. A new address of the API is bound and held for ten seconds.
    Answered by `Done`, by `ListenerRefused` when the address can't be bound, or by `Failed`.
    """

    stored: dict[str, dict[str, Any]]


@message
class ApplyOverrides:
    """API → supervisor, after the store has it: this is in force from now on. Answered by `ApplySettings`.

    A new address of the API comes to the API as a descriptor, by the socket `RunDir.api_door`.
    """

    stored: dict[str, dict[str, Any]]
