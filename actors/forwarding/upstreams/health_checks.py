"""Active checks: every upstream is connected to periodically, so that a dead one is known before a client meets it.

Upstreams are connected to; TLS is made with an `https` one; a `socks5` one is greeted. Credentials are sent to all
that have some but `socks4`, which replies only to a target. Any other failure of an upstream is found by traffic alone,
and so is its end.
Upstreams take their turns spread over the interval, an upstream that is down also when its back-off ends.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Protocol

from actors.bus.loop import Loop, Timer
from actors.bus.messages.upstreams import UpstreamsSpec
from actors.forwarding.net.dialer import Dialer
from actors.forwarding.protocols.failures import CREDENTIALS_REJECTED
from actors.forwarding.upstream import DOWN, Upstream
from actors.forwarding.upstreams.attempt import Attempt, Plan
from actors.forwarding.upstreams.auth_probe import CredentialsProbe
from actors.forwarding.upstreams.handshake import Handshake, UpstreamFailed
from actors.forwarding.upstreams.proxy_header import preface_for
from actors.forwarding.upstreams.socks_connect import Socks5Handshake
from actors.net.transport import Transport

JITTER = 0.1
FIRST_APART = 0.01
"""Seconds between the first checks of two upstreams: the first one is checked at once."""


class Checked(Protocol):
    """The upstreams of a proxy, as far as their checks need them."""

    loop: Loop
    dialer: Dialer
    spec: UpstreamsSpec
    members: list[Upstream]

    def reaching(self, upstream: Upstream) -> Plan:
        """The way to the upstream itself. Raises `UpstreamFailed` when its `ca_file` can't be used."""

    def succeeded(self, upstream: Upstream) -> None:
        """Record that the upstream has worked."""

    def failed(self, upstream: Upstream, failed: UpstreamFailed) -> None:
        """Record that it has failed."""


class HealthChecks:
    """The checks of one configuration. Where they are not enabled, only those that are asked for."""

    def __init__(self, upstreams: Checked) -> None:
        self._upstreams = upstreams
        self._loop = upstreams.loop
        self._timers: dict[Upstream, Timer] = {}
        self._running: dict[Upstream, Attempt] = {}
        self._stopped = False
        for number, upstream in enumerate(upstreams.members if upstreams.spec.check_enabled else ()):
            self._schedule(upstream, number * FIRST_APART)

    def stop(self) -> None:
        """No more checks."""
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        for attempt in self._running.values():
            attempt.cancel()
        self._timers.clear()
        self._running.clear()

    def check_credentials(self, upstream: Upstream) -> None:
        """Check now whether an `http` or `https` upstream accepts our credentials, unless a check is under way."""
        if self._stopped or upstream in self._running:
            return
        timer = self._timers.pop(upstream, None)
        if timer is not None:
            timer.cancel()
        self._begin(upstream, CredentialsProbe(upstream.spec.username, upstream.spec.password))

    def _schedule(self, upstream: Upstream, delay: float) -> None:
        self._timers[upstream] = self._loop.call_later(delay, partial(self._check, upstream))

    def _check(self, upstream: Upstream) -> None:
        spec = upstream.spec
        if upstream.state == DOWN and upstream.reached_handshake and not _is_conclusive(upstream):
            self._schedule(upstream, self._until_next(upstream))  # it can be reached and doesn't work: left to traffic
            return
        if spec.protocol == "socks5":
            self._begin(upstream, Socks5Handshake(None, spec.username, spec.password))
        elif _sends_credentials(upstream):
            self._begin(upstream, CredentialsProbe(spec.username, spec.password))
        else:
            self._begin(upstream, None)

    def _begin(self, upstream: Upstream, handshake: Handshake | None) -> None:
        try:
            plan = self._upstreams.reaching(upstream)
        except UpstreamFailed as failed:
            self._on_result(upstream, failed)
            return
        plan = plan._replace(preface=preface_for(upstream.spec.proxy_protocol, None), handshake=handshake)
        upstream.begin_trial(self._loop.now, plan.timeout)
        self._running[upstream] = Attempt(self._upstreams.dialer, plan, partial(self._on_result, upstream))

    def _on_result(self, upstream: Upstream, result: Transport | UpstreamFailed) -> None:
        attempt = self._running.pop(upstream, None)
        if attempt is not None:
            upstream.record_latency(attempt.latency, attempt.began)
        if not isinstance(result, UpstreamFailed):
            self._loop.unwatch(result.fileno())
            result.close()
        if isinstance(result, UpstreamFailed) and not _is_harmless(upstream, attempt, result):
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
    counts."""
    probed = attempt is not None and attempt.began and upstream.spec.protocol in ("http", "https")
    return probed and failed.failure.kind != CREDENTIALS_REJECTED
