"""The actual state, as the API, telemetry and `systemctl status` get it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from actors.bus.messages.supervision import QueryRuntime, Runtime, RuntimeReport
from actors.supervision.desired_proxies import DesiredProxies
from actors.supervision.problems import ProblemBook
from actors.supervision.processes.lifecycle import State
from actors.supervision.processes.managed_actor import ManagedActor


class RuntimeReporter:
    """`proxies` are forwarding actors by the id of their proxy, `fixed` the other actors by name."""

    def __init__(
        self,
        desired: DesiredProxies,
        proxies: Mapping[str, ManagedActor],
        fixed: Mapping[str, ManagedActor],
        problems: ProblemBook,
    ) -> None:
        self._desired = desired
        self._proxies = proxies
        self._fixed = fixed
        self._problems = problems
        self._started_at = time.time()

    def report(self, query: QueryRuntime) -> RuntimeReport:
        """The reply to `query`."""
        desired = self._desired.specs
        wanted = query.proxy_ids or tuple(desired if query.stopped else self._proxies)
        stopped = Runtime(State.STOPPED.value, None, self._started_at, 0, None)
        proxies = {
            proxy_id: replace(
                self._runtime(self._proxies[proxy_id]) if proxy_id in self._proxies else stopped,
                name=desired[proxy_id].name,
                protocol=desired[proxy_id].protocol,
            )
            for proxy_id in wanted
            if proxy_id in desired
        }
        return RuntimeReport(
            proxies, {name: self._runtime(actor) for name, actor in self._fixed.items()}, self._started_at
        )

    @property
    def summary(self) -> str:
        """One line for `systemctl status`."""
        running = sum(actor.life.state is State.RUNNING for actor in self._proxies.values())
        wanted = sum(spec.active for spec in self._desired.specs.values())
        degraded = sum(self._runtime(actor).state == "degraded" for actor in self._proxies.values())
        return f"{running} of {wanted} proxies running{f', {degraded} of them degraded' if degraded else ''}"

    @property
    def beyond_help(self) -> str:
        """The processes that neither a kill nor waiting has replaced, as a clause; empty when there are none."""
        actors = (*self._fixed.values(), *self._proxies.values())
        stuck = [actor.label for actor in actors if actor.stuck]
        return f"killed and still there, or never made: {', '.join(stuck)}" if stuck else ""

    def _runtime(self, actor: ManagedActor) -> Runtime:
        return self._problems.applied(actor.name, actor.instance, actor.runtime())
