"""When a process says that its proxy has no clients, and how it stops accepting, so that the proxy can sleep.

The supervisor decides whether it sleeps. The order is what no client may fall through
(`actors.supervision.proxies.sleepers`): the process accepts whatever waits, accepts no more, and replies; only then
does the supervisor watch the sockets. A client that has come by then is seen there, and the process goes on as if
nothing had been. What it knows and the next one should is in the live state (`actors.state`), which outlives it.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.bus.loop import Timer
from actors.forwarding.acceptor import Acceptor
from actors.forwarding.context import ForwardingContext

REPORTED_AGAIN = 30.0
"""Seconds until idleness is reported once more: the supervisor may have had something under way."""
DECIDED_WITHIN = 15.0
"""Seconds after which a process that was sent to sleep goes on by itself: neither `Resume` nor `Stop` has come."""
BUSY_AGAIN = 0.5
"""Seconds after which is looked again for what holds the process awake without being a connection."""


class Sleeper:
    """`report` is called when the process has been idle long enough."""

    def __init__(self, context: ForwardingContext, acceptor: Acceptor, report: Callable[[], None]) -> None:
        self._context = context
        self._loop = context.loop
        self._acceptor = acceptor
        self._report = report
        self._after = 0.0
        self._empty_since = self._loop.now
        self._timer: Timer | None = None
        self.asleep = False
        """True between `sleep` and `resume`."""

    def configure(self, after: float) -> None:
        """Report after so many seconds without a client; 0: never."""
        if after != self._after:
            self._after = after
            self._disarm()
            self._context.on_empty = self._emptied if after else None
            if after:
                self._arm(after)

    def sleep(self) -> bool:
        """Accept no more. False when there is a client."""
        if self.asleep:
            return True
        if self._is_busy() or not self._acceptor.listening:
            return False
        self._acceptor.accept_waiting()
        if self._is_busy():
            return False
        self._acceptor.pause()
        self._disarm()
        self.asleep = True
        self._timer = self._loop.call_later(DECIDED_WITHIN, self.resume)
        return True

    def resume(self) -> None:
        """Go on as if `sleep` had not been."""
        self.asleep = False
        self._acceptor.resume()
        self._disarm()
        if self._after:
            self._arm(self._after)

    def stop(self) -> None:
        """The process ends."""
        self._disarm()
        self._after = 0.0

    def _is_busy(self) -> bool:
        context = self._context
        return bool(context.connections or context.lingering or context.testers)

    def _emptied(self) -> None:
        self._empty_since = self._loop.now
        if self._timer is None:
            self._arm(self._after)

    def _check(self) -> None:
        self._timer = None
        left = self._empty_since + self._after - self._loop.now
        if self._context.connections:
            return  # the last one arms it again
        if self._is_busy():
            self._arm(BUSY_AGAIN)
        elif left > 0:
            self._arm(left)
        else:
            self._arm(REPORTED_AGAIN)
            self._report()

    def _arm(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._check)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __repr__(self) -> str:
        return f"<Sleeper after {self._after:.0f} s>"
