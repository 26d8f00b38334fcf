"""How several workers of a proxy share one listening socket evenly, without a message.

The kernel wakes one idle process for a new connection (`EPOLLEXCLUSIVE`): the one that has watched the socket for
longest, again and again. So a worker that has accepted

- watches the socket anew, which makes it the last in the kernel's order;
- leaves it to the others for a moment while it has many more connections than they. It has accepted first: the
  wake-up that it got was no other's.

If it still finds clients waiting after that moment, the others are busy or stopped: it accepts more of them each time.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Final

from actors.bus.loop import Loop

AT_ONCE: Final = 4
"""Connections that one worker accepts before it is another's turn."""
LEAVE: Final = 0.001
"""Seconds for which a worker leaves new clients to the others: less than it takes to serve those that it has more. With
short connections it is the other one that has more by then, and both would leave."""
ABOVE_MEAN: Final = 1.25
ABOVE_BY: Final = 4
"""A worker leaves clients to the others while it has so many times the mean of connections and so many more."""

ALONE: Final = select.EPOLLIN
SHARED: Final = select.EPOLLIN | select.EPOLLEXCLUSIVE


class AcceptTurns:
    """`most` is how many connections are accepted at once when there is no other worker.

    `mask` is what the listening socket is watched with.
    """

    def __init__(self, loop: Loop, most: int) -> None:
        self._loop = loop
        self._most = most
        self.shared = False
        """Whether there are other workers."""
        self.at_once = most
        """Connections to accept before the other workers have their turn."""

    @property
    def mask(self) -> int:
        """What the listening socket is watched with."""
        return SHARED if self.shared else ALONE

    def share(self, shared: bool) -> None:
        """There are other workers from now on, or none."""
        self.shared = shared
        self.at_once = AT_ONCE if shared else self._most

    def accepted(
        self, fd: int, watch: Callable[[], None], emptied: bool, own: int, everywhere: tuple[int, int]
    ) -> None:
        """Give the others their turn at the socket `fd`, which `watch` watches again.

        `emptied`: no client waits there any more. `own` connections are open here, `everywhere` the connections of all
        workers and the number of these.
        """
        self._loop.unwatch(fd)
        connections, workers = everywhere
        if emptied:
            self.at_once = AT_ONCE
        if workers > 1 and own > ABOVE_MEAN * connections / workers + ABOVE_BY:
            self._loop.call_later(LEAVE, lambda: self._return(watch))
        else:
            self.at_once = AT_ONCE
            watch()

    def _return(self, watch: Callable[[], None]) -> None:
        self.at_once = min(2 * self.at_once, self._most)
        watch()
