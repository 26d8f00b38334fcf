"""The actual state of a proxy, of those of its workers: pure.

| workers | state of the proxy |
|---|---|
| one runs | `running`; a problem while another one, which has run or was tried, doesn't |
| none runs, one starts | `starting` |
| none runs or starts, one has failed | `failed` |
| all others | `draining`, else `sleeping`, else `stopped` |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from actors.bus.messages.problems import PROCESS, Problem
from actors.bus.messages.supervision import Runtime, WorkerRuntime
from actors.supervision.processes.lifecycle import State

_ORDER = (State.RUNNING, State.STARTING, State.FAILED, State.DRAINING, State.SLEEPING, State.STOPPED)


def combined(workers: Sequence[tuple[int, Runtime]]) -> Runtime:
    """Of all workers, by index. That of one alone is as it is."""
    if len(workers) == 1:
        return workers[0][1]
    state = next(each for each in _ORDER if any(runtime.state == each.value for _index, runtime in workers))
    deciding = [runtime for _index, runtime in workers if runtime.state == state.value]
    rows = tuple(
        WorkerRuntime(index, each.pid, each.state, each.since, each.restarts, each.error)
        for index, each in workers
        if each.state not in (State.STOPPED.value, State.SLEEPING.value)
    )
    first = deciding[0]
    return replace(
        first,
        since=min(each.since for each in deciding),
        restarts=sum(each.restarts for _index, each in workers),
        problems=_lost([runtime for _index, runtime in workers]) if state is State.RUNNING else first.problems,
        workers=rows,
    )


def _lost(workers: Sequence[Runtime]) -> tuple[Problem, ...]:
    """The problem that workers have died or can't be started, while others serve. Until it runs again it has an
    error."""
    lost = [each for each in workers if each.error is not None]
    if not lost:
        return ()
    wanted = [each for each in workers if each.state not in (State.DRAINING.value, State.SLEEPING.value)]
    runs = sum(each.state == State.RUNNING.value for each in wanted)
    detail = f"{runs} of {len(wanted)} workers run: {lost[0].error}"
    return (Problem(PROCESS, detail, min(each.since for each in lost)),)
