"""One parent as this actor knows it: up or down, and what it has done.

========= ============================================ =====================================================
state     what is known                                and then
========= ============================================ =====================================================
unknown   nothing yet; it is used as if it were up     a success: up; a failure: down
up        the last that was heard of it was good       a failure that is its own: down; so are three in a row
                                                       that may be
down      it failed; it is left alone until            at `retry_at` one use or check is let through (a trial):
          `retry_at`                                   a success: up; a failure: down for twice as long
========= ============================================ =====================================================
"""

from __future__ import annotations

from actors.bus.messages.upstreams import UpstreamSpec

BACK_OFF_FIRST = 1.0
BACK_OFF_MAX = 60.0
DOUBTS_MAX = 3
"""Failures in a row that may be the parent's, after which they are taken for its own."""
LATENCY_WEIGHT = 0.2
"""How much the newest measure counts in the running mean."""

Identity = tuple[str, str, int, str | None]

UNKNOWN, UP, DOWN = "unknown", "up", "down"


def identity(spec: UpstreamSpec) -> Identity:
    """What makes a parent the same one in a changed configuration."""
    return spec.protocol, spec.host, spec.port, spec.username


class Parent:
    """`now` is always the loop's clock; `index` is its place in the list."""

    def __init__(self, spec: UpstreamSpec, index: int, now: float) -> None:
        self.spec = spec
        self.index = index
        self.state = UNKNOWN
        self.since = now
        self.retry_at = 0.0
        self.failed_at = 0.0
        self.last_error: str | None = None
        self.active = 0
        self.coming = 0
        """Attempts of clients that are under way: they will be active, and a slow parent has many."""
        self.connections = 0
        self.failures = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.latency: float | None = None
        self.deep = False
        """Did the last attempt get as far as the handshake? Then more is needed than to reach it."""
        self.refuses_us = False
        """Did it fail last because it doesn't take our credentials?"""
        self._back_off = BACK_OFF_FIRST
        self._doubts = 0
        self._trial_until = 0.0

    @property
    def name(self) -> str:
        """What people see of it."""
        return self.spec.name

    def eligible(self, now: float) -> bool:
        """May it be used? After its back-off for one trial at a time."""
        return self.state != DOWN or (now >= self.retry_at and now >= self._trial_until)

    def tried(self, now: float, longest: float) -> None:
        """An attempt begins; one on a parent that is down is the trial, for at most `longest` seconds."""
        if self.state == DOWN:
            self._trial_until = now + longest

    def reached(self, latency: float | None, deep: bool) -> None:
        """An attempt is over: connecting took so many seconds, None if it failed; `deep`: the handshake had begun."""
        self.deep = deep
        if latency is None:
            return
        mean = self.latency
        self.latency = latency if mean is None else mean + LATENCY_WEIGHT * (latency - mean)

    def succeeded(self, now: float) -> bool:
        """It did what was asked. True when it was down before."""
        was_down = self.state == DOWN
        if self.state != UP:
            self.state, self.since = UP, now
        self._back_off, self._doubts, self._trial_until = BACK_OFF_FIRST, 0, 0.0
        return was_down

    def failed(self, now: float, said: str) -> bool:
        """It failed by its own fault. True when it goes down with that."""
        self.failures += 1
        self.last_error, self.failed_at = said, now
        went_down = self.state != DOWN
        if went_down:
            self.state, self.since = DOWN, now
        elif now < self.retry_at and now >= self._trial_until:
            return False  # others failed at the same time: that is one failure, not many
        self.retry_at = now + self._back_off
        self._back_off = min(2 * self._back_off, BACK_OFF_MAX)
        self._trial_until = 0.0
        return went_down

    def doubted(self, now: float, said: str) -> bool:
        """It failed, and perhaps not by its own fault. True when it goes down with that."""
        self._doubts += 1
        if self.state == DOWN or self._doubts >= DOUBTS_MAX:
            return self.failed(now, said)
        self.failures += 1
        self.last_error, self.failed_at = said, now
        return False

    def taken(self) -> None:
        """A client uses it."""
        self.active += 1
        self.connections += 1

    def left(self) -> None:
        """That use is over."""
        self.active -= 1

    def moved(self, bytes_in: int, bytes_out: int) -> None:
        """A request or tunnel of this size went through it."""
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out

    def renewed(self, spec: UpstreamSpec, index: int) -> None:
        """The configuration has changed; a changed password or certificate deserves a new trial."""
        if spec != self.spec and self.state == DOWN:
            self.retry_at, self._back_off = 0.0, BACK_OFF_FIRST
        self.spec, self.index = spec, index

    def __repr__(self) -> str:
        return f"<Parent {self.name} {self.state}, {self.active} active, {self.failures} failures>"
