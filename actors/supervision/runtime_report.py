"""The actual state, as the API, telemetry and `systemctl status` get it.

That of a proxy follows from those of its workers:

| workers | state of the proxy |
|---|---|
| one runs | `running`; a problem while another one, which has run or was tried, doesn't |
| none runs, one starts | `starting` |
| none runs or starts, one has failed | `failed` |
| all others | `draining`, else `sleeping`, else `stopped` |
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from actors.bus.messages.common import PROCESS, Problem, forwarding_name
from actors.bus.messages.supervision import (
    QueryRuntime,
    QueryWorkers,
    Runtime,
    RuntimeReport,
    WorkerRuntime,
    Workers,
    asleep_runtime,
)
from actors.supervision.handover import Predecessors
from actors.supervision.lifecycle import ActorState
from actors.supervision.occasional_actors import PoolChecks
from actors.supervision.processes.managed_actor import ManagedActor
from actors.supervision.proxies.desired_proxies import DesiredProxies
from actors.supervision.proxies.proxy_actors import ProxyActors
from actors.supervision.proxies.proxy_events import ProblemBook
from actors.supervision.proxies.sleepers import Sleepers
from config.text.formatting import counted

_ORDER = (
    ActorState.RUNNING,
    ActorState.STARTING,
    ActorState.FAILED,
    ActorState.DRAINING,
    ActorState.SLEEPING,
    ActorState.STOPPED,
)


def combined(workers: Sequence[tuple[int, Runtime]]) -> Runtime:
    """Of all workers, by index. That of one alone is as it is."""
    if len(workers) == 1:
        return workers[0][1]
    state = next(each for each in _ORDER if any(runtime.state == each.value for _index, runtime in workers))
    deciding = [runtime for _index, runtime in workers if runtime.state == state.value]
    rows = tuple(
        WorkerRuntime(index, each.pid, each.state, each.since, each.restarts, each.error)
        for index, each in workers
        if each.state not in (ActorState.STOPPED.value, ActorState.SLEEPING.value)
    )
    first = deciding[0]
    return replace(
        first,
        since=min(each.since for each in deciding),
        restarts=sum(each.restarts for _index, each in workers),
        problems=_lost([runtime for _index, runtime in workers]) if state is ActorState.RUNNING else first.problems,
        workers=rows,
    )


def _lost(workers: Sequence[Runtime]) -> tuple[Problem, ...]:
    """The problem that workers have died or can't be started, while others serve. Until it runs again it has an
    error."""
    lost = [each for each in workers if each.error is not None]
    if not lost:
        return ()
    wanted = [each for each in workers if each.state not in (ActorState.DRAINING.value, ActorState.SLEEPING.value)]
    runs = sum(each.state == ActorState.RUNNING.value for each in wanted)
    detail = f"{runs} of {len(wanted)} workers run: {lost[0].error}"
    return (Problem(PROCESS, detail, min(each.since for each in lost)),)


@dataclass(slots=True, eq=False)
class RuntimeReporter:
    """`proxies` are the forwarding actors, `fixed` the other actors by name."""

    desired: DesiredProxies
    proxies: ProxyActors
    fixed: Mapping[str, ManagedActor]
    problems: ProblemBook
    sleepers: Sleepers
    pools: PoolChecks
    predecessors: Predecessors
    _started_at: float = field(default_factory=time.time)

    def report(self, query: QueryRuntime) -> RuntimeReport:
        """The reply to `query`."""
        desired = self.desired.specs
        wanted = query.proxy_ids or self._all(query)
        proxies = {
            proxy_id: replace(
                self._of_proxy(proxy_id),
                name=desired[proxy_id].name,
                protocol=desired[proxy_id].protocol,
            )
            for proxy_id in wanted
            if proxy_id in desired
        }
        actors = {name: self._runtime([actor]) for name, actor in self.fixed.items()}
        whole = RuntimeReport(proxies, actors, self._started_at, pools=self.pools.in_use)
        older = self.predecessors.instances()
        if older:
            until = self.predecessors.until - time.monotonic() + time.time()
            whole = replace(whole, older=older, older_connections=self.predecessors.connections, older_until=until)
        return whole if query.asleep_since is None else self._with_sleepers(whole, query.asleep_since)

    def _all(self, query: QueryRuntime) -> Iterable[str]:
        awake = self.proxies.by_id
        if query.asleep_since is not None:
            return [each for each in (self.desired.specs if query.stopped else awake) if each not in self.sleepers]
        return self.desired.specs if query.stopped else {**awake, **self.sleepers.by_id}

    def _with_sleepers(self, report: RuntimeReport, since: int) -> RuntimeReport:
        sleepers, changed = self.sleepers, self.sleepers.log.since(since)
        asleep = sleepers.by_id if changed is None else changed & sleepers.by_id.keys()
        return replace(
            report,
            asleep={each: self._asleep(each) for each in asleep},
            asleep_all=changed is None,
            woken=() if changed is None else tuple(changed - sleepers.by_id.keys()),
            asleep_step=sleepers.log.step,
        )

    def _asleep(self, proxy_id: str) -> tuple[float, int, float]:
        asleep = self.sleepers.by_id[proxy_id]
        return asleep.since, asleep.restarts, self.problems.certificate_ends(forwarding_name(proxy_id))

    def workers(self, query: QueryWorkers) -> Workers:
        """The reply to `query`."""
        instances = {each: tuple(self._serving(self.proxies.of_proxy(each))) for each in query.proxy_ids}
        return Workers({proxy_id: found for proxy_id, found in instances.items() if found})

    @property
    def summary(self) -> str:
        """One line for `systemctl status`."""
        states = [self._runtime(self.proxies.of_proxy(proxy_id)).state for proxy_id in self.proxies.by_id]
        wanted = sum(spec.active for spec in self.desired.specs.values())
        degraded = states.count("degraded")
        running = states.count("running") + degraded
        asleep = len(self.sleepers.by_id)
        older = self.predecessors.instances()
        left = counted(self.predecessors.connections, "connection")
        return (
            f"{running} of {wanted} proxies running{f', {degraded} of them degraded' if degraded else ''}"
            f"{f', {asleep} asleep' if asleep else ''}"
            f"{f', {left} in older processes' if older else ''}"
        )

    @property
    def beyond_help(self) -> str:
        """The processes that neither a kill nor waiting has replaced, as a clause; empty when there are none."""
        actors = (*self.fixed.values(), *self.proxies.all())
        stuck = [actor.label for actor in actors if actor.stuck]
        return f"killed and still there, or never made: {', '.join(stuck)}" if stuck else ""

    def _of_proxy(self, proxy_id: str) -> Runtime:
        if proxy_id in self.sleepers:
            return asleep_runtime(*self._asleep(proxy_id))
        if proxy_id in self.proxies.by_id:
            return self._runtime(self.proxies.of_proxy(proxy_id))
        return Runtime(ActorState.STOPPED.value, None, self._started_at, 0, None)

    def own_problems(self, proxy_id: str) -> tuple[Problem, ...]:
        """What is wrong with a proxy that serves all the same, as the supervisor sees it: a worker is missing."""
        workers = self.proxies.of_proxy(proxy_id)
        runtime = combined([(actor.worker.index, actor.runtime()) for actor in workers]) if len(workers) > 1 else None
        return runtime.problems if runtime is not None and runtime.runs else ()

    def _runtime(self, workers: Sequence[ManagedActor]) -> Runtime:
        runtime = combined([(actor.worker.index, actor.runtime()) for actor in workers])
        return self.problems.applied(workers[0].name, self._serving(workers), runtime)

    def _serving(self, workers: Sequence[ManagedActor]) -> list[int]:
        return [actor.serving for actor in workers if actor.serving is not None]
