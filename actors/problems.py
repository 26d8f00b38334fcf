"""The active problems of one actor: a list that is reported when it changes.

A problem is identified by its reason and its subject. Most have a beginning and an end that the actor detects
(`begins`, `ends`). Others are detected only by their effects, such as a connection that could not be made without a
descriptor (`occurred`): these are over when they have not occurred for `QUIET` seconds.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.bus.loop import Loop
from actors.bus.messages.common import Problem

QUIET = 30.0
SETTLE = 0.1
"""Seconds for which changes are collected before they are reported."""
LISTED_MAX = 20
"""Problems of one reason in a report, the oldest first: a proxy may have hundreds of upstreams."""

Key = tuple[str, str]
Report = Callable[[tuple[Problem, ...], tuple[Problem, ...]], None]
"""Called with the active problems, and with those that ended since the last report."""


class ActiveProblems:
    """`clock` returns Unix seconds. `report` may be set later; a report that is due by then reaches it."""

    def __init__(self, loop: Loop, clock: Callable[[], float], report: Report = lambda _problems, _over: None) -> None:
        self.report = report
        self._loop = loop
        self._clock = clock
        self._active: dict[Key, Problem] = {}
        self._over: dict[Key, Problem] = {}
        self._occurred: dict[str, float] = {}
        self._due = False

    def begins(self, reason: str, detail: str, subject: str = "", serves: bool = True) -> None:
        """It is active from now on; with another detail or consequence it is still the same problem."""
        key = (reason, subject)
        known = self._active.get(key)
        if known is not None and (known.detail, known.serves) == (detail, serves):
            return
        since = self._clock() if known is None else known.since
        self._active[key] = Problem(reason, detail, since, subject, serves)
        self._over.pop(key, None)
        self.report_soon()

    def ends(self, reason: str, detail: str, subject: str = "") -> None:
        """It is over, as described by `detail`; ignored if it was not active."""
        key = (reason, subject)
        known = self._active.pop(key, None)
        if known is not None:
            self._over[key] = Problem(reason, detail, known.since, subject, known.serves)
            self.report_soon()

    def occurred(self, reason: str, detail: str) -> None:
        """It had an effect once more. One that has begun, and has an end of its own, goes on until then."""
        if reason not in self._occurred:
            if (reason, "") in self._active:
                return
            self._loop.call_later(QUIET, lambda: self._check_quiet(reason))
            self.begins(reason, detail)
        self._occurred[reason] = self._loop.now

    def report_soon(self) -> None:
        """Report the list once, a moment later."""
        if not self._due:
            self._due = True
            self._loop.call_later(SETTLE, self._report)

    def _check_quiet(self, reason: str) -> None:
        left = self._occurred[reason] + QUIET - self._loop.now
        if left > 0:
            self._loop.call_later(left, lambda: self._check_quiet(reason))
            return
        del self._occurred[reason]
        self.ends(reason, f"not seen for {QUIET:.0f} s")

    def _report(self) -> None:
        self._due = False
        over, self._over = tuple(self._over.values()), {}
        self.report(self._listed(), over)

    def _listed(self) -> tuple[Problem, ...]:
        listed: list[Problem] = []
        count: dict[str, int] = {}
        for problem in self._active.values():
            count[problem.reason] = count.get(problem.reason, 0) + 1
            if count[problem.reason] <= LISTED_MAX:
                listed.append(problem)
        return tuple(listed)

    def __repr__(self) -> str:
        return f"<ActiveProblems {', '.join(' '.join(key).strip() for key in self._active) or 'none'}>"
