"""From a wish for a target to a connection through some parent: choose, try, and try the next while nothing was sent.

At most `ATTEMPTS_MAX` parents are tried for one request. When none is up, the one whose failure is longest ago is tried
all the same, and a second such: a check may be wrong, and an error at once helps nobody (squid does so too).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from actors.bus.loop import Loop
from actors.forwarding.access.policy import AccessPolicy
from actors.forwarding.net.connection_pool import ConnectionPool, OriginConnection
from actors.forwarding.net.dialer import Dialer
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority
from actors.forwarding.upstreams.attempt import Attempt, Plan
from actors.forwarding.upstreams.handshake import Blame, ParentFailed
from actors.forwarding.upstreams.upstream import Parent
from actors.net.proxy_protocol import Ends
from actors.net.transport import Transport

ATTEMPTS_MAX = 5
LAST_RESORTS_MAX = 2
PATIENCE = 0.9
"""The part of `settings.timeout` after which it was not the client who gave up; the rest may have gone by before."""

NONE_LEFT = Failure(503, "destination_unavailable", "no parent proxy can be used")

OnRouted = Callable[[OriginConnection | Failure], None]


class Wanted(NamedTuple):
    """What a client wants. `forward`: a plain request, which an HTTP parent may get in absolute-form.

    `key` is what `sticky` goes by; `via` the value of `Via` that came with the request; `ends` are the addresses of the
    client's connection, where a parent wants them.
    """

    target: Authority
    forward: bool
    fresh: bool
    key: str
    via: bytes | None = None
    ends: Ends | None = None


class Routing(Protocol):
    """The upstreams of a proxy, as far as a route needs them."""

    loop: Loop
    pool: ConnectionPool
    dialer: Dialer

    @property
    def timeout(self) -> float:
        """Seconds that a request may wait for its connection: `settings.timeout`."""

    def access(self) -> AccessPolicy:
        """Which targets an upstream may be asked for."""

    def choose(self, key: str, tried: Sequence[Parent]) -> Parent | None:
        """The next upstream by the balancing policy, among those that are up and not tried."""

    def longest_failed(self, tried: Sequence[Parent]) -> Parent | None:
        """The upstream whose failure is longest ago."""

    def acquire(self, parent: Parent, wanted: Wanted) -> OriginConnection | None:
        """An idle connection through this upstream that will do."""

    def plan(self, parent: Parent, wanted: Wanted) -> Plan:
        """What a new connection through this upstream takes. Raises `ParentFailed` when it can't be made."""

    def connected(
        self, parent: Parent, wanted: Wanted, transport: Transport, epoch: int, reported: str
    ) -> OriginConnection:
        """The connection for the client, made of the one to the upstream."""

    def succeeded(self, parent: Parent) -> None:
        """Record that the upstream has worked."""

    def failed(self, parent: Parent, failed: ParentFailed) -> None:
        """Record that it has failed."""


class Route:
    """One way to a target. `origin` is there at once when a kept connection is used, and `done` is not called then.

    Else `done` is called once, later, unless it is cancelled before.
    """

    resolving = False
    """Names are the parents' to resolve."""

    def __init__(self, upstreams: Routing, wanted: Wanted, done: OnRouted) -> None:
        self._upstreams = upstreams
        self._loop = upstreams.loop
        self._wanted = wanted
        self._done: OnRouted | None = done
        self._started = self._loop.now
        self._epoch = upstreams.pool.epoch
        self._tried: list[Parent] = []
        self._last_resorts = 0
        self._attempt: Attempt | None = None
        self._parent: Parent | None = None
        self._failure = NONE_LEFT
        self.origin: OriginConnection | None = None
        self.reported = ""
        judgement = upstreams.access().unresolved(wanted.target)
        if judgement.failure is not None:
            refused = judgement.failure
            self._loop.call_soon(lambda: self._end(refused))
            return
        self.reported = judgement.reason
        self._begin()

    @property
    def tried(self) -> str:
        """The names of the parents that were tried, in order; for the log."""
        return ", ".join(parent.name for parent in self._tried)

    def cancel(self) -> None:
        """Give up. When that is because of the timeout, the parent that was silent has a share in it."""
        self._done = None
        attempt, self._attempt = self._attempt, None
        if attempt is None or self._parent is None:
            return
        self._parent.coming -= 1
        silent = attempt.asked and self._loop.now - self._started >= PATIENCE * self._upstreams.timeout
        attempt.cancel()
        if silent:
            late = ParentFailed(Blame.UNCLEAR, NONE_LEFT, "it did not answer within the timeout")
            self._upstreams.failed(self._parent, late)

    def _begin(self) -> None:
        """A kept connection of the first parent, if there is one, else a new one."""
        parent = self._choose()
        if parent is not None and not self._wanted.fresh:
            self.origin = self._upstreams.acquire(parent, self._wanted)
            if self.origin is not None:
                return
        self._try(parent)

    def _choose(self) -> Parent | None:
        if len(self._tried) >= ATTEMPTS_MAX:
            return None
        parent = self._upstreams.choose(self._wanted.key, self._tried)
        if parent is None and self._last_resorts < LAST_RESORTS_MAX:
            self._last_resorts += 1
            parent = self._upstreams.longest_failed(self._tried)
        return parent

    def _try(self, parent: Parent | None) -> None:
        while parent is not None:
            self._tried.append(parent)
            try:
                plan = self._upstreams.plan(parent, self._wanted)
            except ParentFailed as failed:
                self._note(parent, failed)
                parent = self._choose()
                continue
            parent.tried(self._loop.now, self._upstreams.timeout)
            self._parent = parent
            parent.coming += 1
            self._attempt = Attempt(self._upstreams.dialer, plan, self._arrived)
            return
        self._loop.call_soon(lambda: self._end(self._failure))

    def _arrived(self, result: Transport | ParentFailed) -> None:
        attempt, self._attempt = self._attempt, None
        parent = self._parent
        assert attempt is not None
        assert parent is not None
        parent.coming -= 1
        parent.reached(attempt.latency, attempt.began)
        if isinstance(result, ParentFailed):
            self._note(parent, result)
            if result.blame is Blame.TARGET:
                self._end(result.failure)
            else:
                self._try(self._choose())
            return
        if attempt.began:  # a mere connection says nothing yet: the answer to the request will
            self._upstreams.succeeded(parent)
        self._end(self._upstreams.connected(parent, self._wanted, result, self._epoch, self.reported))

    def _note(self, parent: Parent, failed: ParentFailed) -> None:
        self._failure = failed.failure
        self._upstreams.failed(parent, failed)

    def _end(self, result: OriginConnection | Failure) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(result)
        elif isinstance(result, OriginConnection):
            self._upstreams.pool.close(result)

    def __repr__(self) -> str:
        return f"<Route to {self._wanted.target.text!r}, tried {len(self._tried)}>"
