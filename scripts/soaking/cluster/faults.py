"""What each drill of a fleet may cause: on traffic, on calls of the API, and in the log. Nothing else may fail.

Calls are of two kinds. A *change* needs the database. What *goes on* does not: reads, sign-ins, credentials. Traffic
needs nothing but its node.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from soaking.changes import Called
from soaking.faults import CUT, FAILED, LATE, REFUSED, Fault, Journal

AFTER = 12.0
"""Seconds after a drill in which a node may not be connected yet: a heartbeat, probes, and the wait for a lock."""
_GOES_ON = re.compile(r"GET |POST sign|POST token|POST accounts/credentials|DELETE accounts/credentials")


@dataclass(frozen=True, slots=True)
class May:
    """Results of traffic, and statuses of changes and of what goes on, by the target of the drill or by all nodes."""

    traffic: frozenset[str] = frozenset()
    changes: frozenset[int | str] = frozenset()
    goes_on: frozenset[int | str] = frozenset()


_AWAY = May(changes=frozenset({503}))
_DEAD = May(
    frozenset({CUT, REFUSED, LATE, FAILED}),
    frozenset({"cut", "refused", "late", 503}),
    frozenset({"cut", "refused", "late", 503, 401}),
)
MAY: dict[str, May] = {
    "database stopped": _AWAY,
    "database killed": _AWAY,
    "database hangs": _AWAY,
    "backend hangs": _AWAY,
    "database cut": _AWAY,
    "database slow": _AWAY,
    "node killed": _DEAD,
    "node away": _DEAD,
}


class FleetJournal(Journal):
    """Clients are named by their node and what they use there: `one/http`."""

    def explains(self, result: str, target: str, begin: float, end: float) -> bool:
        node = target.partition("/")[0]
        return any(
            each.covers(begin, end) and each.target in ("", node) and result in MAY[each.kind].traffic
            for each in self.faults
        )


def allows(fault: Fault, call: Called) -> bool:
    """True if the result of a call may follow from the fault."""
    may = MAY[fault.kind]
    if fault.target not in ("", call.where):
        # who waits for a lock that a dead or stopped node has
        return call.status == 503 and not goes_on(call.what)
    return call.status in (may.goes_on if goes_on(call.what) else may.changes)


def goes_on(what: str) -> bool:
    """Whether a call needs no database."""
    return _GOES_ON.match(what) is not None


def covers(fault: Fault, begin: float, end: float) -> bool:
    """True if the drill, or what follows it, was while a call was under way."""
    return begin <= (fault.end or end) + AFTER and end >= fault.begin


def unexplained_calls(calls: Sequence[Called], journal: Journal) -> list[str]:
    """Those that failed as no drill allows."""
    found = []
    for each in calls:
        if each.status in (200, 201):
            continue
        around = [fault for fault in journal.faults if covers(fault, each.begin, each.end)]
        if not any(allows(fault, each) for fault in around):
            names = ", ".join(f"{fault.kind} {fault.target}".strip() for fault in around) or "nothing"
            seconds = each.end - each.begin
            found.append(
                f"{each.what} at {each.where}: {each.status} after {seconds:.2f} s, during {names}: {each.detail}"
            )
    return found


_DB = r"(database .*|backend hangs|node .*)"
LINES = (
    (r"the heartbeat of this node fails", _DB),
    (r"the database does not announce commits", _DB),
    (r"can't be let in", _DB),
    (r"usage .* not reported|is not reported|cannot be reported", _DB),
    (r" died: process \d+ was killed by SIGKILL", r"node .*"),
)
"""Lines of the log from `warning` on, and the drills that they follow from."""
