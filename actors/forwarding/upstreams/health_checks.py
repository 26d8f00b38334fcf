"""Active checks: every upstream is connected to periodically, so that a dead one is known before a client meets it.

With a URL it is requested through each upstream, and any failure of that is the upstream's. Without one
upstreams are connected to; TLS is made with an `https` one; a `socks5` one is greeted. Credentials are sent to all
that have some but `socks4`, which replies only to a target. Any other failure of an upstream is found by traffic alone,
and so is its end.
Upstreams take their turns spread over the interval, an upstream that is down also when its back-off ends.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Protocol

from actors.bus.loop import Loop, Timer
from actors.bus.messages.specs import UpstreamSpec, UpstreamsSpec
from actors.forwarding.net.dialer import Dialer
from actors.forwarding.protocols.failures import CREDENTIALS_REJECTED
from actors.forwarding.upstreams.attempt import Attempt, AttemptPlan
from actors.forwarding.upstreams.handshake import Blame, Handshake, UpstreamFailed, preface_for, unusable
from actors.forwarding.upstreams.http_connect import CredentialsProbe
from actors.forwarding.upstreams.socks_connect import Socks5Handshake
from actors.net.transport import Transport
from actors.pools.state import CHECK_SPACING
from actors.pools.upstream import DOWN, Upstream

if TYPE_CHECKING:
    from actors.forwarding.upstreams.url_check import CheckUrl

JITTER = 0.1


class CheckedUpstreams(Protocol):
    """The upstreams of a proxy or a pool, as far as their checks need them."""

    loop: Loop
    dialer: Dialer
    spec: UpstreamsSpec
    members: list[Upstream]

    def plan_to(self, upstream: Upstream) -> AttemptPlan:
        """The way to the upstream itself. Raises `UpstreamFailed` when its `ca_file` can't be used."""

    def succeeded(self, upstream: Upstream) -> None:
        """Record that the upstream has worked."""

    def failed(self, upstream: Upstream, failed: UpstreamFailed) -> None:
        """Record that it has failed."""


class HealthChecks:
    """The checks of one configuration. Where they are not enabled, only those that are asked for."""

    def __init__(self, upstreams: CheckedUpstreams) -> None:
        self._of: CheckedUpstreams | None = upstreams
        self._loop = upstreams.loop
        self._timers: dict[Upstream, Timer] = {}
        self._running: dict[Upstream, Attempt] = {}
        self._stopped = False
        for number, upstream in enumerate(upstreams.members if upstreams.spec.check_enabled else ()):
            self._schedule(upstream, number * CHECK_SPACING)

    def stop(self) -> None:
        """No more checks."""
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        for attempt in self._running.values():
            attempt.cancel()
        self._timers.clear()
        self._running.clear()
        self._of = None  # a cycle would wait for the garbage collector

    @property
    def _upstreams(self) -> CheckedUpstreams:
        """Those that are checked, until `stop`."""
        assert self._of is not None
        return self._of

    def ask(self, upstream: Upstream, suspected: int) -> None:
        """Check now whether an `http` or `https` upstream itself responds with this status, 0 for none: then it has
        failed.

        A check that is under way does, too.
        """
        if self._stopped or upstream in self._running:
            return
        timer = self._timers.pop(upstream, None)
        if timer is not None:
            timer.cancel()
        probe = CredentialsProbe(upstream.spec.username, upstream.spec.password, suspected)
        self._begin(upstream, probe, must_respond=not suspected)

    def check_now(self) -> None:
        """Check all of them once, also where checks are off; those with a check under way have it."""
        for number, upstream in enumerate(self._upstreams.members):
            timer = self._timers.pop(upstream, None)
            if timer is not None:
                timer.cancel()
            if upstream not in self._running:
                self._schedule(upstream, number * CHECK_SPACING)

    def _schedule(self, upstream: Upstream, delay: float) -> None:
        self._timers[upstream] = self._loop.call_later(delay, partial(self._check, upstream))

    def _check(self, upstream: Upstream) -> None:
        spec = upstream.spec
        if self._upstreams.spec.check_url:
            self._request(upstream)
            return
        if upstream.state == DOWN and upstream.reached_handshake and not _is_conclusive(upstream):
            if self._upstreams.spec.check_enabled:
                self._schedule(upstream, self._until_next(upstream))
            return  # it can be reached and doesn't work: left to traffic
        if spec.protocol == "socks5":
            self._begin(upstream, Socks5Handshake(None, spec.username, spec.password))
        elif _sends_credentials(upstream):
            self._begin(upstream, CredentialsProbe(spec.username, spec.password))
        else:
            self._begin(upstream, None)

    def _request(self, upstream: Upstream) -> None:
        from actors.forwarding.upstreams.url_check import CheckUrl  # only checks with a URL pay for it

        spec = self._upstreams.spec
        try:
            handshake = self._checking(CheckUrl(spec.check_url, spec.check_expect), upstream.spec)
        except UpstreamFailed as failed:
            self._on_result(upstream, failed, must_respond=True)
        else:
            self._begin(upstream, handshake, must_respond=True)

    def _checking(self, url: CheckUrl, spec: UpstreamSpec) -> Handshake:
        refused = self._upstreams.dialer.access.unresolved(url.target).failure
        if refused is not None:
            raise unusable(f"the URL of the check is refused: {refused.recorded or refused.detail}")
        return url.handshake(spec)

    def _begin(self, upstream: Upstream, handshake: Handshake | None, must_respond: bool = False) -> None:
        try:
            plan = self._upstreams.plan_to(upstream)
        except UpstreamFailed as failed:
            self._on_result(upstream, failed)
            return
        plan = plan._replace(preface=preface_for(upstream.spec.proxy_protocol, None), handshake=handshake)
        upstream.begin_trial(self._loop.now, plan.timeout)
        done = partial(self._on_result, upstream, must_respond=must_respond)
        self._running[upstream] = Attempt(self._upstreams.dialer, plan, done)

    def _on_result(self, upstream: Upstream, result: Transport | UpstreamFailed, must_respond: bool = False) -> None:
        attempt = self._running.pop(upstream, None)
        if attempt is not None:
            upstream.reached = attempt.began
            if attempt.latency is not None and (upstream.latency is None or self._upstreams.spec.check_url):
                upstream.record_latency(self._loop.now, attempt.latency)
        if not isinstance(result, UpstreamFailed):
            self._loop.unwatch(result.fileno())
            result.close()
        if isinstance(result, UpstreamFailed) and (must_respond or not _is_harmless(upstream, attempt, result)):
            if must_respond:
                result.blame = Blame.UPSTREAM
            self._upstreams.failed(upstream, result)
        else:
            self._upstreams.succeeded(upstream)
        if not self._stopped and self._upstreams.spec.check_enabled:
            self._schedule(upstream, self._until_next(upstream))

    def _until_next(self, upstream: Upstream) -> float:
        interval = self._upstreams.spec.check_interval
        if upstream.state == DOWN:
            interval = min(interval, max(0.1, upstream.retry_at - self._loop.now))
        return interval * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - nothing secret


def _sends_credentials(upstream: Upstream) -> bool:
    return upstream.spec.protocol in ("http", "https") and upstream.spec.username is not None


def _is_conclusive(upstream: Upstream) -> bool:
    """Whether a check finds out that an upstream which failed behind its connection works again."""
    return upstream.spec.protocol == "socks5" or (upstream.rejects_credentials and _sends_credentials(upstream))


def _is_harmless(upstream: Upstream, attempt: Attempt | None, failed: UpstreamFailed) -> bool:
    """An upstream that was reached and is silent to OPTIONS, or odd, may serve all else; only a refusal of us
    counts, and what confirms a suspicion."""
    probed = attempt is not None and attempt.began and upstream.spec.protocol in ("http", "https")
    return probed and failed.failure.kind != CREDENTIALS_REJECTED and not failed.status
