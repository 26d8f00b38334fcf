"""What actors report of their problems: stored, compared with what is known, and published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from actors.bus.mailbox import Reply
from actors.bus.messages.common import forwarding_name
from actors.bus.messages.problems import Problem, ReportProblems
from actors.supervision.problems import ProblemBook
from actors.supervision.processes.lifecycle import State
from actors.supervision.processes.managed_actor import ManagedActor
from actors.supervision.proxy_events import ProxyEventPublisher


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
        accepting = [each for each in self._by_name(sender) if each.life.state is not State.DRAINING]
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
