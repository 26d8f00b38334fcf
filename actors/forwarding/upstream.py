"""One upstream in the view of this actor: its state, and its counters.

========= ============================================ =====================================================
state     what is known                                and then
========= ============================================ =====================================================
unknown   nothing yet; it is used as if it were up     a success: up; a failure: down
up        its last use or check has succeeded          a failure of its own: down; so are ambiguous
                                                       ones for three targets in a row
down      it has failed; it is not used before         at `retry_at` one use or check is made (a trial):
          `retry_at`                                   a success: up; a failure: down for twice as long
========= ============================================ =====================================================
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass

from actors.bus.messages.specs import UpstreamSpec

BACK_OFF_FIRST = 1.0
BACK_OFF_MAX = 60.0
TARGETS_MAX = 3
"""Ambiguous failures for so many targets in a row count as one of its own."""
LATENCY_WEIGHT = 0.2
"""Weight of the newest measurement in the running mean."""

Identity = tuple[str, str, int, str | None]

UNKNOWN, UP, DOWN = "unknown", "up", "down"


def identity(spec: UpstreamSpec) -> Identity:
    """The fields by which an upstream of a changed configuration is the same one."""
    return spec.protocol, spec.host, spec.port, spec.username


def target_mark(host: str) -> float:
    """What stands for a target in the state of upstreams, the same in all processes; names of one domain are one."""
    domain = host if ":" in host or host.rpartition(".")[2].isdigit() else ".".join(host.rsplit(".", 2)[-2:])
    return float(1 + int.from_bytes(hashlib.blake2b(domain.encode(), digest_size=6).digest(), "big"))


@dataclass(frozen=True, slots=True)
class KeptUpstream:
    """What is known of an upstream, for a process that comes after this one."""

    identity: Identity
    state: str
    since: float
    retry_at: float
    failed_at: float
    failures: int
    last_error: str | None
    latency: float | None
    back_off: float
    targets: tuple[float, ...]
    connections: int
    bytes_in: int
    bytes_out: int


class AnyUpstream(ABC):
    """One upstream as routes and balancing use it: its configuration, its uses by this proxy, and its state.

    `index` is its place in the list, `pool` the name of the pool that it is in, empty for one of the proxy itself.
    `now` is always the loop's clock.
    """

    pool = ""

    def __init__(self, spec: UpstreamSpec, index: int) -> None:
        self.spec = spec
        self.index = index
        self.active = 0
        self.pending = 0
        """Attempts of clients that are under way, of which a slow upstream has many; they count as uses in
        balancing."""
        self.connections = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.reached_handshake = False
        """Whether the last attempt got as far as the handshake: a mere connection then proves nothing."""
        self.rejects_credentials = False
        """Whether its last failure was that it rejects our credentials."""

    @property
    def name(self) -> str:
        """As configured; for records, views and the log."""
        return self.spec.name

    @property
    @abstractmethod
    def state(self) -> str:
        """`unknown`, `up` or `down`."""

    @property
    @abstractmethod
    def since(self) -> float:
        """Since when it is in that state."""

    @property
    @abstractmethod
    def failures(self) -> int:
        """How often it has failed."""

    @property
    @abstractmethod
    def failed_at(self) -> float:
        """When it failed last; 0 if never."""

    @property
    @abstractmethod
    def retry_at(self) -> float:
        """When its next trial is due, while it is down."""

    @property
    @abstractmethod
    def last_error(self) -> str | None:
        """Why it failed last; None when it has worked since."""

    @property
    @abstractmethod
    def latency(self) -> float | None:
        """Seconds that clients wait for it lately; None before the first measurement."""

    @property
    @abstractmethod
    def measured_at(self) -> float:
        """When that was measured last."""

    @abstractmethod
    def eligible(self, now: float) -> bool:
        """Whether it may be used."""

    @abstractmethod
    def holds_sessions(self, now: float) -> bool:
        """Whether sessions stay at it: it is neither down nor banned."""

    @abstractmethod
    def serves_sessions(self, now: float) -> bool:
        """Whether those that stay at it may use it, though it cools down: not when it wants to be left alone."""

    @abstractmethod
    def why_not_eligible(self, now: float) -> str:
        """Why it may not be used, empty if it may; for people."""

    @abstractmethod
    def begin_trial(self, now: float, longest: float) -> None:
        """Record the beginning of an attempt. On an upstream that is down it is the trial, for `longest` seconds at
        most."""

    @abstractmethod
    def doubt(self, now: float, longest: float) -> None:
        """Leave it out until it is known whether it works, for `longest` seconds at most."""

    @abstractmethod
    def record_latency(self, now: float, latency: float) -> None:
        """Record that a client, or a check, has waited so many seconds for it: until there was a tunnel, or for the
        head of the response."""

    @abstractmethod
    def succeeded(self, now: float) -> bool:
        """Record a success. Returns True when it was down before."""

    @abstractmethod
    def failed(self, now: float, cause: str) -> bool:
        """Record a failure of its own. Returns True when it goes down with that."""

    @abstractmethod
    def suspect(self, now: float, cause: str, target: float) -> bool:
        """Record a failure that may be the target's (`target_mark`).

        Returns True, and records nothing, when it is the upstream's after all: it is down, or it has failed with two
        other targets since its last success.
        """

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
        """Take another configuration."""
        self.spec, self.index = spec, index


class Upstream(AnyUpstream):
    """One of the proxy itself: its state is that of this process."""

    state: str = UNKNOWN
    since: float = 0.0
    retry_at: float = 0.0
    failed_at: float = 0.0
    failures: int = 0
    last_error: str | None = None
    latency: float | None = None
    measured_at: float = 0.0

    def __init__(self, spec: UpstreamSpec, index: int, now: float) -> None:
        super().__init__(spec, index)
        self.since = now
        self._back_off = BACK_OFF_FIRST
        self._targets: tuple[float, ...] = ()
        """With which it has failed since its last success: two at most."""
        self._trial_until = 0.0
        self._doubted_until = 0.0

    def eligible(self, now: float) -> bool:
        """Whether it may be used; after its back-off for one trial at a time."""
        if now < self._doubted_until:
            return False
        return self.state != DOWN or (now >= self.retry_at and now >= self._trial_until)

    def holds_sessions(self, _now: float) -> bool:
        """See `AnyUpstream`."""
        return self.state != DOWN

    def serves_sessions(self, now: float) -> bool:
        """See `AnyUpstream`."""
        return self.holds_sessions(now)

    def why_not_eligible(self, now: float) -> str:
        """See `AnyUpstream`."""
        if self.eligible(now):
            return ""
        if self.state != DOWN:
            return "its credentials are being checked"
        return f"down: {self.last_error}" if now < self.retry_at else "down, and a trial is under way"

    def begin_trial(self, now: float, longest: float) -> None:
        """Record the beginning of an attempt. On an upstream that is down it is the trial, for `longest` seconds at
        most."""
        if self.state == DOWN:
            self._trial_until = now + longest

    def doubt(self, now: float, longest: float) -> None:
        """Leave it out until it is known whether it works, for `longest` seconds at most."""
        self._doubted_until = now + longest

    def record_latency(self, now: float, latency: float) -> None:
        """See `AnyUpstream`."""
        mean, self.measured_at = self.latency, now
        self.latency = latency if mean is None else mean + LATENCY_WEIGHT * (latency - mean)

    def succeeded(self, now: float) -> bool:
        """Record a success. Returns True when it was down before."""
        was_down = self.state == DOWN
        if self.state != UP:
            self.state, self.since = UP, now
        self.last_error = None
        self._back_off, self._targets, self._trial_until, self._doubted_until = BACK_OFF_FIRST, (), 0.0, 0.0
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

    def suspect(self, now: float, cause: str, target: float) -> bool:
        """See `AnyUpstream`."""
        known = {*self._targets, target}
        if self.state == DOWN or len(known) == TARGETS_MAX:
            return True
        self._targets = tuple(known)
        self.failures += 1
        self.last_error, self.failed_at = cause, now
        return False

    def reconfigure(self, spec: UpstreamSpec, index: int) -> None:
        """Take another configuration; a changed password or certificate gets a trial at once."""
        if spec != self.spec and self.state == DOWN:
            self.retry_at, self._back_off = 0.0, BACK_OFF_FIRST
        super().reconfigure(spec, index)

    def kept(self) -> KeptUpstream:
        """What is known of it."""
        return KeptUpstream(
            identity(self.spec),
            self.state,
            self.since,
            self.retry_at,
            self.failed_at,
            self.failures,
            self.last_error,
            self.latency,
            self._back_off,
            self._targets,
            self.connections,
            self.bytes_in,
            self.bytes_out,
        )

    def add(self, kept: KeptUpstream) -> None:
        """Take over what another process has known; its uses add up."""
        if self.state == UNKNOWN or kept.since > self.since:
            self.state, self.since, self.retry_at = kept.state, kept.since, kept.retry_at
            self.failed_at, self.last_error, self.latency = kept.failed_at, kept.last_error, kept.latency
            self._back_off, self._targets = kept.back_off, kept.targets
        self.failures += kept.failures
        self.connections += kept.connections
        self.bytes_in += kept.bytes_in
        self.bytes_out += kept.bytes_out

    def __repr__(self) -> str:
        return f"<Upstream {self.name} {self.state}, {self.active} active, {self.failures} failures>"
