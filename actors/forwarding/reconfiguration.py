"""How one configuration takes the place of another while clients are served.

Policies are compiled first, some entries in each turn of the loop, and the present configuration holds until they are.
Then all of it is applied at once. What it changes about open connections is done in batches; a connection whose next
request comes before its batch is found to be outdated then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from actors.bus.messages.specs import EgressSpec, ProxySpec
from actors.forwarding.context import ForwardingContext, Visit
from actors.forwarding.fleet_objects import FleetObjects

if TYPE_CHECKING:
    from actors.forwarding.policies.judge import PolicySet
    from actors.forwarding.policies.masks import Batches

ENTRIES: Final = 400
"""Entries of policies that are read in one turn; five milliseconds or so."""


class Configuration(NamedTuple):
    """All that is configured together."""

    spec: ProxySpec
    egress: EgressSpec
    objects: FleetObjects


class Reconfiguration:
    """Takes configurations. `applied` is called with each in the moment from which it holds."""

    def __init__(self, context: ForwardingContext, applied: Callable[[ProxySpec], None]) -> None:
        self._context = context
        self._applied = applied
        self._compiling = False
        self._next: Configuration | None = None
        """The newest that has come while another was being compiled."""
        self._done: list[Callable[[], None]] = []

    def configure(self, configuration: Configuration, done: Callable[[], None]) -> None:
        """Call `done` when this configuration, or a newer one, holds for all open connections."""
        self._done.append(done)
        if self._compiling:
            self._next = configuration
        else:
            self._begin(configuration)

    def _begin(self, configuration: Configuration) -> None:
        done, self._done = self._done, []
        batches = self._context.compiling(configuration.spec, configuration.objects)
        self._compile(batches, partial(self._apply, configuration, done))

    def _compile(self, batches: Batches[PolicySet | None], compiled: Callable[[PolicySet | None], None]) -> None:
        """Nothing is served before the first configuration, so that is compiled at once."""
        entries, most = 0, ENTRIES if self._context.configured else float("inf")
        while entries < most:
            try:
                entries += next(batches)
            except StopIteration as end:
                self._compiling = False
                compiled(end.value)
                return
        self._compiling = True
        self._context.loop.call_soon(lambda: self._compile(batches, compiled))

    def _apply(self, configuration: Configuration, done: list[Callable[[], None]], policies: PolicySet | None) -> None:
        spec, egress, objects = configuration
        visit = self._context.configure(spec, egress, objects, policies)
        self._applied(spec)

        self._visit(visit, done)
        following, self._next = self._next, None
        if following is not None:
            self._begin(following)

    def _visit(self, visit: Visit | None, done: list[Callable[[], None]]) -> None:
        def visited() -> None:
            for each in done:
                each()

        if visit is None:
            visited()
        else:
            self._context.visit_all(visit, visited)

    def __repr__(self) -> str:
        return f"<Reconfiguration{', compiling' if self._compiling else ''}>"


def join_workers(context: ForwardingContext) -> None:
    """Count together with the other workers of the proxy from now on."""
    from actors.forwarding.limits.workers import ProxyWorkers  # only proxies with several workers pay for it

    workers = ProxyWorkers(context.state)
    context.limits.share(workers, len(context.connections))

    workers.on_processes = context.pool.divide_among
    workers.open_connections()
