"""Active checks: every parent is reached from time to time, so that a dead one is known before a client meets it.

Parents are connected to; TLS is made with an `https` one; a `socks5` one is greeted. Credentials are shown to all that
have some but `socks4`, which answers only with a target. Whatever else a parent may fail at, only traffic finds out,
and finds out when it is mended.
Parents take their turns spread over the interval, a parent that is down also when its back-off ends.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Protocol

from actors.bus.loop import Loop, Timer
from actors.bus.messages.upstreams import UpstreamsSpec
from actors.forwarding.net.dialer import Dialer
from actors.forwarding.upstreams.attempt import Attempt, Plan
from actors.forwarding.upstreams.auth_probe import CredentialsProbe
from actors.forwarding.upstreams.handshake import REFUSES_US, ParentFailed
from actors.forwarding.upstreams.proxy_header import preface_for
from actors.forwarding.upstreams.socks_connect import Socks5Handshake
from actors.forwarding.upstreams.upstream import DOWN, Parent
from actors.net.transport import Transport

JITTER = 0.1
FIRST_APART = 0.01
"""Seconds between the first checks of two upstreams: the first one is checked at once."""


class Checked(Protocol):
    """The upstreams of a proxy, as far as their checks need them."""

    loop: Loop
    dialer: Dialer
    spec: UpstreamsSpec
    parents: list[Parent]

    def reaching(self, parent: Parent) -> Plan:
        """The way to the upstream itself. Raises `ParentFailed` when its `ca_file` can't be used."""

    def succeeded(self, parent: Parent) -> None:
        """Record that the upstream has worked."""

    def failed(self, parent: Parent, failed: ParentFailed) -> None:
        """Record that it has failed."""


class HealthChecks:
    """The checks of one configuration."""

    def __init__(self, upstreams: Checked) -> None:
        self._upstreams = upstreams
        self._loop = upstreams.loop
        self._timers: dict[Parent, Timer] = {}
        self._running: dict[Parent, Attempt] = {}
        self._stopped = False
        for number, parent in enumerate(upstreams.parents):
            self._schedule(parent, number * FIRST_APART)

    def stop(self) -> None:
        """No more checks."""
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        for attempt in self._running.values():
            attempt.cancel()
        self._timers.clear()
        self._running.clear()

    def _schedule(self, parent: Parent, delay: float) -> None:
        self._timers[parent] = self._loop.call_later(delay, partial(self._check, parent))

    def _check(self, parent: Parent) -> None:
        spec = parent.spec
        if parent.state == DOWN and parent.deep and not _can_tell(parent):
            self._schedule(parent, self._until_next(parent))  # it can be reached and still doesn't work: traffic tells
            return
        try:
            plan = self._upstreams.reaching(parent)
        except ParentFailed as failed:
            self._checked(parent, failed)
            return
        plan = plan._replace(preface=preface_for(spec.proxy_protocol, None))
        if spec.protocol == "socks5":
            plan = plan._replace(handshake=Socks5Handshake(None, spec.username, spec.password))
        elif _shows_credentials(parent):
            plan = plan._replace(handshake=CredentialsProbe(spec.username, spec.password))
        parent.tried(self._loop.now, plan.timeout)
        self._running[parent] = Attempt(self._upstreams.dialer, plan, partial(self._checked, parent))

    def _checked(self, parent: Parent, result: Transport | ParentFailed) -> None:
        attempt = self._running.pop(parent, None)
        if attempt is not None:
            parent.reached(attempt.latency, attempt.began)
        if not isinstance(result, ParentFailed):
            self._loop.unwatch(result.fileno())
            result.close()
        if isinstance(result, ParentFailed) and not _is_harmless(parent, attempt, result):
            self._upstreams.failed(parent, result)
        else:
            self._upstreams.succeeded(parent)
        if not self._stopped:
            self._schedule(parent, self._until_next(parent))

    def _until_next(self, parent: Parent) -> float:
        interval = self._upstreams.spec.check_interval
        if parent.state == DOWN:
            interval = min(interval, max(0.1, parent.retry_at - self._loop.now))
        return interval * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - nothing secret


def _shows_credentials(parent: Parent) -> bool:
    return parent.spec.protocol in ("http", "https") and parent.spec.username is not None


def _can_tell(parent: Parent) -> bool:
    """Does a check find out whether a parent that failed behind its connection works again?"""
    return parent.spec.protocol == "socks5" or (parent.refuses_us and _shows_credentials(parent))


def _is_harmless(parent: Parent, attempt: Attempt | None, failed: ParentFailed) -> bool:
    """A parent that was reached and is silent to OPTIONS, or odd, may serve all else; only a refusal of us counts."""
    asked = attempt is not None and attempt.began and _shows_credentials(parent)
    return asked and failed.failure.kind != REFUSES_US
