"""The state of one upstream, in a line of a table (`actors.state.table`).

Of a pool all processes share it: what one has learned holds for all at once. Of a proxy's own upstreams each of its
workers has a line. States and transitions are the same:

========= ============================================ =====================================================
state     what is known                                and then
========= ============================================ =====================================================
unknown   nothing yet; it is used as if it were up     a success: up; a failure: down
up        its last use or check has succeeded          a failure to connect or a 407: down; so are
                                                       ambiguous ones for three targets in a row
down      it has failed; it is not used in its         then one use or check is made at a time (a trial):
          cool-down                                    a success: up; a failure: another cool-down
========= ============================================ =====================================================

A failure of each kind (`KINDS`) has a cool-down of its own, doubled each time until a success. A success ends those of
`connect` and `407`; those of `429` and `5xx` always last to their end, since the success of another request says
nothing about them. A ban is the verdict of a client's program, and only its end or another verdict lifts it.

Times are those of the loop, of the monotonic clock; 0 is none. `actors.pools.state` says what may be lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

Numbers: TypeAlias = "memoryview[float]"
"""Numbers of 64 bits, aligned: each is written at once, so no reader sees half of one."""
SLOT: Final = 60
"""Words of a slot."""

KINDS = ("connect", "407", "429", "5xx")
"""Kinds of failures, each with a cool-down: the keys of `PoolSpec.cooldown`."""
_ENDED_BY_SUCCESS = 2
"""So many of them bring it down, and a success ends their cool-downs."""
STATES = ("unknown", "up", "down")
ERRORS = ("", "unreachable", "handshake", "credentials", "ambiguous", "status", "no_file")
"""Codes of the last error: not reached; reached, then failed; our credentials rejected; maybe the target's fault; a
status of its own; `ca_file` unusable."""
LATENCY_WEIGHT = 0.2
"""Weight of the newest measurement in the running mean."""
SHORTEST_DOUBLED = 1.0
"""Seconds of the second cool-down in a row where the first is 0."""

_DOWN, _UP = 2.0, 1.0

(
    STATE,
    SINCE,
    FAILURES,
    TARGET,
    READY_AT,
    TRIAL_UNTIL,
    LATENCY,
    ERROR,
    ERROR_AT,
    CHECKS,
    CHECKS_FAILED,
    BANS,
    BANNED_UNTIL,
    DOUBTED_UNTIL,
    *_COOLDOWNS,
) = range(14 + 2 * len(KINDS))
"""Places of the words. `READY_AT` is the greatest of those from `BANNED_UNTIL` to the last end of a cool-down. The
checks are counted by the process that makes them, bans by the API. `TARGET` and `OTHER_TARGET` stand for the targets of
ambiguous failures in a row."""
_UNTIL = _COOLDOWNS[0]
_LENGTH = _COOLDOWNS[len(KINDS)]
_TEXT = 28
LATENCY_AT, OTHER_TARGET, FAILED_EVER, CONNECTIONS, BYTES_IN, BYTES_OUT = range(_TEXT - 6, _TEXT)
"""`FAILED_EVER` counts all failures, and the last three what clients have used. Of a pool all processes count them, and
of two at the same moment one may be lost."""
assert _LENGTH + len(KINDS) <= LATENCY_AT, "there is no room for so many kinds of failures"
_TEXT_SIZE = 8 * (SLOT - _TEXT)

Spans = tuple[tuple[float, float], ...]


class Health(NamedTuple):
    """What a slot says. Times are of the monotonic clock, those that have passed and those that are none 0.

    `cooldown` is the kind of the cool-down that ends last, empty for none. `latency` is in seconds, None before the
    first measurement. `error` is one of `ERRORS`.
    """

    state: str
    since: float
    failures: int
    cooldown: str
    cooldown_until: float
    banned_until: float
    latency: float | None
    error: str
    error_at: float
    last_error: str | None
    checks: int
    checks_failed: int
    bans: int


def spans_of(cooldown: Mapping[str, tuple[float, float]]) -> Spans:
    """Seconds from and to, in the order of `KINDS`; of a kind that is missing none."""
    return tuple(cooldown.get(kind, (0.0, 0.0)) for kind in KINDS)


class Uses(NamedTuple):
    """What clients have used of an upstream."""

    connections: int
    bytes_in: int
    bytes_out: int


class UpstreamSlot:
    """`now` is always the loop's clock."""

    __slots__ = ("_at", "_raw", "_words", "spans")

    def __init__(self, spans: Spans) -> None:
        self.spans = spans
        self._words: Numbers
        self._raw: memoryview
        self._at = 0

    def place(self, words: Numbers, raw: memoryview, at: int) -> None:
        """From now on it is the slot that begins at the word `at`."""
        self._words, self._raw, self._at = words, raw, at

    # --- reading ---

    @property
    def state(self) -> str:
        """One of `STATES`."""
        return STATES[int(self._words[self._at + STATE])]

    @property
    def since(self) -> float:
        """Since when it is in that state; 0 while nothing is known."""
        return float(self._words[self._at + SINCE])

    @property
    def is_down(self) -> bool:
        """Whether it has failed and not worked since."""
        return bool(self._words[self._at + STATE] == _DOWN)

    def is_banned(self, now: float) -> bool:
        """Whether a client's program has reported it."""
        return bool(now < self._words[self._at + BANNED_UNTIL])

    @property
    def ready_at(self) -> float:
        """When ban and cool-downs are over; maybe past."""
        return float(self._words[self._at + READY_AT])

    @property
    def paused_until(self) -> float:
        """When the cool-downs are over that a success does not end; maybe past."""
        words, at = self._words, self._at + _UNTIL
        return max(words[at + kind] for kind in range(_ENDED_BY_SUCCESS, len(KINDS)))

    @property
    def last_error(self) -> str | None:
        """The text of the last error, cut; None before the first, and when it has worked since."""
        if not self._words[self._at + FAILURES]:
            return None
        start = 8 * (self._at + _TEXT)
        text = bytes(self._raw[start : start + _TEXT_SIZE]).partition(b"\0")[0]
        return text.decode("utf-8", "ignore") or None

    @property
    def latency(self) -> float | None:
        """Seconds that clients wait for it lately; None before the first measurement."""
        return self._words[self._at + LATENCY] or None

    @property
    def measured_at(self) -> float:
        """When that was measured last."""
        return float(self._words[self._at + LATENCY_AT])

    @property
    def failed_at(self) -> float:
        """When it failed last."""
        return float(self._words[self._at + ERROR_AT])

    @property
    def failed_ever(self) -> int:
        """How often it has failed."""
        return int(self._words[self._at + FAILED_EVER])

    @property
    def uses(self) -> Uses:
        """What clients have used, as it was counted here."""
        return Uses(*map(int, self._words[self._at + CONNECTIONS : self._at + BYTES_OUT + 1]))

    @property
    def error(self) -> str:
        """The code of the last error, one of `ERRORS`."""
        return ERRORS[int(self._words[self._at + ERROR])]

    def eligible(self, now: float) -> bool:
        """Whether it may be used: not banned, in no cool-down, and if it is down in no trial."""
        words, at = self._words, self._at
        if now < words[at + READY_AT]:
            return False
        return words[at + STATE] != _DOWN or now >= words[at + TRIAL_UNTIL]

    def health(self, now: float) -> Health:
        """All of it."""
        words, at = self._words, self._at
        untils = words[at + _UNTIL : at + _LENGTH].tolist()
        until = max(untils)
        return Health(
            self.state,
            words[at + SINCE],
            int(words[at + FAILURES]),
            KINDS[untils.index(until)] if until > now else "",
            until if until > now else 0.0,
            words[at + BANNED_UNTIL] if words[at + BANNED_UNTIL] > now else 0.0,
            self.latency,
            self.error,
            words[at + ERROR_AT] if words[at + FAILURES] else 0.0,
            self.last_error,
            int(words[at + CHECKS]),
            int(words[at + CHECKS_FAILED]),
            int(words[at + BANS]),
        )

    def cooldown_length(self, kind: str) -> float:
        """Seconds of its last cool-down of this kind; 0 when a success came after it."""
        return float(self._words[self._at + _LENGTH + KINDS.index(kind)])

    # --- what processes learn ---

    def take_over(self, now: float) -> None:
        """From now on it is this process that knows it: attempts that were under way have ended with another one."""
        words, at = self._words, self._at
        words[at + TRIAL_UNTIL] = words[at + DOUBTED_UNTIL] = 0.0
        words[at + SINCE] = words[at + SINCE] or now
        self._settle()

    def part(self) -> None:
        """From now on it is memory of this process alone, with what is known."""
        raw = memoryview(bytearray(self._raw[8 * self._at : 8 * (self._at + SLOT)]))
        self.place(raw.cast("d"), raw, 0)

    def count_use(self, connections: int, bytes_in: int, bytes_out: int) -> None:
        """Count what a client has used."""
        words, at = self._words, self._at + CONNECTIONS
        words[at] += connections
        words[at + 1] += bytes_in
        words[at + 2] += bytes_out

    def begin_trial(self, now: float, longest: float) -> None:
        """Record the beginning of an attempt. While it is down that is the trial, for `longest` seconds at most."""
        if self.is_down:
            self._words[self._at + TRIAL_UNTIL] = now + longest

    def doubt(self, now: float, longest: float) -> None:
        """Leave it out until a success or a failure, for `longest` seconds at most."""
        self._words[self._at + DOUBTED_UNTIL] = now + longest
        self._settle()

    def record_latency(self, now: float, latency: float) -> None:
        """Record that a client, or a check, has waited so many seconds for it."""
        self._words[self._at + LATENCY_AT] = now
        mean = self._words[self._at + LATENCY]
        self._words[self._at + LATENCY] = mean + LATENCY_WEIGHT * (latency - mean) if mean else latency

    def succeeded(self, now: float) -> bool:
        """Record a success. Returns True when it was down before."""
        words, at = self._words, self._at
        if words[at + STATE] == _UP and words[at + FAILURES] == words[at + DOUBTED_UNTIL] == 0.0:
            return False
        was_down = words[at + STATE] == _DOWN
        if words[at + STATE] != _UP:
            words[at + STATE], words[at + SINCE] = _UP, now
        words[at + TARGET] = words[at + OTHER_TARGET] = words[at + TRIAL_UNTIL] = words[at + DOUBTED_UNTIL] = 0.0
        self._end_cooldowns(now)
        self._settle()
        return bool(was_down)

    def failed(self, now: float, kind: str, error: str, cause: str, retry_after: float = 0.0) -> bool:
        """Record a failure of its own, and begin its cool-down, which lasts at least `retry_after` seconds.

        Returns True when it goes down with that.
        """
        words, at = self._words, self._at
        self._record(now, error, cause)
        went_down = kind in KINDS[:_ENDED_BY_SUCCESS] and words[at + STATE] != _DOWN
        if went_down:
            words[at + STATE], words[at + SINCE] = _DOWN, now
        self._cool(now, KINDS.index(kind), retry_after)
        words[at + TRIAL_UNTIL] = words[at + DOUBTED_UNTIL] = 0.0
        self._settle()
        return went_down

    def suspect(self, now: float, cause: str, target: float) -> bool:
        """Record a failure that may be the target's (`actors.pools.upstream.target_mark`).

        Returns True, and records nothing, when it is the upstream's after all: it is down, or it has failed with two
        other targets since its last success.
        """
        words, at = self._words, self._at
        for place in () if self.is_down else (TARGET, OTHER_TARGET):
            if words[at + place] in (0.0, target):
                words[at + place] = target
                self._record(now, "ambiguous", cause)
                return False
        return True

    def count_check(self, failed: bool) -> None:
        """Count a check; for the process that makes them."""
        self._words[self._at + CHECKS] += 1.0
        if failed:
            self._words[self._at + CHECKS_FAILED] += 1.0

    # --- what is decided ---

    def ban(self, until: float) -> None:
        """Leave it out until then; for the API alone."""
        self._words[self._at + BANNED_UNTIL] = until
        self._words[self._at + BANS] += 1.0
        self._settle()

    def lift(self, now: float) -> None:
        """End its ban and all cool-downs; one that is down is used as if nothing were known. For the API alone."""
        words, at = self._words, self._at
        if self.is_down:
            words[at + STATE], words[at + SINCE] = 0.0, now
        for place in (BANNED_UNTIL, DOUBTED_UNTIL, TRIAL_UNTIL, FAILURES, TARGET, OTHER_TARGET, *_COOLDOWNS):
            words[at + place] = 0.0
        self._settle()

    def reset_cooldowns(self) -> None:
        """End its cool-downs, but no ban: it is configured differently, so the next use is a trial."""
        for place in (DOUBTED_UNTIL, TRIAL_UNTIL, *_COOLDOWNS):
            self._words[self._at + place] = 0.0
        self._settle()

    # --- words ---

    def _record(self, now: float, error: str, cause: str) -> None:
        words, at = self._words, self._at
        words[at + FAILURES] += 1.0
        words[at + FAILED_EVER] += 1.0
        words[at + ERROR], words[at + ERROR_AT] = float(ERRORS.index(error)), now
        text = cause.encode("utf-8", "replace")[:_TEXT_SIZE].ljust(_TEXT_SIZE, b"\0")
        start = 8 * (at + _TEXT)
        self._raw[start : start + _TEXT_SIZE] = text

    def _cool(self, now: float, kind: int, retry_after: float) -> None:
        words, until, length = self._words, self._at + _UNTIL + kind, self._at + _LENGTH + kind
        first, longest = self.spans[kind]
        if longest <= 0.0:
            return
        if now >= words[until] or now < words[self._at + TRIAL_UNTIL]:  # else several failed at the same time
            seconds = min(2 * words[length], longest) if words[length] else first
            words[length] = seconds or SHORTEST_DOUBLED / 2
            words[until] = now + seconds
        words[until] = max(words[until], now + retry_after)

    def _end_cooldowns(self, now: float) -> None:
        words, at = self._words, self._at
        left = False
        for kind in range(len(KINDS)):
            if kind < _ENDED_BY_SUCCESS or now >= words[at + _UNTIL + kind]:
                words[at + _UNTIL + kind] = words[at + _LENGTH + kind] = 0.0
            else:
                left = True
        if not left:
            words[at + FAILURES] = 0.0

    def _settle(self) -> None:
        """Compute `READY_AT` until it is right: another process may have changed a part of it meanwhile."""
        words, at = self._words, self._at
        while (ready := max(words[at + BANNED_UNTIL : at + _LENGTH].tolist())) != words[at + READY_AT]:
            words[at + READY_AT] = ready

    def __repr__(self) -> str:
        failures = int(self._words[self._at + FAILURES])
        return f"<UpstreamSlot {self.state}, {failures} failures, ready at {self.ready_at:g}>"
