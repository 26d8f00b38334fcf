"""One upstream in the view of this actor: what is known of it (`actors.pools.slot`), and its uses by this proxy.

`actors.pools.state` says who else knows it.
"""

from __future__ import annotations

import hashlib
from typing import Final

from actors.bus.messages.specs import UpstreamSpec
from actors.pools.slot import UpstreamSlot, Uses, spans_of
from actors.pools.state import identity, number_of

UNKNOWN, UP, DOWN = "unknown", "up", "down"
BACK_OFF_MAX = 60.0
OWN_SPANS: Final = spans_of({"connect": (1.0, BACK_OFF_MAX)})
"""For how long one of the proxy itself is left alone after a failure."""
LEFT_ALONE = ("407", "429")
"""Kinds of failures after which an upstream is not tried even when there is no other."""


def target_mark(host: str) -> float:
    """What stands for a target in the state of upstreams, the same in all processes; names of one domain are one."""
    domain = host if ":" in host or host.rpartition(".")[2].isdigit() else ".".join(host.rsplit(".", 2)[-2:])
    return float(1 + int.from_bytes(hashlib.blake2b(domain.encode(), digest_size=6).digest(), "big"))


class Upstream:
    """One upstream as routes and balancing use it: its configuration, its uses by this proxy, and its state.

    `index` is its place in the list, `pool` the name of the pool that it is in, empty for one of the proxy itself.
    `now` is always the loop's clock.
    """

    def __init__(self, spec: UpstreamSpec, index: int, slot: UpstreamSlot, now: float, pool: str = "") -> None:
        self.spec = spec
        self.number = number_of(identity(spec))
        """Stands for it in all processes."""
        self.index = index
        self.slot = slot
        self.pool = pool
        self._made_at = now
        self.active = 0
        self.pending = 0
        """Attempts of clients that are under way, of which a slow upstream has many; they count as uses in
        balancing."""
        self._uses = Uses(0, 0, 0)
        """Of one in a pool, by this proxy: in its slot all proxies count."""
        self.reached = False
        """Whether the last attempt of this process got as far as the handshake."""

    @property
    def name(self) -> str:
        """As configured; for records, views and the log."""
        return self.spec.name

    @property
    def state(self) -> str:
        """`unknown`, `up` or `down`."""
        return self.slot.state

    @property
    def since(self) -> float:
        """Since when it is in that state; before anything is known, since this process has it."""
        return self.slot.since or self._made_at

    @property
    def failures(self) -> int:
        """How often it has failed: one in a pool since the last success that ended all cool-downs."""
        return self.slot.health(0.0).failures if self.pool else self.slot.failed_ever

    @property
    def uses(self) -> Uses:
        """What clients of this proxy have used."""
        return self._uses if self.pool else self.slot.uses

    @property
    def failed_at(self) -> float:
        """When it failed last; 0 if never."""
        return self.slot.failed_at

    @property
    def retry_at(self) -> float:
        """When ban and cool-downs are over, and while it is down its next trial is due."""
        return self.slot.ready_at

    @property
    def last_error(self) -> str | None:
        """Why it failed last; None when it has worked since."""
        return self.slot.last_error

    @property
    def latency(self) -> float | None:
        """Seconds that clients wait for it lately; None before the first measurement."""
        return self.slot.latency

    @property
    def measured_at(self) -> float:
        """When that was measured last."""
        return self.slot.measured_at

    @property
    def reached_handshake(self) -> bool:
        """Whether it failed behind its connection, which then proves nothing."""
        return self.slot.error not in ("", "unreachable", "no_file")

    @property
    def rejects_credentials(self) -> bool:
        """Whether its last failure was that it rejects our credentials."""
        return self.slot.error == "credentials"

    def eligible(self, now: float) -> bool:
        """Whether it may be used: not banned, in no cool-down, and if it is down in no trial."""
        return self.slot.eligible(now)

    def holds_sessions(self, now: float) -> bool:
        """Whether sessions stay at it: it is neither down nor banned."""
        return not self.slot.is_down and not self.slot.is_banned(now)

    def serves_sessions(self, now: float) -> bool:
        """Whether those that stay at it may use it, though it cools down: not when it wants to be left alone."""
        return self.holds_sessions(now) and self.serves_as_last_resort(now)

    def why_not_eligible(self, now: float) -> str:
        """Why it may not be used, empty if it may; for people."""
        if self.eligible(now):
            return ""
        health = self.slot.health(now)
        if not self.pool and health.cooldown:
            return f"down: {health.last_error}"
        if health.banned_until:
            return f"banned for {health.banned_until - now:.0f} s more"
        if health.cooldown:
            wait = health.cooldown_until - now
            return f"cools down after {health.cooldown} for {wait:.0f} s more: {health.last_error}"
        return "down, and a trial is under way" if health.state == DOWN else "its credentials are being checked"

    def serves_as_last_resort(self, now: float) -> bool:
        """Whether it may be tried when no other is left: never while it is banned, or wants to be left alone."""
        health = self.slot.health(now)
        return not health.banned_until and health.cooldown not in LEFT_ALONE

    def begin_trial(self, now: float, longest: float) -> None:
        """Record the beginning of an attempt. On an upstream that is down it is the trial, for `longest` seconds at
        most."""
        self.slot.begin_trial(now, longest)

    def doubt(self, now: float, longest: float) -> None:
        """Leave it out until it is known whether it works, for `longest` seconds at most."""
        self.slot.doubt(now, longest)

    def record_latency(self, now: float, latency: float) -> None:
        """Record that a client, or a check, has waited so many seconds for it: until there was a tunnel, or for the
        head of the response."""
        self.slot.record_latency(now, latency)

    def succeeded(self, now: float) -> bool:
        """Record a success. Returns True when it was down before."""
        return self.slot.succeeded(now)

    def failed(self, now: float, cause: str, rejects_credentials: bool = False) -> bool:
        """Record that it could not be reached, or failed behind that. Returns True when it goes down with that."""
        error = "credentials" if rejects_credentials else "handshake" if self.reached else "unreachable"
        return self.slot.failed(now, "connect", error, cause)

    def responded(self, now: float, kind: str, cause: str, retry_after: float) -> bool:
        """Record a status of its own that begins a cool-down: `407`, `429` or `5xx`. Returns True when it goes down."""
        error = "credentials" if kind == "407" else "status"
        return self.slot.failed(now, kind, error, cause, retry_after)

    def suspect(self, now: float, cause: str, target: float) -> bool:
        """Record a failure that may be the target's (`target_mark`).

        Returns True, and records nothing, when it is the upstream's after all: it is down, or it has failed with two
        other targets since its last success.
        """
        return self.slot.suspect(now, cause, target)

    def acquire(self) -> None:
        """Count a use by a client."""
        self.active += 1
        self._count_use(1, 0, 0)

    def release(self) -> None:
        """End a use."""
        self.active -= 1

    def count_bytes(self, bytes_in: int, bytes_out: int) -> None:
        """Add the bytes of a request or tunnel."""
        self._count_use(0, bytes_in, bytes_out)

    def _count_use(self, connections: int, bytes_in: int, bytes_out: int) -> None:
        self.slot.count_use(connections, bytes_in, bytes_out)
        if self.pool:
            before = self._uses
            self._uses = Uses(
                before.connections + connections, before.bytes_in + bytes_in, before.bytes_out + bytes_out
            )

    def reconfigure(self, spec: UpstreamSpec, index: int) -> None:
        """Take another configuration; one of the proxy itself that is down gets a trial at once."""
        if spec != self.spec and not self.pool and self.state == DOWN:
            self.slot.reset_cooldowns()
        self.spec, self.index = spec, index

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} of {self.pool or 'the proxy'}: {self.slot!r}>"
