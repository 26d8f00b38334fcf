"""From a target to a connection through some upstream: choose, try, and try the next while nothing was sent.

At most `attempts` upstreams are tried for one request, in all its tries. When none is up, the one whose failure is
longest ago is tried all the same, and a second such: a check may be wrong, and an immediate error helps no client
(squid does so too).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from actors.forwarding.access.rules import OwnRules
from actors.forwarding.access.username_parameters import NO_PARAMETERS, Parameters
from actors.forwarding.net.connection_pool import OriginConnection
from actors.forwarding.net.source_address import SourceAddress
from actors.forwarding.protocols.failures import NO_UPSTREAM_MATCHES, Failure
from actors.forwarding.protocols.http.targets import Authority
from actors.forwarding.upstreams.attempt import Attempt
from actors.forwarding.upstreams.handshake import Blame, UpstreamFailed
from actors.net.proxy_protocol import Ends
from actors.net.transport import Transport
from actors.pools.upstream import Upstream

if TYPE_CHECKING:
    from actors.forwarding.policies.judge import Judge
    from actors.forwarding.upstreams.upstream_set import UpstreamSet

ATTEMPTS_MAX = 5
LAST_RESORTS_MAX = 2
PATIENCE = 0.9
"""The part of `settings.timeout` after which a cancel is a timeout and not the client's; the rest may have passed
before."""

NONE_LEFT = Failure(503, "destination_unavailable", "no upstream proxy can be used")

OnRouted = Callable[[OriginConnection | Failure], None]


def has_labels(parameters: Parameters, upstream: Upstream) -> bool:
    """Whether the upstream has all labels that a user name asks for."""
    labels = parameters.labels
    return not labels or labels.items() <= set(upstream.spec.labels)


class Wanted(NamedTuple):
    """What a client asks for. `forward`: a plain request, which an HTTP upstream may get in absolute-form.

    `key` is what `sticky` hashes, of session or account with `parameters` that choose; `via` is the value of `Via` that
    came with the request; `ends` are the addresses of the client's connection, where an upstream wants them. `own` are
    the rules of the client's account and credential, `judge` is that of the request where the proxy has policies.
    `tried` are the upstreams that this request was sent to in vain. `source` is where its connection to the upstream
    leaves from, None: from where all of the proxy do.
    """

    target: Authority
    forward: bool
    fresh: bool
    key: str
    via: bytes | None = None
    ends: Ends | None = None
    own: OwnRules = ()
    judge: Judge | None = None
    parameters: Parameters = NO_PARAMETERS
    tried: tuple[Upstream, ...] = ()
    source: SourceAddress | None = None

    def matches(self, upstream: Upstream) -> bool:
        """Whether the upstream has all labels that the user name asks for."""
        return has_labels(self.parameters, upstream)


class UpstreamRoute:
    """One way to a target. `origin` is there at once when a kept connection is used, and `done` is not called then.

    Else `done` is called once, later, unless it is cancelled before.
    """

    overdue = None
    """See `PendingOrigin`."""

    def __init__(self, upstreams: UpstreamSet, wanted: Wanted, done: OnRouted) -> None:
        self._upstreams = upstreams
        self._loop = upstreams.loop
        self._wanted = wanted
        self._done: OnRouted | None = done
        self._started = self._loop.now
        self._epoch = upstreams.pool.epoch
        self._tried: list[Upstream] = list(wanted.tried)
        self._suspects: list[tuple[Upstream, UpstreamFailed]] = []
        self.failures: list[tuple[Upstream, str]] = []
        """What upstreams have done, in order."""
        self._last_resorts = 0
        self._attempt: Attempt | None = None
        self._upstream: Upstream | None = None
        self._failure: Failure | None = None
        self.origin: OriginConnection | None = None
        self.waited = 0.0
        """Seconds that its client has waited for an upstream which gets the request itself, in absolute-form."""
        self.reported: Failure | None = None
        decision = upstreams.access().for_request(wanted.own, wanted.judge).unresolved(wanted.target)
        self._refused = decision.failure
        refused = decision.failure or (NO_UPSTREAM_MATCHES if upstreams.none_matches(wanted.parameters) else None)
        if refused is not None:
            self._loop.call_soon(partial(self._end, refused))
            return
        self.reported = decision.reported
        self._first_attempt()

    @property
    def tried(self) -> str:
        """The names of the upstreams that were tried, in order; for the log."""
        return ", ".join(upstream.name for upstream in self._tried)

    def cancel(self) -> None:
        """Stop it. After the timeout that is an ambiguous failure of the upstream that was silent."""
        self._done = None
        attempt, self._attempt = self._attempt, None
        if attempt is None or self._upstream is None:
            return
        self._upstream.pending -= 1
        silent = attempt.target_sent and self._loop.now - self._started >= PATIENCE * self._upstreams.timeout
        attempt.cancel()
        if silent:
            late = UpstreamFailed(Blame.UNCLEAR, NONE_LEFT, "it did not respond within the timeout")
            self.failures.append((self._upstream, late.cause))
            self._upstreams.failed(self._upstream, late, self._wanted.target.host)

    def _first_attempt(self) -> None:
        """A kept connection of the first upstream, if there is one, else a new one."""
        upstream = self._choose()
        if upstream is not None and not self._wanted.fresh:
            self.origin = self._upstreams.acquire(upstream, self._wanted)
            if self.origin is not None:
                return
        self._try(upstream)

    def _choose(self) -> Upstream | None:
        if len(self._tried) >= self._upstreams.attempts:
            return None
        upstream = self._upstreams.choose(self._wanted, self._tried)
        if upstream is None and self._last_resorts < LAST_RESORTS_MAX:
            self._last_resorts += 1
            upstream = self._upstreams.longest_failed(self._wanted, self._tried)
        return upstream

    def _try(self, upstream: Upstream | None) -> None:
        while upstream is not None:
            self._tried.append(upstream)
            try:
                plan = self._upstreams.plan(upstream, self._wanted)
            except UpstreamFailed as failed:
                self._record_failure(upstream, failed)
                upstream = self._choose() if self._upstreams.goes_on(failed) else None
                continue
            upstream.begin_trial(self._loop.now, self._upstreams.timeout)
            self._upstream = upstream
            upstream.pending += 1
            self._attempt = Attempt(self._upstreams.dialer, plan, self._on_attempt, self._wanted.source)
            return
        self._loop.call_soon(lambda: self._end(self._failure or self._upstreams.none_left()))

    def _on_attempt(self, result: Transport | UpstreamFailed) -> None:
        attempt, self._attempt = self._attempt, None
        upstream = self._upstream
        assert attempt is not None
        assert upstream is not None
        upstream.pending -= 1
        upstream.reached = attempt.began
        if isinstance(result, UpstreamFailed):
            self._record_failure(upstream, result)
            if self._upstreams.goes_on(result):
                self._try(self._choose())
            else:
                self._end(result.failure)
            return
        if attempt.began:  # a mere connection proves nothing: the response to the request will
            self._upstreams.succeeded(upstream)
            upstream.record_latency(self._loop.now, attempt.latency or 0.0)
        else:
            self.waited = attempt.latency or 0.0
        self._end(self._upstreams.connected(upstream, self._wanted, result, self._epoch, self.reported))

    def _record_failure(self, upstream: Upstream, failed: UpstreamFailed) -> None:
        self._failure = failed.failure
        self.failures.append((upstream, failed.cause))
        if self._upstreams.is_suspect(failed):
            self._suspects.append((upstream, failed))
        else:
            self._upstreams.failed(upstream, failed, self._wanted.target.host)

    def _judge_suspects(self, reached: bool) -> None:
        """What several upstreams say of a target that no other reaches is the target's failure."""
        if reached or len(self._suspects) == 1:
            for upstream, failed in self._suspects:
                self._upstreams.failed(upstream, failed, self._wanted.target.host)
        self._suspects.clear()

    def _end(self, result: OriginConnection | Failure) -> None:
        self._judge_suspects(isinstance(result, OriginConnection))
        if isinstance(result, Failure) and result is not self._refused:
            if len(self._tried) > 1:
                result = replace(result, detail=f"{result.detail}, the last of {len(self._tried)} that were tried")
            result = self._upstreams.named(result)
        done, self._done = self._done, None
        if done is not None:
            done(result)
        elif isinstance(result, OriginConnection):
            self._upstreams.pool.close(result)

    def __repr__(self) -> str:
        return f"<UpstreamRoute to {self._wanted.target.text!r}, tried {len(self._tried)}>"
