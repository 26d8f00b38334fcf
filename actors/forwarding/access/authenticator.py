"""Who may use a proxy: user names and passwords, checked against bcrypt off the loop, or by a back end (`backend`).

A pair that was right is cached for a minute under a keyed hash, so that the cost of bcrypt is paid once and a copy of
this process's memory does not disclose the password. One that was wrong is cached for some seconds in the same way. No
client has more than its share of the threads (`FairThreadPool`), a pair whose client has gone is not checked at all,
and after many wrong pairs of a client its new ones are refused unchecked for a while (`guess_limit`); pairs that are
known to be right pass all the same, also beyond the minute while checks have to wait. The one check of a client
that has not failed lately comes before those of clients that have, so that guesses from many addresses keep no newcomer
waiting; networks take turns among the first, and every fourth turn is of the others, so that none waits for ever.

The secret of a credential has entropy enough to be looked up by a plain hash: it costs no bcrypt, and a right one never
waits. A wrong one counts as a wrong password.

One check of a password against bcrypt, and how long refusals take. The time of a refusal must not disclose whether a
name is known, or what kind of hash it has. All that is cheaper than a hash of our own is made as dear by further
rounds. What is dearer is a foreign hash, whose cost others have chosen: while the table of accounts has such
hashes, refusals of all other names wait for as long as the dearest would take. That costs no processor, but it follows
the load less closely than rounds do.

Tests of a proxy by the API connect as clients with credentials of their own, which are valid once (`Testers`).
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from actors.bounded import keep
from actors.bus.loop import Loop
from actors.bus.messages.forwarding import ReportOfTest
from actors.bus.messages.specs import ProxySpec
from actors.forwarding.access.backend import Backend, Question
from actors.forwarding.access.directory import Directory
from actors.forwarding.access.guess_limit import PAUSE, GuessLimit
from actors.forwarding.isolation import Requester
from actors.forwarding.limits.accounts_in_use import UnreadableError
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.commands import is_secret
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority
from actors.log_lines import ThrottledLog
from actors.net.client_key import client_key, network_key, site_key
from actors.state.live_state import LiveState
from actors.thread_pool import DROPPED, FairThreadPool

if TYPE_CHECKING:
    from actors.accounts.records import CredentialRecord

log = logging.getLogger(__name__)

WEIGHT: Final = 0.2
"""Of the last check in the average time of a round."""

_PASSWORD_MAX: Final = 72
"""Bytes that bcrypt reads."""


class CheckedPassword(NamedTuple):
    """The result of a check, the rounds that it took, and its seconds. `renewable`: the hash is foreign, and
    one of our own may take its place."""

    matches: bool
    rounds: int
    seconds: float
    renewable: bool = False


def prehash(password: bytes) -> bytes:
    """What bcrypt gets: a digest, since bcrypt passes over what is behind byte 72 and stops at NUL."""
    return base64.b64encode(hashlib.sha256(password).digest())


def check(password: bytes, stored: bytes | None) -> CheckedPassword:
    """Whether `stored` is a hash of the password. Without one a check is made all the same, as dear as any."""
    from config import passwords  # which loads bcrypt: only proxies with credentials pay for it

    began = time.perf_counter()
    against = stored.decode("ascii") if stored else passwords.unknown_hash()
    matches, rounds = _matches(password, against), passwords.rounds_of(against)
    if not matches:
        rounds += passwords.spend_rounds((1 << passwords.COST) - rounds)
    # Of a longer password bcrypt has read a part alone: what is behind it may be another one's.
    renewable = matches and passwords.is_foreign(against) and len(password) <= _PASSWORD_MAX
    return CheckedPassword(matches, rounds, time.perf_counter() - began, renewable)


def hash_anew(password: bytes) -> bytes:
    """A hash of our own."""
    import bcrypt

    from config.passwords import COST

    return bcrypt.hashpw(prehash(password), bcrypt.gensalt(COST))


class RefusalTime:
    """How long refusals wait, by what rounds of bcrypt have taken lately."""

    def __init__(self) -> None:
        self._round = 0.0

    def note(self, checked: CheckedPassword) -> None:
        """A password was wrong."""
        if checked.rounds:
            seconds = checked.seconds / checked.rounds
            self._round += (seconds - self._round) * (WEIGHT if self._round else 1.0)

    def wait(self, checked: CheckedPassword, most_rounds: int) -> float:
        """Seconds after which the refusal has taken as long as one that costs `most_rounds`."""
        return max(0, most_rounds - checked.rounds) * self._round


def _matches(password: bytes, stored: str) -> bool:
    import bcrypt

    from config.passwords import FOREIGN

    hashed = stored.removeprefix(FOREIGN)
    forms = [prehash(password)] if hashed == stored else [password[:_PASSWORD_MAX], prehash(password)]
    try:
        return any(bcrypt.checkpw(form, hashed.encode("ascii")) for form in forms)
    except ValueError:
        return False  # no hash is stored


REMEMBERED = 60.0
WRONG_REMEMBERED = 10.0
CACHE_SIZE = 1024
THREADS = 4
SHARE_OF_CLIENT = 2

OnRenewed = Callable[[str, bytes, bytes], None]
"""Called with the id of an account, its foreign hash, and one of our own of the same password."""


class OnChecked(Protocol):
    """Called with the user's name, None when the credentials are wrong; and the credential, if its secret came.

    With a failure they could not be checked.
    """

    def __call__(
        self, user: str | None, credential: CredentialRecord | None = None, failure: Failure | None = None, /
    ) -> None: ...


class _Pair(NamedTuple):
    """Credentials as they came: `digest` is a keyed hash of both, `client` the key of the client that sent them."""

    user: str
    digest: bytes
    client: str


class _Request(NamedTuple):
    """A request for a check: see `ClientAuthenticator.check`."""

    requester: Requester
    done: OnChecked
    gone: Callable[[], None]


class ClientAuthenticator:
    """Checks clients' credentials for one proxy: those of `auth`, of its accounts, and of the shared table."""

    def __init__(self, loop: Loop, directory: Directory | None = None, state: LiveState | None = None) -> None:
        self._loop = loop
        state = state or LiveState(lambda: loop.now)
        self._directory = directory or Directory(loop)
        self.backend = Backend(loop, self._directory.stored, state)
        """Decides about users that the directory does not know, where the proxy has one."""
        self.on_renewed: OnRenewed = lambda _id, _former, _renewed: None
        self._refusals = RefusalTime()
        self._threads = FairThreadPool(loop, THREADS, (SHARE_OF_CLIENT, THREADS))
        self._key = os.urandom(32)
        self._good: dict[bytes, tuple[float, bytes]] = {}
        self._wrong: dict[bytes, tuple[float, bytes | None]] = {}
        self.guessing = GuessLimit(state)
        self._checks: dict[tuple[_Pair, bytes | None], list[_Request]] = {}
        """The checks that wait or run, each with the requests for it."""
        self._present: Counter[str] = Counter()
        """The number of checks by client."""
        self._failures = ThrottledLog(log, "wrong passwords")

    def update(self, spec: ProxySpec) -> None:
        """Take the users and passwords of a configuration. What is cached holds for unchanged passwords alone."""
        self._directory.configure(spec)
        self.backend.configure(spec.backend, spec.id)

    def knows(self, user: str) -> bool:
        """Whether there is such a user."""
        return self._directory.stored(user) is not None

    def is_current(self, user: str, verified: bytes | None) -> bool:
        """Whether `verified` is what `stored` was for this user, or another hash of the same password."""
        if verified is None:
            return False
        return self.stored(user) == verified or self._directory.is_password(user, verified)

    def stored(self, user: str) -> bytes | None:
        """The hash of the user's password, empty where there are no passwords; None for an unknown user.

        For users that only a back end may know something that changes with its configuration.
        """
        known = self._directory.stored(user)
        return self.backend.mark if known is None and user else known

    def asks_backend(self, user: str) -> bool:
        """Whether a back end decides about this user."""
        return self.backend.configured and self._directory.is_unknown(user)

    def is_unreadable(self, user: str) -> bool:
        """Whether it can't be known at the moment whether there is such a user."""
        return self._directory.is_unreadable(user)

    def holds(self, credential: CredentialRecord) -> bool:
        """Whether the credential is still there."""
        try:
            return self._directory.credential_by_id(credential.id) is not None
        except UnreadableError:
            return False

    def check(
        self,
        user: str | None,
        password: bytes | None,
        requester: Requester,
        done: OnChecked,
        gone: Callable[[], None],
        target: Authority | None = None,
    ) -> None:
        """Call `done` with the user's name, or None; in this very call when the result is known.

        No `user`: no credentials came. No `password`: the protocol has none (SOCKS4), and the name alone decides, or
        it is a credential's secret.
        When the requester doesn't wait any more as its turn comes, nothing is checked, and `gone` is called instead.
        """
        if user is None:
            done(None)
            return
        secret = user.encode() if password is None else password
        if is_secret(secret) and not self._directory.is_own(user):
            self._check_secret("" if password is None else user, secret, requester, done)
            return
        if self.is_unreadable(user):
            done(None, None, failures.ACCOUNTS_UNAVAILABLE)
            return
        if self.asks_backend(user):
            on_decided = partial(_on_decided, done)
            self.backend.check(Question(user, password, target), requester, on_decided, gone)
            return
        if password is None:
            done(user if self._directory.admits_name(user) else None)
            return
        digest = self._digest(user, password)
        if self._is_right(user, digest):
            done(user)
            return
        self._check_new(_Pair(user, digest, client_key(requester.client_ip)), password, requester, done, gone)

    def _digest(self, user: str, password: bytes) -> bytes:
        return hashlib.blake2b(user.encode() + b"\0" + password, key=self._key).digest()

    def _is_right(self, user: str, digest: bytes, paused: bool = False) -> bool:
        """Whether this pair was right, for the hash that the user still has.

        After `REMEMBERED` it is checked again, but not where the check would have to wait behind those of others.
        """
        known = self._good.get(digest)
        if known is None or not self._directory.is_password(user, known[1]):
            return False
        return known[0] > self._loop.now or paused or self._threads.waiting > 0

    def _check_secret(self, user: str, secret: bytes, requester: Requester, done: OnChecked) -> None:
        try:
            found = self._directory.credential(secret.decode(), user)
        except UnreadableError:
            done(None, None, failures.ACCOUNTS_UNAVAILABLE)
            return
        if found is not None:
            done(*found)
            return
        pair = _Pair(user, self._digest(user, secret), client_key(requester.client_ip))
        if self._known(pair) is None:
            self._record_result(pair, None, False)
        done(None)

    def _check_new(
        self, pair: _Pair, password: bytes, requester: Requester, done: OnChecked, gone: Callable[[], None]
    ) -> None:
        known = self._known(pair)
        if known is not None:
            done(pair.user if known else None)
            return
        stored = self._directory.stored(pair.user)
        key = pair, stored
        if key in self._checks:
            self._checks[key].append(_Request(requester, done, gone))
            return
        self._checks[key] = requests = [_Request(requester, done, gone)]

        def ended(result: Any) -> None:
            """`result` is a `CheckedPassword`, `DROPPED`, or None for a bug in our own code."""
            if not isinstance(result, CheckedPassword):
                finish(result)
                return
            if result.matches:
                finish(result)
                return
            self._refusals.note(result)
            self._loop.call_later(self._refusals.wait(result, self._directory.most_rounds()), lambda: finish(result))

        def finish(result: CheckedPassword | object | None) -> None:
            del self._checks[key]
            self._uncount(pair.client)
            matches = isinstance(result, CheckedPassword) and result.matches
            known = self._known(pair) if result is DROPPED else self._record_result(pair, stored, matches)
            if known and stored and isinstance(result, CheckedPassword) and result.renewable:
                self._renew(pair, password, stored)
            failure = failures.ACCOUNTS_UNAVAILABLE if self.is_unreadable(pair.user) else None
            for each in requests:
                if known is None:
                    each.gone()
                else:
                    each.done(pair.user if known else None, None, failure)

        def starts() -> bool:
            return any(each.requester.waits for each in requests) and self._known(pair) is None

        is_new = not self._present[pair.client] and not self.guessing.failed_lately(pair.client, self._loop.now)
        self._present[pair.client] += 1
        labels = site_key(requester.client_ip), f"{pair.client} {pair.user}"
        turn = (network_key(requester.client_ip), pair.client) if is_new else None
        self._threads.submit(labels, partial(check, password, stored), ended, starts, turn)

    def _renew(self, pair: _Pair, password: bytes, previous: bytes) -> None:
        """Have the foreign hash, whose password this is, replaced by one of our own."""
        account_id = self._directory.account_id(pair.user)
        if account_id is None or self._directory.stored(pair.user) != previous:
            return

        def hashed(renewed: Any) -> None:
            if isinstance(renewed, bytes):
                self.on_renewed(account_id, previous, renewed)

        self._threads.submit((pair.client, pair.user), partial(hash_anew, password), hashed, lambda: True)

    def _uncount(self, client: str) -> None:
        self._present[client] -= 1
        if not self._present[client]:
            del self._present[client]

    def _known(self, pair: _Pair) -> bool | None:
        """Whether it is right, as far as that is known without a check; None when it has to be checked."""
        now, stored = self._loop.now, self._directory.stored(pair.user)
        paused = self.guessing.paused(pair.client, pair.user, now)
        if self._is_right(pair.user, pair.digest, paused):
            return True
        until, wrong_for = self._wrong.get(pair.digest, (0.0, None))
        return False if paused or (until > now and wrong_for == stored) else None

    def _record_result(self, pair: _Pair, stored: bytes | None, matches: bool) -> bool:
        """Whether the pair is right: `stored`, the hash that the password was checked against, is still the user's."""
        now = self._loop.now
        if matches and stored:
            if not self._directory.is_password(pair.user, stored):
                return False
            keep(self._good, pair.digest, (now + REMEMBERED, stored), CACHE_SIZE)
            return True
        keep(self._wrong, pair.digest, (now + WRONG_REMEMBERED, stored), CACHE_SIZE)
        if self.guessing.failed(pair.client, pair.user, now):
            text = f"{pair.client} sent so many that new ones from there are not checked for {PAUSE:g} s"
            self._failures.error(text, logging.WARNING)
        return False


def _on_decided(done: OnChecked, user: str | None, failure: Failure | None = None, /) -> None:
    done(user, None, failure)


TESTERS_MAX = 64


class Tester:
    """One test. `request_id` is the id that its record gets; empty for one of its own."""

    __slots__ = ("detail", "reason", "request_id", "until", "upstream", "user")

    def __init__(self, user: str, request_id: str, until: float) -> None:
        self.user = user
        self.request_id = request_id
        self.until = until
        self.upstream = ""
        """The upstream that it went through."""
        self.reason = ""
        self.detail = ""
        """Why it was refused or failed, as in its access record."""

    def __repr__(self) -> str:
        return f"<Tester {self.user}>"


class Testers:
    """The tests that are expected, and the last ones that came."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._awaited: dict[tuple[str, bytes], Tester] = {}
        self._known: dict[str, Tester] = {}

    def expect(self, user: str, token: str, request_id: str, ttl: float) -> None:
        """Accept these credentials once within `ttl` seconds; the token is empty where the protocol has no
        passwords."""
        tester, key = Tester(user, request_id, self._loop.now + ttl), (user, token.encode())
        keep(self._awaited, key, tester, TESTERS_MAX)
        keep(self._known, user, tester, TESTERS_MAX)

        def expire() -> None:
            if self._awaited.get(key) is tester:
                del self._awaited[key]

        self._loop.call_later(ttl, expire)

    def redeem(self, user: str | None, password: bytes | None) -> Tester | None:
        """The test with these credentials, which are invalid from now on; None without one."""
        if user is None or not self._awaited:
            return None
        tester = self._awaited.pop((user, password or b""), None)
        return tester if tester is not None and tester.until > self._loop.now else None

    def report_of(self, user: str) -> ReportOfTest:
        """The result of the test with this user, as far as known. The test is over, so its credentials are invalid."""
        for key in [key for key in self._awaited if key[0] == user]:
            del self._awaited[key]
        tester = self._known.get(user)
        return ReportOfTest() if tester is None else ReportOfTest(tester.upstream or None, tester.reason, tester.detail)

    def __len__(self) -> int:
        """Tests that are expected."""
        return len(self._awaited)
