"""What the supervisor publishes of proxies and pools: events, which it logs, too (down, up, error, recovered), and the
names of proxies for the actors that know them by their ids (collector and telemetry).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from actors.bus.events import Forwarder, event_topic, new_event
from actors.bus.mailbox import MailboxRouter
from actors.bus.messages.common import METRICS, TELEMETRY, UPSTREAM_DOWN, UPSTREAMS_UNREACHABLE, Problem
from actors.bus.messages.specs import ProxySpec
from actors.bus.messages.supervision import SetProxyNames
from actors.supervision.processes.lifecycle import Lifecycle
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
