"""A body that is moved from one side of an exchange to the other, because no byte of it is the session's business.

A client connection has at most one relay in each direction, each for as long as one body takes. A relay follows the
connection's rule of back-pressure: it stands still while bytes for its destination wait in the connection.
"""

from __future__ import annotations

from typing import Protocol

from actors.forwarding.context import ForwardingContext
from actors.forwarding.limits.throttle import Throttle
from actors.forwarding.net.splice import COMPLETE, EMPTY, ENDED, THROTTLED, YIELDED, AnyFlow, PipesExhausted


class RelayOwner(Protocol):
    """The client connection, as far as a relay needs it."""

    context: ForwardingContext

    def pump(self) -> None:
        """Do all that can be done, the relay among it."""

    def body_moved(self, relay: BodyRelay, count: int, ended: bool) -> None:
        """Bytes were moved; `ended`: the source has ended. The relay may be `over` with that."""

    def body_broke(self, relay: BodyRelay, at_source: bool) -> None:
        """The connection on one side of the relay is broken."""


class BodyRelay:
    """One body on its way."""

    __slots__ = ("_flow", "_owner", "over")

    def __init__(self, owner: RelayOwner, flow: AnyFlow) -> None:
        self._owner = owner
        self._flow = flow
        self.over = False
        """True when all of the body is moved."""

    def pump(self) -> None:
        """Move what can be moved now."""
        owner, flow = self._owner, self._flow
        before = flow.moved
        try:
            progress = flow.pump()
        except PipesExhausted:
            owner.context.wait_for_pipes(owner.pump)
            return
        except OSError:
            owner.body_broke(self, at_source=flow.progress is EMPTY)
            return
        ended = progress is ENDED
        self.over = ended or progress is COMPLETE
        if progress is YIELDED:
            owner.context.loop.call_soon(owner.pump)
        elif progress is THROTTLED and flow.throttle is not None:
            flow.throttle.wait(owner.pump)
        owner.body_moved(self, flow.moved - before, ended)

    def limit(self, throttle: Throttle) -> None:
        """Move the rest by this throttle."""
        self._flow.throttle = throttle

    def abort(self) -> None:
        """Discard what is under way."""
        self._flow.abort()

    def __repr__(self) -> str:
        return f"<BodyRelay {self._flow!r}>"
