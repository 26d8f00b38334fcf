"""What a node says of its usage to the fleet's database, and what it gets of all nodes: a statement for each.

Hours are numbers since 1970, moments Unix seconds by the database's clock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from actors.cluster.database import Database

TOTALS_AT_ONCE = 500
"""A node takes them in less than a tenth of a second, in which nothing else is reported."""
SLOT = 10.0
"""Seconds of the database's clock in which totals change with the same number."""

_REPORT = f"SELECT * FROM proxyfleet.report_usage({', '.join(['%s'] * 23)})"  # noqa: S608 - marks
_CHANGED = "SELECT * FROM proxyfleet.changed_usage(%s, %s, %s)"
_RESET = "SELECT * FROM proxyfleet.reset_usage(%s)"
_LIMITS = f"SELECT * FROM proxyfleet.report_limits({', '.join(['%s'] * 8)})"  # noqa: S608 - marks
_WORD = 2**64


class LedgerRow(NamedTuple):
    """What a ledger has of an hour, an account and a proxy; `number` is that of its last change."""

    number: int
    hour: int
    account: str
    proxy: str
    bytes_in: int
    bytes_out: int
    requests: int
    milliseconds: int
    refusals: int


class ReportedAccount(NamedTuple):
    """An account that rows are of, or that wants a lease. `quota` is bytes, 0 for none."""

    account: str
    generation: int
    quota: int
    period: str
    wants_lease: bool
    last_seen: float
    client: str
    username: str


class LedgerReport(NamedTuple):
    """All changes after `acknowledged` up to `upto`, in their order. No later one is of an hour before `settles`."""

    acknowledged: int
    upto: int
    settles: int
    rows: Sequence[LedgerRow]
    accounts: Sequence[ReportedAccount]


class FleetTotal(NamedTuple):
    """What an account has used on all nodes. `sums` are the start, bytes in and bytes out of day, week, month, total.

    `warned` and `reached` are the starts of the periods for which a node has announced it, -1 for none. `lease` is
    bytes that this node may use beyond what it has reported, None if it has not asked, and `leased` those of all nodes.
    `warns` and `reaches`: it is this node that announces it.
    """

    account: str
    generation: int
    sums: tuple[int, ...]
    warned: int
    reached: int
    last_seen: float
    client: str
    username: str
    lease: int | None
    leased: int
    warns: bool
    reaches: bool


class ReportReply(NamedTuple):
    """`number` is the last change that the database has; without `totals` it was restored, and lacks what is later.

    `nodes` is how many the fleet has.
    """

    at: float
    number: int
    nodes: int
    totals: list[FleetTotal] | None


class TotalsCursor(NamedTuple):
    """Up to which change totals are read."""

    slot: int
    account: str


class UsageTable:
    """The database's usage, for one node. All methods wait for it, and raise `DatabaseError`."""

    def __init__(self, database: Database, node: str) -> None:
        self._database = database
        self._node = node

    def report(self, ledger: str, report: LedgerReport, warning: float) -> ReportReply:
        """Report. `warning` is the part of a quota that is announced, 0 for none; `ledger` the id of the ledger."""
        columns = [
            *_columns(report.rows, len(LedgerRow._fields)),
            *_columns(report.accounts, len(ReportedAccount._fields)),
        ]
        first = [self._node, ledger, report.acknowledged, report.upto, report.settles, warning]
        began = time.monotonic()
        [(at, number, nodes, rows)] = self._database.transaction(_REPORT, [*first, *columns])
        self._database.note_time(at, began, time.monotonic())  # the ledger's hours are the database's
        return ReportReply(at, number, nodes, None if rows is None else [_total(*each) for each in json.loads(rows)])

    def changed(self, since: TotalsCursor) -> tuple[list[FleetTotal], TotalsCursor]:
        """Totals that have changed after that, some of many, and up to which these are."""
        rows = self._database.transaction(_CHANGED, [since.slot, since.account, TOTALS_AT_ONCE])
        found = [_total(*json.loads(each[3])) for each in rows]
        if len(rows) == TOTALS_AT_ONCE:
            return found, TotalsCursor(rows[-1][1], rows[-1][2])
        # what began in the slot before may be committed later
        return found, TotalsCursor(max(since.slot, int(self._database.time() / SLOT) - 2), "")

    def limits(self, in_use: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
        """Say what is in use here of accounts with limits, six figures by key; the sums of other nodes for these."""
        rows = [(key if key < _WORD // 2 else key - _WORD, *figures) for key, figures in in_use.items()]
        [(found,)] = self._database.transaction(_LIMITS, [self._node, *_columns(rows, 7)])
        return {key % _WORD: figures for key, *figures in json.loads(found or "[]")}

    def reset(self, accounts: Iterable[str]) -> dict[str, int]:
        """Nothing is used of these on any node from now on: their generations."""
        return dict(self._database.transaction(_RESET, [_array(list(accounts))]))


def _total(row: Sequence[Any], lease: int | None, leased: int | None, warns: bool, reaches: bool) -> FleetTotal:
    account, generation, *sums, total_in, total_out, warned, reached, last_seen, client, username = row
    for place in (0, 3, 6):
        sums[place] *= 3600
    periods = (*sums, 0, total_in, total_out)
    announced = _moment(warned), _moment(reached)
    use = last_seen, client, username
    return FleetTotal(account, generation, periods, *announced, *use, lease, leased or 0, warns, reaches)


def _moment(hour: int) -> int:
    return hour * 3600 if hour >= 0 else -1


def _columns(rows: Sequence[Sequence[Any]], count: int) -> list[str]:
    return [_array(column) for column in zip(*rows, strict=True)] or ["{}"] * count


def _array(values: Sequence[Any]) -> str:
    """An array as PostgreSQL writes it: much faster than by the driver."""
    return f"{{{','.join(map(_element, values))}}}"


def _element(value: object) -> str:
    if isinstance(value, str):
        text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\0", "")
        return f'"{text}"'
    return str(value)
