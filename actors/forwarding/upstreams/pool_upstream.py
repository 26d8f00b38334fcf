"""One upstream of a pool, as one proxy uses it: its state is shared by all processes (`actors.pools.slot`)."""

from __future__ import annotations

from actors.bus.messages.upstreams import UpstreamSpec
from actors.forwarding.upstream import DOWN, AnyUpstream
from actors.pools.slot import Slot

LEFT_ALONE = ("407", "429")
"""Kinds of failures after which an upstream is not tried even when there is no other."""


class PoolUpstream(AnyUpstream):
    """`pool` is the name of its pool. Uses are counted by this proxy, all else by all that use the pool."""

    def __init__(self, spec: UpstreamSpec, index: int, pool: str, slot: Slot, now: float) -> None:
        super().__init__(spec, index)
        self._made_at = now
        self.pool = pool
        self.slot = slot

    @property
    def state(self) -> str:
        """See `AnyUpstream`."""
        return self.slot.state

    @property
    def since(self) -> float:
        """See `AnyUpstream`; before anything is known, since this process has it."""
        return self.slot.health(0.0).since or self._made_at

    @property
    def failures(self) -> int:
        """Those since the last success that ended all cool-downs."""
        return self.slot.health(0.0).failures

    @property
    def failed_at(self) -> float:
        """See `AnyUpstream`."""
        return self.slot.failed_at

    @property
    def retry_at(self) -> float:
        """When ban and cool-downs are over."""
        return self.slot.ready_at

    @property
    def last_error(self) -> str | None:
        """See `AnyUpstream`."""
        return self.slot.health(0.0).last_error

    @property
    def latency(self) -> float | None:
        """See `AnyUpstream`."""
        return self.slot.latency

    @property
    def measured_at(self) -> float:
        """See `AnyUpstream`."""
        return self.slot.measured_at

    def eligible(self, now: float) -> bool:
        """Whether it may be used: not banned, in no cool-down, and if it is down in no trial."""
        return self.slot.eligible(now)

    def holds_sessions(self, now: float) -> bool:
        """See `AnyUpstream`."""
        return not self.slot.is_down and not self.slot.is_banned(now)

    def serves_sessions(self, now: float) -> bool:
        """See `AnyUpstream`."""
        return self.holds_sessions(now) and self.serves_as_last_resort(now)

    def why_not_eligible(self, now: float) -> str:
        """See `AnyUpstream`."""
        if self.eligible(now):
            return ""
        health = self.slot.health(now)
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
        """See `AnyUpstream`."""
        self.slot.begin_trial(now, longest)

    def doubt(self, now: float, longest: float) -> None:
        """See `AnyUpstream`."""
        self.slot.doubt(now, longest)

    def record_latency(self, now: float, latency: float) -> None:
        """See `AnyUpstream`."""
        self.slot.record_latency(now, latency)

    def succeeded(self, now: float) -> bool:
        """See `AnyUpstream`."""
        return self.slot.succeeded(now)

    def failed(self, now: float, cause: str) -> bool:
        """Record that it could not be reached, or failed behind that."""
        return self.slot.failed(now, "connect", "handshake" if self.reached_handshake else "unreachable", cause)

    def responded(self, now: float, kind: str, cause: str, retry_after: float) -> bool:
        """Record a status of its own that begins a cool-down: `407`, `429` or `5xx`. Returns True when it goes down."""
        error = "credentials" if kind == "407" else "status"
        return self.slot.failed(now, kind, error, cause, retry_after)

    def suspect(self, now: float, cause: str, target: float) -> bool:
        """See `AnyUpstream`."""
        return self.slot.suspect(now, cause, target)

    def __repr__(self) -> str:
        return f"<PoolUpstream {self.name} of {self.pool}: {self.slot!r}>"
