"""The upstreams of a pool, as one proxy uses them: what it learns of them holds for all proxies, and the reverse.

It makes no checks of its own but after a 407 in absolute-form, which an origin may have sent.

The state of each upstream is shared by all processes (`actors.pools.slot`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from actors.bus.messages.specs import EgressSpec, PoolSpec, UpstreamSpec
from actors.forwarding.access.username_parameters import Parameters
from actors.forwarding.protocols.failures import CREDENTIALS_REJECTED, Failure
from actors.forwarding.upstream import DOWN, AnyUpstream, target_mark
from actors.forwarding.upstreams.handshake import Blame, UpstreamFailed
from actors.forwarding.upstreams.route import NONE_LEFT, Wanted
from actors.forwarding.upstreams.upstream_set import UpstreamContext, UpstreamSet
from actors.pools.slot import UpstreamSlot
from actors.pools.state import SharedPoolState, pool_state

LEFT_ALONE = ("407", "429")
"""Kinds of failures after which an upstream is not tried even when there is no other."""


class SharedUpstream(AnyUpstream):
    """`pool` is the name of its pool. Uses are counted by this proxy, all else by all that use the pool."""

    def __init__(self, spec: UpstreamSpec, index: int, pool: str, slot: UpstreamSlot, now: float) -> None:
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
        return f"<SharedUpstream {self.name} of {self.pool}: {self.slot!r}>"


class PoolUpstreamSet(UpstreamSet):
    """As `UpstreamSet`, by what the pool says."""

    def __init__(
        self,
        context: UpstreamContext,
        pool: PoolSpec,
        previous: UpstreamSet | None,
        egress: EgressSpec,
        folder: Path,
    ) -> None:
        """`folder` is where the states of pools are (`RunDir.pools`)."""
        self._pool = pool
        self._state: SharedPoolState = pool_state(folder, pool)
        super().__init__(context, replace(pool.upstreams, check_enabled=False), previous, egress, pool.name)
        self.attempts = pool.attempts

    def _member(self, spec: UpstreamSpec, index: int, known: AnyUpstream | None) -> AnyUpstream:
        slot = self._state.slots[index]
        if not isinstance(known, SharedUpstream):
            return SharedUpstream(spec, index, self._pool.name, slot, self.loop.now)
        known.slot = slot
        return known

    def choose(self, wanted: Wanted, tried: Sequence[AnyUpstream]) -> AnyUpstream | None:
        """See `Routing`."""
        self._state.refresh()
        return super().choose(wanted, tried)

    def longest_failed(self, wanted: Wanted, tried: Sequence[AnyUpstream]) -> AnyUpstream | None:
        """As of a proxy, but none that is banned or wants to be left alone."""
        if self.stays(wanted):
            return None
        now = self.loop.now
        left = [
            each
            for each in self.members
            if isinstance(each, SharedUpstream) and each not in tried and wanted.matches(each)
            if each.serves_as_last_resort(now)
        ]
        return min(left, key=lambda each: each.failed_at, default=None)

    def none_left(self) -> Failure:
        """With the seconds until one may be used again."""
        now = self.loop.now
        waits = [each.retry_at - now for each in self.members if each.retry_at > now]
        return replace(NONE_LEFT, retry_after=math.ceil(min(waits))) if waits else NONE_LEFT

    # --- outcomes ---

    def goes_on(self, failed: UpstreamFailed) -> bool:
        """Whether another upstream is tried after this failure."""
        if failed.status:
            return (407 if failed.status == 401 else failed.status) in self._pool.retry_statuses
        return failed.blame is Blame.UNFIT or (failed.blame is not Blame.TARGET and self._pool.retry_connect)

    def is_suspect(self, failed: UpstreamFailed) -> bool:
        """As of a proxy, and each 5xx: what several upstreams respond to a CONNECT may be the target's failure."""
        silent = failed.blame is Blame.UNCLEAR and not failed.status
        return (silent or failed.status >= 500) and not failed.retry_after and not failed.reported

    def failed(self, upstream: AnyUpstream, failed: UpstreamFailed, target: str = "") -> None:
        """See `UpstreamSet`; a status of its own begins the cool-down of its kind, a 5xx behind the third target."""
        kind = _kind(failed)
        if kind is None or failed.reported:
            super().failed(upstream, failed, target)
            return
        upstream.rejects_credentials = failed.failure.kind == CREDENTIALS_REJECTED
        counts = kind == "5xx" and failed.blame is not Blame.UPSTREAM and not failed.retry_after
        if not counts or upstream.suspect(self.loop.now, failed.cause, target_mark(target)):
            self._at_fault(upstream, failed)

    def _at_fault(self, upstream: AnyUpstream, failed: UpstreamFailed) -> None:
        """See `UpstreamSet`."""
        kind = _kind(failed)
        if kind is None or not isinstance(upstream, SharedUpstream):
            super()._at_fault(upstream, failed)
        elif upstream.responded(self.loop.now, kind, failed.cause, failed.retry_after):
            self._went_down(upstream)

    @property
    def asks_again(self) -> bool:
        """See `UpstreamSet`."""
        return True

    def asks_another(self, wanted: Wanted, tried: Sequence[AnyUpstream], status: int) -> bool:
        """Whether a request in absolute-form is sent to another upstream after a response with this status.

        0: the connection has ended without a response.
        """
        allowed = status in self._pool.retry_statuses if status else self._pool.retry_connect
        return allowed and len(tried) < self.attempts and self._has_usable(wanted, tried)

    def would_choose(self, parameters: Parameters, key: str) -> AnyUpstream | None:
        """See `UpstreamSet`."""
        self._state.refresh()
        return super().would_choose(parameters, key)

    def _has_usable(self, wanted: Wanted, tried: Sequence[AnyUpstream]) -> bool:
        self._state.refresh()
        if self.stays(wanted):
            return False
        now = self.loop.now
        return any(each.eligible(now) and each not in tried and wanted.matches(each) for each in self.members)

    def _went_down(self, upstream: AnyUpstream) -> None:
        """An upstream of a pool is no problem of one proxy: the process that makes the checks reports it."""

    def __repr__(self) -> str:
        return f"<PoolUpstreamSet of {self.name}: {len(self.members)} upstreams>"


def _kind(failed: UpstreamFailed) -> str | None:
    """The kind of cool-down that it begins; None if that isn't by a status of the upstream itself."""
    status = failed.status
    if status in (401, 407) or (failed.failure.kind == CREDENTIALS_REJECTED and failed.blame is Blame.UPSTREAM):
        return "407"
    if status == 429:
        return "429"
    return "5xx" if status >= 500 else None
