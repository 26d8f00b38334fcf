"""Users that only an authentication back end knows: a service of the operator's own, which each proxy may have.

What it has decided is cached under a keyed hash of the credentials, and the same credentials are never asked for twice
at the same time. It has threads of its own, so that a slow one delays its own users alone; of the threads and of
all that waits, no client has more than its share. After many refusals of a client nothing is asked for it for a while,
as for wrong passwords.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from actors.bounded import keep
from actors.bus.loop import Loop, Timer
from actors.bus.messages.specs import BackendSpec, EgressSpec, LimitsSpec
from actors.forwarding.access.guess_limit import GuessLimit
from actors.forwarding.isolation import Requester
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority
from actors.log_lines import ThrottledLog
from actors.net.client_key import client_key, site_key
from actors.net.egress_guard import OutgoingGuard
from actors.state.live_state import LiveState
from actors.thread_pool import DROPPED, FairThreadPool

if TYPE_CHECKING:
    from actors.forwarding.access.backend_request import BackendVerdict
    from actors.net.guarded_client import HttpClient

CACHE_SIZE: Final = 4096
THREADS: Final = 16
SHARE_OF_CLIENT: Final = 8
SHARE_OF_USER: Final = 2
UNDER_WAY_MAX: Final = 1024
"""Requests that wait or run; what comes beyond that fails at once."""
FAILED_PAUSE: Final = 5.0
"""Seconds without another request for credentials that a failing back end has allowed before."""
STALE_MAX: Final = 86_400.0
"""Seconds that an expired result holds at most while the back end fails."""
PRIVATE: Final = "webhooks.allow_private"

log = logging.getLogger(__name__)


class OnDecided(Protocol):
    """Called with the user, None if it is refused; or with a failure."""

    def __call__(self, user: str | None, failure: Failure | None = None, /) -> None: ...


class Question(NamedTuple):
    """Whose credentials they are; `password` is None where the protocol has none, `target` where it comes later."""

    user: str
    password: bytes | None
    target: Authority | None


class _Known(NamedTuple):
    """A cached verdict: until when it holds, and how long it may while the back end fails."""

    verdict: BackendVerdict
    until: float
    stale_until: float


class _WaitingUser(NamedTuple):
    requester: Requester
    done: OnDecided
    gone: Callable[[], None]


class _Flight:
    """A request to the back end that waits or runs, and who waits for it."""

    __slots__ = ("client", "generation", "over", "timer", "waiting")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.waiting: list[_WaitingUser] = []
        self.client: HttpClient | None = None
        self.timer: Timer | None = None
        self.over = False

    @property
    def wanted(self) -> bool:
        """Whether it is to be sent, now that it is its turn."""
        return not self.over and any(each.requester.waits for each in self.waiting)


class Backend:
    """The back end of one proxy. `stored` returns the password hash of an account by its name, None for no such one."""

    def __init__(self, loop: Loop, stored: Callable[[str], bytes | None], state: LiveState) -> None:
        self._loop = loop
        self._stored = stored
        self.on_limits: Callable[[str, LimitsSpec | None], None] = _nothing
        """Called with each user that is allowed and is no account, and the limits."""
        self._spec: BackendSpec | None = None
        self._proxy_id = ""
        self._guard = OutgoingGuard(())
        self._key = os.urandom(32)
        self._threads: FairThreadPool | None = None
        self._known: dict[bytes, _Known] = {}
        self._flights: dict[bytes, _Flight] = {}
        self.guessing = GuessLimit(state, "guess at the back end")
        self._generation = 0
        self._failures = ThrottledLog(log, "requests to the authentication back end")

    @property
    def configured(self) -> bool:
        """Whether there is one."""
        return self._spec is not None

    @property
    def mark(self) -> bytes | None:
        """Stands for the password hash of the users that it has allowed; another one after it was changed."""
        return None if self._spec is None else b"backend:%d" % self._generation

    def configure(self, spec: BackendSpec | None, proxy_id: str) -> None:
        """Take a configuration; None: no back end. What another one has decided is forgotten."""
        self._proxy_id = proxy_id
        if spec == self._spec:
            return
        if spec is not None and self._threads is None:
            self._threads = FairThreadPool(self._loop, THREADS, (SHARE_OF_CLIENT, SHARE_OF_USER))
        self._spec = spec
        self._generation += 1
        self._known.clear()
        self._flights = {}  # those who wait for one get its result all the same

    def guard_by(self, egress: EgressSpec) -> None:
        """Take the product's own addresses, and whether others that are not public may be connected to."""
        self._guard = OutgoingGuard(egress.own, "" if egress.private_backends else PRIVATE, egress.own_ranges)

    # --- checks ---

    def check(self, question: Question, requester: Requester, done: OnDecided, gone: Callable[[], None]) -> None:
        """Call `done`, in this very call when the result is known; or `gone` when the requester has gone meanwhile."""
        digest = self._digest(question)
        known = self._known.get(digest)
        if known is not None and known.until > self._loop.now:
            self._decide(question, known.verdict, done)
            return
        was_right = known is not None and known.verdict.allow
        if not was_right and self.guessing.paused(client_key(requester.client_ip), question.user, self._loop.now):
            done(None)
            return
        flight = self._flights.get(digest)
        if flight is None and len(self._flights) >= UNDER_WAY_MAX:
            self._fail(question, known, done, "too many requests wait for the authentication back end")
            return
        if flight is not None:
            flight.waiting.append(_WaitingUser(requester, done, gone))
        else:
            self._begin(question, digest, _WaitingUser(requester, done, gone))

    def _digest(self, question: Question) -> bytes:
        password = b"\0" if question.password is None else b"\1" + question.password
        return hashlib.blake2b(question.user.encode() + b"\0" + password, key=self._key).digest()

    def _begin(self, question: Question, digest: bytes, first: _WaitingUser) -> None:
        assert self._spec is not None
        assert self._threads is not None
        spec, client_ip = self._spec, first.requester.client_ip
        self._flights[digest] = flight = _Flight(self._generation)
        flight.waiting.append(first)
        end = partial(self._ended, question, digest, flight, client_ip)
        late = f"the authentication back end gave no whole response within {spec.timeout:g} s"
        flight.timer = self._loop.call_later(spec.timeout, lambda: end(late))
        content = {
            "username": question.user,
            "password": None if question.password is None else _text(question.password),
            "client_ip": client_ip,
            "proxy_id": self._proxy_id,
            "target": None if question.target is None else _target(question.target),
        }
        labels = site_key(client_ip), f"{client_key(client_ip)} {question.user}"
        work = partial(_send, flight, spec, self._guard, content)
        self._threads.submit(labels, work, end, lambda: flight.wanted)

    def _ended(self, question: Question, digest: bytes, flight: _Flight, client_ip: str, result: Any) -> None:
        """`result` is a verdict, a sentence that says why there is none, `DROPPED`, or None for a bug in our own code.

        Those who wait are called once: at the deadline or by the response, whichever is first.
        """
        if flight.over:
            return
        flight.over = True
        if flight.timer is not None:
            flight.timer.cancel()
        if flight.client is not None:
            flight.client.abort()
        current = flight.generation == self._generation
        if self._flights.get(digest) is flight:
            del self._flights[digest]
        failed = _failure_of(result)
        if failed is None:
            self._failures.recovered()
            if current:
                self._keep(question, digest, client_ip, result)
            for each in flight.waiting:
                self._decide(question, result, each.done)
            return
        if result is not DROPPED:
            self._failures.error(failed, logging.WARNING)
        self._without_result(question, digest, flight, failed)

    # --- results ---

    def _without_result(self, question: Question, digest: bytes, flight: _Flight, failed: str) -> None:
        known = self._known.get(digest)
        for each in flight.waiting:
            if each.requester.waits:
                self._fail(question, known, each.done, failed)
            else:
                each.gone()
        if known is not None and self._holds(known) and flight.generation == self._generation:
            keep(self._known, digest, known._replace(until=self._loop.now + FAILED_PAUSE), CACHE_SIZE)

    def _keep(self, question: Question, digest: bytes, client_ip: str, verdict: BackendVerdict) -> None:
        spec, now = self._spec, self._loop.now
        assert spec is not None
        if verdict.allow:
            until = now + (spec.cache_seconds if verdict.ttl is None else verdict.ttl)
            keep(self._known, digest, _Known(verdict, until, until + STALE_MAX), CACHE_SIZE)
            return
        keep(self._known, digest, _Known(verdict, now + spec.negative_seconds, 0.0), CACHE_SIZE)
        self.guessing.failed(client_key(client_ip), question.user, now)

    def _decide(self, question: Question, verdict: BackendVerdict, done: OnDecided) -> None:
        if not verdict.allow:
            done(None)
            return
        if verdict.account:
            if self._stored(verdict.account) is None:
                failed = "the authentication back end names an account that this proxy does not have"
                done(None, failures.backend_failed(failed))
                return
            done(verdict.account)
            return
        self.on_limits(question.user, verdict.limits)
        done(question.user)

    def _fail(self, question: Question, known: _Known | None, done: OnDecided, failed: str) -> None:
        """Decide without the back end."""
        if known is not None and self._holds(known):
            self._decide(question, known.verdict, done)
        else:
            done(None, failures.backend_failed(failed))

    def _holds(self, known: _Known) -> bool:
        """Whether a verdict that has expired holds while the back end fails."""
        allowed = self._spec is not None and self._spec.allow_cached
        return allowed and known.verdict.allow and known.stale_until > self._loop.now

    def __repr__(self) -> str:
        url = None if self._spec is None else self._spec.url
        return f"<Backend {url}, {len(self._known)} known, {len(self._flights)} under way>"


def _send(flight: _Flight, spec: BackendSpec, guard: OutgoingGuard, content: dict[str, Any]) -> BackendVerdict | str:
    from actors.forwarding.access.backend_request import new_client, verdict_of  # only proxies with a back end need it

    flight.client = client = new_client(spec, guard)
    return "it took too long to begin" if flight.over else verdict_of(client, spec, content)


def _failure_of(result: Any) -> str | None:
    """The sentence about a request without a verdict; None when there is one."""
    if result is DROPPED:
        return "too many requests wait for the authentication back end"
    if result is None:
        return "the request to the authentication back end could not be made"
    return f"the authentication back end failed: {result}" if isinstance(result, str) else None


def _text(password: bytes) -> str:
    """A password as text: UTF-8, else Latin-1, which some clients send."""
    try:
        return password.decode()
    except UnicodeDecodeError:
        return password.decode("latin-1")


def _target(target: Authority) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    return f"{host}:{target.port}"


def _nothing(_user: str, _limits: LimitsSpec | None) -> None:
    """Nothing is to be done."""
