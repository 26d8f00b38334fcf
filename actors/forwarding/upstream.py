"""One upstream in the view of this actor: its state, and its counters.

========= ============================================ =====================================================
state     what is known                                and then
========= ============================================ =====================================================
unknown   nothing yet; it is used as if it were up     a success: up; a failure: down
up        its last use or check has succeeded          a failure of its own: down; so are three ambiguous
                                                       ones in a row
down      it has failed; it is not used before         at `retry_at` one use or check is made (a trial):
          `retry_at`                                   a success: up; a failure: down for twice as long
========= ============================================ =====================================================
"""

from __future__ import annotations

from actors.bus.messages.upstreams import UpstreamSpec

BACK_OFF_FIRST = 1.0
BACK_OFF_MAX = 60.0
AMBIGUOUS_MAX = 3
"""Ambiguous failures in a row that count as one of its own."""
LATENCY_WEIGHT = 0.2
"""Weight of the newest measurement in the running mean."""

Identity = tuple[str, str, int, str | None]

UNKNOWN, UP, DOWN = "unknown", "up", "down"


def identity(spec: UpstreamSpec) -> Identity:
    """The fields by which an upstream of a changed configuration is the same one."""
    return spec.protocol, spec.host, spec.port, spec.username


class Upstream:
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
        self.pending = 0
        """Attempts of clients that are under way, of which a slow upstream has many; they count as uses in
        balancing."""
        self.connections = 0
        self.failures = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.latency: float | None = None
        self.reached_handshake = False
        """Whether the last attempt got as far as the handshake: a mere connection then proves nothing."""
        self.rejects_credentials = False
        """Whether its last failure was that it rejects our credentials."""
        self._back_off = BACK_OFF_FIRST
        self._ambiguous = 0
        self._trial_until = 0.0
        self._doubted_until = 0.0

    @property
    def name(self) -> str:
        """As configured; for records, views and the log."""
        return self.spec.name

    def eligible(self, now: float) -> bool:
        """Whether it may be used; after its back-off for one trial at a time."""
        if now < self._doubted_until:
            return False
        return self.state != DOWN or (now >= self.retry_at and now >= self._trial_until)

    def begin_trial(self, now: float, longest: float) -> None:
        """Record the beginning of an attempt. On an upstream that is down it is the trial, for `longest` seconds at
        most."""
        if self.state == DOWN:
            self._trial_until = now + longest

    def doubt(self, now: float, longest: float) -> None:
        """Leave it out until it is known whether it works, for `longest` seconds at most."""
        self._doubted_until = now + longest

    def record_latency(self, latency: float | None, reached_handshake: bool) -> None:
        """Record that connecting took so many seconds, None if it failed, and whether the handshake had begun."""
        self.reached_handshake = reached_handshake
        if latency is None:
            return
        mean = self.latency
        self.latency = latency if mean is None else mean + LATENCY_WEIGHT * (latency - mean)

    def succeeded(self, now: float) -> bool:
        """Record a success. Returns True when it was down before."""
        was_down = self.state == DOWN
        if self.state != UP:
            self.state, self.since = UP, now
        self._back_off, self._ambiguous, self._trial_until, self._doubted_until = BACK_OFF_FIRST, 0, 0.0, 0.0
        return was_down

    def failed(self, now: float, cause: str) -> bool:
        """Record a failure of its own. Returns True when it goes down with that."""
        self.failures += 1
        self.last_error, self.failed_at = cause, now
        went_down = self.state != DOWN
        if went_down:
            self.state, self.since = DOWN, now
        elif now < self.retry_at and now >= self._trial_until:
            return False  # several attempts failed at the same time: that is one failure, not many
        self.retry_at = now + self._back_off
        self._back_off = min(2 * self._back_off, BACK_OFF_MAX)
        self._trial_until = 0.0
        return went_down

    def record_ambiguous_failure(self, now: float, cause: str) -> bool:
        """Record a failure that may not be its own. Returns True when it goes down with that."""
        self._ambiguous += 1
        if self.state == DOWN or self._ambiguous >= AMBIGUOUS_MAX:
            return self.failed(now, cause)
        self.failures += 1
        self.last_error, self.failed_at = cause, now
        return False

    def acquire(self) -> None:
        """Count a use by a client."""
        self.active += 1
        self.connections += 1

    def release(self) -> None:
        """End a use."""
        self.active -= 1

    def count_bytes(self, bytes_in: int, bytes_out: int) -> None:
        """Add the bytes of a request or tunnel."""
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out

    def reconfigure(self, spec: UpstreamSpec, index: int) -> None:
        """Take another configuration; a changed password or certificate gets a trial at once."""
        if spec != self.spec and self.state == DOWN:
            self.retry_at, self._back_off = 0.0, BACK_OFF_FIRST
        self.spec, self.index = spec, index

    def __repr__(self) -> str:
        return f"<Upstream {self.name} {self.state}, {self.active} active, {self.failures} failures>"
