"""The problems that actors report of themselves: stored, compared with what is known, and which of them are published.

A report belongs to one process. What counts are those of the processes that serve: of an actor one, of a proxy with
several workers as many, whose problems are united by reason and subject. Until a new process has made its first report,
what was published before counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from actors.bus.mailbox import Reply
from actors.bus.messages.common import Problem, ReportProblems, forwarding_name
from actors.bus.messages.supervision import Runtime
from actors.supervision.processes.lifecycle import ActorState
from actors.supervision.processes.managed_actor import ManagedActor
from actors.supervision.proxy_events import ProxyEventPublisher

_Key = tuple[str, str]
REPLACED = "a new process serves without it"
"""How a problem ended that the next process does not have."""


class ProblemBook:
    """The last reports, by name of the actor."""

    def __init__(self) -> None:
        self._reports: dict[str, dict[int, ReportProblems]] = {}
        self._published: dict[str, dict[_Key, Problem]] = {}

    def put(self, name: str, report: ReportProblems) -> None:
        """Store a report of a process of `name`."""
        self._reports.setdefault(name, {})[report.instance] = report

    def forget(self, name: str) -> None:
        """The actor is not to run any more."""
        self._reports.pop(name, None)
        self._published.pop(name, None)

    def changes(
        self, name: str, instances: Collection[int], others: Iterable[Problem] = ()
    ) -> tuple[list[Problem], list[Problem]]:
        """What has begun and what is over since the last call, by the reports of the processes that serve.

        `others` are problems that the supervisor itself has found. Nothing is over before each has reported. Reports of
        older processes are dropped.
        """
        reports, before = self._reports.get(name, {}), self._published.get(name, {})
        known = [reports[each] for each in instances if each in reports]
        if not instances:
            return [], []
        now = {**_united(known), **{_key(each): each for each in others}}
        how = {_key(each): each.detail for report in known for each in report.over}
        if len(known) < len(instances):
            now = {**before, **now}
        else:
            self._reports[name] = {each: reports[each] for each in instances}
        in_order = [*(key for key in how if key in before), *(key for key in before if key not in how)]
        over = [replace(before[key], detail=how.get(key, REPLACED)) for key in in_order if key not in now]
        self._published[name] = now
        return [each for key, each in now.items() if key not in before], over

    def certificate_ends(self, name: str) -> float:
        """Of a proxy that sleeps; what else was wrong is judged again when it is awake."""
        return _first_end(self._reports[name].values()) if name in self._reports else 0.0

    def applied(self, name: str, instances: Collection[int], runtime: Runtime) -> Runtime:
        """`runtime` of the actor, `degraded` when it runs and has problems."""
        if runtime.state != "running":
            return runtime
        reports = self._reports.get(name, {})
        oldest = sorted(reports)[:1]
        known = [reports[each] for each in instances if each in reports] or [reports[each] for each in oldest]
        problems = (*runtime.problems, *_united(known).values())
        ends = _first_end(known)
        if not problems:
            return replace(runtime, certificate_ends=ends) if ends else runtime
        return replace(
            runtime,
            state="degraded",
            error="; ".join(each.detail for each in problems),
            problems=problems,
            certificate_ends=ends,
        )


def _first_end(reports: Iterable[ReportProblems]) -> float:
    return min((each.certificate_ends for each in reports if each.certificate_ends), default=0.0)


def _united(reports: Iterable[ReportProblems]) -> dict[_Key, Problem]:
    """By key, the problems of all processes, each as the process reports it that has had it for longest."""
    found: dict[_Key, Problem] = {}
    for problem in (each for report in reports for each in report.problems):
        known = found.get(_key(problem))
        if known is None or problem.since < known.since:
            found[_key(problem)] = problem
    return found


def _key(problem: Problem) -> _Key:
    return problem.reason, problem.subject


class ProblemReports:
    """`by_name` returns the actors with a name on the bus, `label` what logs call them."""

    def __init__(
        self, events: ProxyEventPublisher, by_name: Callable[[str], Sequence[ManagedActor]], label: Callable[[str], str]
    ) -> None:
        self.book = ProblemBook()
        self.own: Callable[[str], Iterable[Problem]] = lambda _proxy_id: ()
        """Returns the problems of a proxy that the supervisor itself has found."""
        self._events = events
        self._by_name = by_name
        self._label = label

    def received(self, sender: str, message: ReportProblems, _reply: Reply) -> None:
        """A process has reported. Those that drain don't count."""
        accepting = [each for each in self._by_name(sender) if each.life.state is not ActorState.DRAINING]
        if accepting:
            self.book.put(sender, message)
            self.publish(accepting[0])

    def publish(self, actor: ManagedActor) -> None:
        """Publish what has begun and what is over of an actor, of which another process may serve now."""
        serving = [each.serving for each in self._by_name(actor.name) if each.serving is not None]
        proxy_id = actor.worker.proxy_id
        begun, over = self.book.changes(actor.name, serving, self.own(proxy_id))
        self._events.problems(self._label(actor.name), proxy_id, begun, over)

    def forget_proxy(self, proxy_id: str) -> None:
        """It is not to run any more."""
        self.book.forget(forwarding_name(proxy_id))
        self._events.forget(proxy_id)

    def forget(self, name: str) -> None:
        """The actor of this name, which is no proxy's, is not to run any more."""
        self.book.forget(name)
        self._events.forget(name)
