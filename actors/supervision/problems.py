"""The problems that actors report of themselves, and which of them are published.

A report belongs to one process. What counts is that of the current one; until a new process has made its first report,
that of the process before it counts.
"""

from __future__ import annotations

from dataclasses import replace

from actors.bus.messages.problems import Problem, ReportProblems
from actors.bus.messages.supervision import Runtime

_Key = tuple[str, str]
REPLACED = "a new process serves without it"
"""How a problem ended that the next process does not have."""


class ProblemBook:
    """The last reports, by name of the actor."""

    def __init__(self) -> None:
        self._reports: dict[str, dict[int, ReportProblems]] = {}
        self._published: dict[str, dict[_Key, Problem]] = {}

    def put(self, name: str, report: ReportProblems) -> None:
        """Store a report of a process of `name`."""
        self._reports.setdefault(name, {})[report.instance] = report

    def forget(self, name: str) -> None:
        """The actor is not to run any more."""
        self._reports.pop(name, None)
        self._published.pop(name, None)

    def changes(self, name: str, instance: int | None) -> tuple[list[Problem], list[Problem]]:
        """What has begun and what is over since the last call, by the report of the current process.

        Reports of older processes are dropped.
        """
        reports = self._reports.get(name, {})
        report = None if instance is None else reports.get(instance)
        if report is None:
            return [], []
        self._reports[name] = {number: each for number, each in reports.items() if number >= report.instance}
        before, now = self._published.get(name, {}), {_key(each): each for each in report.problems}
        how = {_key(each): each.detail for each in report.over}
        in_order = [*(key for key in how if key in before), *(key for key in before if key not in how)]
        over = [replace(before[key], detail=how.get(key, REPLACED)) for key in in_order if key not in now]
        self._published[name] = now
        return [each for key, each in now.items() if key not in before], over

    def applied(self, name: str, instance: int | None, runtime: Runtime) -> Runtime:
        """`runtime` of the actor, `degraded` when it runs and has problems."""
        reports = self._reports.get(name, {})
        if not reports or runtime.state != "running":
            return runtime
        report = reports.get(instance or 0) or reports[min(reports)]
        if not report.problems:
            return replace(runtime, certificate_ends=report.certificate_ends)
        return replace(
            runtime,
            state="degraded",
            error="; ".join(each.detail for each in report.problems),
            problems=report.problems,
            certificate_ends=report.certificate_ends,
        )


def _key(problem: Problem) -> _Key:
    return problem.reason, problem.subject
