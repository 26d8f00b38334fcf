"""The checks of a run, and the tables of its faults and their effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from soaking.changes import REFUSALS, Called
from soaking.faults import REFUSED, Fault, Journal
from soaking.traffic import SUCCEEDED, Attempt

_HARM = (
    *("kill supervisor", "disk full", "descriptors of api", "descriptors of supervisor", "kill api", "hang api"),
    *("kill tls", "kill zygote", "descriptors of forwarding"),
)

PRINTED = 12
"""Findings of one check that are printed one by one."""


@dataclass(frozen=True, slots=True)
class Check:
    """One requirement: `found` violates it."""

    what: str
    found: Sequence[str]

    @property
    def passed(self) -> bool:
        """True if it holds."""
        return not self.found


def traffic_checks(attempts: Sequence[Attempt], journal: Journal) -> list[Check]:
    """Wrong bytes and refused connections apart from the rest."""
    bad = [each for each in attempts if each.result != SUCCEEDED]
    unexplained = [
        (
            each,
            f"{each.proxy}: {each.result} after {each.end - each.begin:.2f} s {each.detail}, {_around(each, journal)}",
        )
        for each in bad
        if journal.explain(each.result, each.proxy, each.begin, each.end) is None
    ]
    return [
        Check(
            "no client got other bytes than it asked for",
            [text for each, text in unexplained if each.result == "wrong"],
        ),
        Check(
            "no connection was refused while the supervisor lived",
            [text for each, text in unexplained if each.result == REFUSED],
        ),
        Check(
            "no request failed but those of the process that was killed",
            [text for each, text in unexplained if each.result not in ("wrong", REFUSED)],
        ),
    ]


def api_checks(calls: Sequence[Called], journal: Journal) -> list[Check]:
    """Calls may fail during a fault, and only with the statuses in `REFUSALS`."""
    strange = [call for call in calls if isinstance(call.status, int) and call.status not in {200, 201} | REFUSALS]
    unprovoked = [
        call
        for call in calls
        if call.status not in (200, 201) and call not in strange and not journal.around(call.begin, call.end)
    ]
    return [
        Check("no call of the API was refused as wrong", [_call(each, journal) for each in strange]),
        Check("no call of the API failed but while a fault was there", [_call(each, journal) for each in unprovoked]),
    ]


def table_of_checks(checks: Iterable[Check]) -> str:
    """In Markdown."""
    rows = [f"| {check.what} | {'yes' if check.passed else f'**no**: {len(check.found)}'} |" for check in checks]
    return "\n".join(["| what has to hold | held |", "|---|---|", *rows])


def table_of_faults(journal: Journal, attempts: Sequence[Attempt], calls: Sequence[Called]) -> str:
    """In Markdown: each kind of fault, how often, how long until all ran again, and its effects on clients."""
    rows = [
        "| what was done | times | longest until all ran again | requests cut, late or failed | API calls that failed |"
    ]
    rows.append("|---|---:|---:|---:|---:|")
    bad = [each for each in attempts if each.result != SUCCEEDED]
    failed = [call for call in calls if call.status not in (200, 201)]
    blamed = Counter(_blamed(journal.around(call.begin, call.end)) for call in failed)
    for kind, faults in sorted(_by_kind(journal.faults).items()):
        longest = max((fault.end or fault.begin) - fault.begin for fault in faults)
        affected = sum(any(f.covers(e.begin, e.end) and f.explains(e.result, e.proxy) for f in faults) for e in bad)
        rows.append(f"| {kind} | {len(faults)} | {longest:.1f} s | {affected} | {blamed[kind]} |")
    return "\n".join(rows)


def summary(attempts: Sequence[Attempt], calls: Sequence[Called], seconds: float) -> list[str]:
    """Totals of the run."""
    results = Counter(each.result for each in attempts)
    per_second = results[SUCCEEDED] / seconds
    others = ", ".join(f"{count} {name}" for name, count in results.items() if name != SUCCEEDED) or "none else"
    succeeded = sum(call.status in (200, 201) for call in calls)
    return [
        f"{results[SUCCEEDED]} attempts of clients succeeded ({per_second:.0f} a second); {others}",
        f"{succeeded} of {len(calls)} calls of the API succeeded",
    ]


def _blamed(kinds: Sequence[str]) -> str:
    """The one of several faults at a time that a failed call is counted for: the longest and gravest."""
    return min(kinds, key=lambda kind: _HARM.index(kind) if kind in _HARM else len(_HARM), default="")


def _around(each: Attempt, journal: Journal) -> str:
    return f"during {', '.join(journal.around(each.begin, each.end)) or 'nothing'}"


def _call(call: Called, journal: Journal) -> str:
    around = ", ".join(journal.around(call.begin, call.end)) or "nothing"
    return f"{call.what}: {call.status} after {call.end - call.begin:.2f} s, during {around}: {call.detail}"


def _by_kind(faults: Sequence[Fault]) -> dict[str, list[Fault]]:
    found: dict[str, list[Fault]] = {}
    for fault in faults:
        found.setdefault(fault.kind, []).append(fault)
    return found
