"""The upstreams of a pool, as one proxy uses them: what it learns of them holds for all proxies, and the reverse.

It makes no checks of its own but after a 407 in absolute-form, which an origin may have sent.

The state of each upstream is shared by all processes (`actors.pools.state`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from actors.bus.messages.specs import EgressSpec, PoolSpec, UpstreamSpec
from actors.forwarding.protocols.failures import CREDENTIALS_REJECTED, Failure
from actors.forwarding.upstreams.handshake import Blame, UpstreamFailed
from actors.forwarding.upstreams.route import NONE_LEFT, Wanted
from actors.forwarding.upstreams.upstream_set import UpstreamContext, UpstreamSet
from actors.pools.state import SharedPoolState, pool_state
from actors.pools.upstream import Upstream, target_mark


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

    def _member(self, spec: UpstreamSpec, index: int, known: Upstream | None) -> Upstream:
        slot = self._state.slots[index]
        if known is None:
            return Upstream(spec, index, slot, self.loop.now, self._pool.name)
        known.slot = slot
        return known

    def _refresh(self) -> None:
        self._state.refresh()

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

    def failed(self, upstream: Upstream, failed: UpstreamFailed, target: str = "") -> None:
        """See `UpstreamSet`; a status of its own begins the cool-down of its kind, a 5xx behind the third target."""
        kind = _kind(failed)
        if kind is None or failed.reported:
            super().failed(upstream, failed, target)
            return
        counts = kind == "5xx" and failed.blame is not Blame.UPSTREAM and not failed.retry_after
        if not counts or upstream.suspect(self.loop.now, failed.cause, target_mark(target)):
            self._at_fault(upstream, failed)

    def _at_fault(self, upstream: Upstream, failed: UpstreamFailed) -> None:
        """See `UpstreamSet`."""
        kind = _kind(failed)
        if kind is None:
            super()._at_fault(upstream, failed)
        elif upstream.responded(self.loop.now, kind, failed.cause, failed.retry_after):
            self._went_down(upstream)

    @property
    def asks_again(self) -> bool:
        """See `UpstreamSet`."""
        return True

    def asks_another(self, wanted: Wanted, tried: Sequence[Upstream], status: int) -> bool:
        """Whether a request in absolute-form is sent to another upstream after a response with this status.

        0: the connection has ended without a response.
        """
        allowed = status in self._pool.retry_statuses if status else self._pool.retry_connect
        return allowed and len(tried) < self.attempts and self._has_usable(wanted, tried)

    def _has_usable(self, wanted: Wanted, tried: Sequence[Upstream]) -> bool:
        self._refresh()
        if self.stays(wanted):
            return False
        now = self.loop.now
        return any(each.eligible(now) and each not in tried and wanted.matches(each) for each in self.members)

    def _went_down(self, upstream: Upstream) -> None:
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
