"""What the supervisor publishes of proxies and pools: events, which it logs, too (down, up, error, recovered), and the
names of proxies for the actors that know them by their ids (collector and telemetry). And the problems that actors
report of themselves: stored, compared with what is known, and which of them are published.

A report belongs to one process. What counts are those of the processes that serve: of an actor one, of a proxy with
several workers as many, whose problems are united by reason and subject. Until a new process has made its first report,
what was published before counts.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from actors.bus.events import Forwarder, event_topic, new_event
from actors.bus.mailbox import MailboxRouter, Reply
from actors.bus.messages.common import (
    METRICS,
    TELEMETRY,
    UPSTREAM_DOWN,
    UPSTREAMS_UNREACHABLE,
    Problem,
    ReportProblems,
    forwarding_name,
)
from actors.bus.messages.specs import ProxySpec
from actors.bus.messages.supervision import Runtime, SetProxyNames
from actors.supervision.lifecycle import ActorState, Lifecycle
from actors.supervision.processes.managed_actor import ManagedActor
from config.model.subscriptions import checked

log = logging.getLogger(__name__)


SUBJECTS_MAX = 10
SUBJECTS_WITHIN = 60.0
"""Problems with parts of one proxy that are published within so many seconds: it may have hundreds."""
_OF_POOLS = {UPSTREAM_DOWN: "upstream", UPSTREAMS_UNREACHABLE: "pool"}
"""What is down, by the reason of a problem of a pool."""


class ProxyEventPublisher:
    """`spec_of` returns a proxy by its id, None for one that is gone. `clock` is monotonic."""

    def __init__(
        self, events: Forwarder, spec_of: Callable[[str], ProxySpec | None], clock: Callable[[], float]
    ) -> None:
        self._events = events
        self._spec_of = spec_of
        self._clock = clock
        self._down: set[str] = set()
        self._published: dict[str, set[tuple[str, str]]] = {}
        self._subjects: dict[str, deque[float]] = {}

    def down(self, proxy_id: str, life: Lifecycle) -> None:
        """It should run and doesn't: published once until it is up again."""
        if proxy_id not in self._down:
            self._down.add(proxy_id)
            self._publish("proxy.down", proxy_id, error=life.error or "", restarts=life.restarts)

    def up(self, proxy_id: str, life: Lifecycle) -> None:
        """It runs: published if it was down."""
        if proxy_id in self._down:
            self._down.discard(proxy_id)
            self._publish("proxy.up", proxy_id, restarts=life.restarts)

    def forget(self, proxy_id: str) -> None:
        """It is not to run any more, so it is neither down nor degraded."""
        self._down.discard(proxy_id)
        self._published.pop(proxy_id, None)
        self._subjects.pop(proxy_id, None)

    def problems(self, label: str, proxy_id: str, begun: Iterable[Problem], over: Iterable[Problem]) -> None:
        """Problems of an actor that have begun, and that are over; `proxy_id` is empty unless it is a forwarding
        actor."""
        published = self._published.setdefault(proxy_id or label, set())
        for problem in over:
            if (problem.reason, problem.subject) in published:
                published.discard((problem.reason, problem.subject))
                log.info("%s: %s", label, problem.detail)
                self._publish_problem(proxy_id, problem, over=True)
        for problem in begun:
            if not problem.subject or self._may_publish(proxy_id):
                published.add((problem.reason, problem.subject))
                log.log(logging.WARNING if problem.serves else logging.ERROR, "%s: %s", label, problem.detail)
                self._publish_problem(proxy_id, problem, over=False)

    def _may_publish(self, proxy_id: str) -> bool:
        now, moments = self._clock(), self._subjects.setdefault(proxy_id, deque(maxlen=SUBJECTS_MAX))
        if len(moments) == SUBJECTS_MAX and now - moments[0] <= SUBJECTS_WITHIN:
            return False
        moments.append(now)
        return True

    def _publish_problem(self, proxy_id: str, problem: Problem, over: bool) -> None:
        if self._spec_of(proxy_id) is not None:
            about = {"upstream": problem.subject} if problem.subject else {}
            kind = "proxy.recovered" if over else "proxy.error"
            self._publish(kind, proxy_id, error=problem.reason, detail=problem.detail, **about)
        elif not proxy_id and problem.reason in _OF_POOLS:
            pool, _, upstream = problem.subject.partition("/")
            about = {"pool": pool, "detail": problem.detail, **({"upstream": upstream} if upstream else {})}
            self._send(f"{_OF_POOLS[problem.reason]}.{'up' if over else 'down'}", about)

    def _publish(self, kind: str, proxy_id: str, **data: Any) -> None:
        spec = self._spec_of(proxy_id)
        about = {"name": "", "port": None} if spec is None else {"name": spec.name, "port": spec.port}
        self._send(kind, {"proxy_id": proxy_id, **about, **data})

    def _send(self, kind: str, data: dict[str, Any]) -> None:
        event = new_event(kind, checked(kind, data))
        self._events.publish(event_topic(event), event)


RECEIVERS = (METRICS, TELEMETRY)


class ProxyNamePublisher:
    """`receivers` are the names of the actors that run; those among `RECEIVERS` get the names of proxies."""

    def __init__(self, router: MailboxRouter, receivers: Iterable[str]) -> None:
        self._router = router
        self._receivers = [name for name in RECEIVERS if name in receivers]

    def started(self, actor: str, specs: Mapping[str, ProxySpec]) -> None:
        """`actor` runs; a receiver gets all names."""
        if actor in self._receivers:
            self._router.tell(actor, SetProxyNames(_names(specs)))

    def changed(self, before: Mapping[str, ProxySpec], after: Mapping[str, ProxySpec]) -> None:
        """Send what differs between two states of the same proxies."""
        known, names = _names(before), _names(after)
        new = {proxy_id: name for proxy_id, name in names.items() if known.get(proxy_id) != name}
        gone = tuple(known.keys() - names.keys())
        if new or gone:
            for receiver in self._receivers:
                self._router.tell(receiver, SetProxyNames(new, gone))


def _names(specs: Mapping[str, ProxySpec]) -> dict[str, tuple[str, int]]:
    return {proxy_id: (spec.name, spec.port) for proxy_id, spec in specs.items()}


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
