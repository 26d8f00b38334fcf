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

CLOCK_OFF = 3600, -3600
"""What a drill adds to the clock of a node, in seconds."""
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
_REWOUND = May(changes=frozenset({503, 404, 409}))
"""What a change is of may be undone."""
_NO_REPLICA = May(
    frozenset({CUT, REFUSED, LATE, FAILED}),
    frozenset({"cut", "refused", "late", 503, 401}),
    frozenset({"cut", "refused", "late", 503, 401}),
)
"""Who has signed in is read anew, of a database that may be restored at that time, too."""
_DEAD = May(
    frozenset({CUT, REFUSED, LATE, FAILED}),
    frozenset({"cut", "refused", "late", 503}),
    frozenset({"cut", "refused", "late", 503, 401}),
)
MAY: dict[str, May] = {
    "database out of connections": _AWAY,
    "database read-only": _AWAY,
    "failover that lacks commits": _REWOUND,
    "older dump put in": _REWOUND,
    "empty database": _AWAY,
    "database of another fleet": _AWAY,
    "node cut off": _AWAY,
    "node cut off one way": _AWAY,
    "links cut": May(),
    "clock an hour off": May(),
    "disk full": May(changes=frozenset({500, 503, 507}), goes_on=frozenset({500, 503, 507, 401})),
    "replica damaged": _NO_REPLICA,
    "replica deleted": _NO_REPLICA,
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
    if (call.what, call.status) == ("POST token", 401):  # it was made at another node, which can't give it on
        return may != May()
    if call.status == 503 and '"BEHIND"' in call.detail:  # it asked for a revision that can't come now
        return may != May()
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


REWOUND = r"(failover that lacks commits|older dump put in)"
DATABASE = rf"(database .*|backend hangs|node .*|empty database|{REWOUND})"
_DISK = r"disk full"
LINES = (
    (r"the heartbeat of this node fails|the database does not announce commits", DATABASE),
    (r"/fleet: |the database did not respond in time|cannot (report|count) ", DATABASE),
    (r"is not whole in the fleet's database", REWOUND),
    (r"everything is read anew|the database was restored|failed over", REWOUND),
    (r": holds no fleet|: holds the fleet", r"(empty database|database of another fleet)"),
    (r"this node can't follow the ledger", DATABASE),
    (r"the database holds (no|the) fleet", r"(empty database|database of another fleet)"),
    (r"the replica of this node was damaged or gone", r"replica .*"),
    (r"No space left on device|(database or|the) disk is full|disk I/O error|wait for the disk", _DISK),
    (r"the disk (was full|cannot be written to)", _DISK),
    (r" died: process \d+ was killed by SIGKILL| ends: the supervisor is gone", r"(node|replica) .*"),
    (r"the commit \d+ of this node is not in the database|read everything anew|holds no fleet", REWOUND),
    (r"cannot be reached|missed its liveness deadline|is starting", r"(node|replica|disk|clock) .*"),
    (r"is .* as set through the API; the configuration says", r"(node|replica) .*"),
    # the time of a file is right, so that one that is just being made seems to be an hour old
    (r"the list list: it can't be stored|the new version of the list list can't be read", r"clock .*"),
    (r"any client that reaches|the password worker: no reply|gets a change later", r".*"),
)
"""Lines of the log from `warning` on, and the drills that they follow from."""
