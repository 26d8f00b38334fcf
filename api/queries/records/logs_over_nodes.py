"""Access records of several nodes as those of one: each searches its own, and what they find is merged by time.

A cursor has the position of each node. One that does not respond keeps the position that it had: so a later page, with
that node again, repeats nothing and leaves nothing out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import Any, NamedTuple, TypeVar

from actors.bus.messages.common import LOGS, Failed
from actors.bus.messages.records import CountLogs, LogCounts, LogPage, LogTailPage, QueryLogs, TailLogs
from actors.logs.record_schema import TIMESTAMP, empty_record
from api.bus_bridge import Bridge, checked, node_id_of, on_node
from api.errors import Invalid, OperationFailed, PeerUnavailable
from api.http.query import cursor_content, cursor_text, foreign_cursor
from api.objects.nodes.asked_nodes import AskedNodes

SEARCH_TIMEOUT = 10.0
PAGE_MAX = 1000
VALUES_OF_EACH = 100
"""The most frequent values that each node is asked for."""
_PAGE, _TAIL = 4, 5
_EVER = 2**63 - 1
_LATEST = 1e12
_LAST_MOMENT = 253_402_300_799
"""Unix time of the last second that can be written."""
_EMPTY, _NEEDED = empty_record(), {TIMESTAMP, "proxy_id", "response_time"}

Position = tuple[int, int, int]
"""Time in microseconds and number of a record, below which a page begins, and the last record that it may have."""
Row = dict[str, Any]
R = TypeVar("R", LogPage, LogTailPage, LogCounts)


@dataclass(frozen=True, slots=True)
class NodesCursor:
    """Of a page. `positions` are by node, None of one that has no more."""

    start: float
    end: float
    filters: int
    positions: Mapping[str, Position | None]

    def text(self) -> str:
        """As `next_cursor`."""
        return cursor_text([_PAGE, self.start, self.end, self.filters, dict(self.positions)])

    @classmethod
    def of(cls, text: str) -> NodesCursor:
        """Raises `ValueError`."""
        start, end, filters, positions = cursor_content(text, _PAGE, 4)
        if not (_is_time(start) and _is_time(end) and _is_number(filters) and _is_of_nodes(positions, _position)):
            raise foreign_cursor()
        found = {node: None if each is None else (each[0], each[1], each[2]) for node, each in positions.items()}
        return cls(float(start), float(end), filters, found)


def tail_text(after: Mapping[str, int]) -> str:
    """The cursor of a tail that continues after these records, by node."""
    return cursor_text([_TAIL, dict(after)])


def tail_of(text: str) -> dict[str, int]:
    """The inverse of `tail_text`. Raises `ValueError`."""
    (after,) = cursor_content(text, _TAIL, 1)
    if not _is_of_nodes(after, _is_number):
        raise foreign_cursor()
    return dict(after)


def _is_of_nodes(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(isinstance(node, str) and fits(each) for node, each in value.items())


def _position(value: Any) -> bool:
    return value is None or (isinstance(value, list) and len(value) == 3 and all(map(_is_number, value)))


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < _LATEST


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _EVER


class NodesPage(NamedTuple):
    """Rows as in `LogPage`, each with its `node`; the positions behind them, and the last records, by node."""

    rows: Sequence[Row]
    total: int
    at_least: bool
    has_more: bool
    positions: Mapping[str, Position | None]
    upto: Mapping[str, int]


class NodesTail(NamedTuple):
    """Rows as in `NodesPage`, the oldest first, and the records after which the next tail begins."""

    rows: Sequence[Row]
    after: Mapping[str, int]


class LogsOverNodes:
    """The records of the nodes that one request asks; those that do not respond are noted in `nodes`.

    Methods raise `Invalid`, `OperationFailed` and `PeerUnavailable`, as `LogSearch`, when this node can't reply.
    """

    def __init__(self, bridge: Bridge, nodes: AskedNodes) -> None:
        self.nodes = nodes
        self._bridge = bridge
        here = {nodes.own_id: LOGS} if nodes.here else {}
        self._addresses = {**here, **{each.id: on_node(each.id, LOGS) for each in nodes.others}}

    def page(self, query: QueryLogs, positions: Mapping[str, Position | None]) -> NodesPage:
        """One page, newest first, from these positions on. An offset is fetched and left out."""
        first: NodesPage | None = None
        skip = query.offset
        while True:
            limit = min(skip, PAGE_MAX) if skip else query.limit
            asked = replace(query, offset=0, keyed=True, limit=limit, count=query.count and first is None)
            part = self._part(asked, positions)
            first = first or part
            if not skip or not part.has_more:
                return part._replace(rows=[] if skip else part.rows, total=first.total, at_least=first.at_least)
            if not part.rows:
                raise OperationFailed("The log can't be read")
            skip, positions = skip - len(part.rows), part.positions

    def pages(self, query: QueryLogs, limit: int) -> Iterator[Sequence[Row]]:
        """All of them. Once the first is read, a node that does not respond raises `PeerUnavailable`."""
        page = self.page(replace(query, limit=limit, count=False), {})
        missing = set(self.nodes.missing)
        yield page.rows
        while page.has_more:
            page = self.page(replace(query, limit=limit, count=False), page.positions)
            for name in self.nodes.missing.keys() - missing:
                raise PeerUnavailable(name, self.nodes.missing[name])
            yield page.rows

    def _part(self, query: QueryLogs, positions: Mapping[str, Position | None]) -> NodesPage:
        everywhere = {node: positions.get(node, (_EVER, _EVER, _EVER)) for node in self._addresses}
        begin = {node: at for node, at in everywhere.items() if at is not None}
        pages = self._ask({node: _from(query, at) for node, at in begin.items()}, LogPage, SEARCH_TIMEOUT)
        # of one that had no time to read further, nothing below that is known
        floor = max((page.next[0] for page in pages.values() if page.next and len(page.rows) < query.limit), default=-1)
        found = [
            (key[0], node, row)
            for node, page in pages.items()
            for key, row in zip(page.keys, page.rows, strict=True)
            if key[0] > floor
        ]
        taken = sorted(found, key=lambda each: each[0], reverse=True)[: query.limit]
        behind = dict(positions)
        for node, page in pages.items():
            behind[node] = _behind(page, sum(each[1] == node for each in taken), begin[node])
        return NodesPage(
            [self._named(node, row) for _time, node, row in taken],
            sum(page.total for page in pages.values()),
            any(page.at_least for page in pages.values()),
            any(behind[node] is not None for node in pages),
            behind,
            {node: page.upto for node, page in pages.items()},
        )

    def tail(self, query: QueryLogs, after: Mapping[str, int], wait: float) -> NodesTail:
        """What is new on any of them, or nothing after `wait` seconds."""
        each_limit = replace(query, limit=max(1, query.limit // max(1, len(self._addresses))))
        asked = {node: TailLogs(each_limit, after.get(node), wait) for node in self._addresses}
        tails = self._ask(asked, LogTailPage, wait + SEARCH_TIMEOUT)
        found = [self._named(node, row) for node, tail in tails.items() for row in tail.rows]
        return NodesTail(
            sorted(found, key=lambda row: row["timestamp"]),
            {**after, **{node: tail.last for node, tail in tails.items()}},
        )

    def count(self, message: CountLogs, timeout: float = SEARCH_TIMEOUT) -> LogCounts:
        """Their sums. The most frequent values are exact where no node has more than it was asked for."""
        most = max(message.most, VALUES_OF_EACH) if self.nodes.are_several else message.most
        asked = dict.fromkeys(self._addresses, replace(message, most=most))
        counts = list(self._ask(asked, LogCounts, timeout).values())
        if not counts:
            return LogCounts(int(message.query.start // message.step) * message.step, (), (), {}, False)
        is_whole = len(counts) == 1 or all(len(each) < most for count in counts for each in count.values.values())
        return LogCounts(
            counts[0].start,
            tuple(map(sum, zip_longest(*(each.records for each in counts), fillvalue=0))),
            tuple(map(sum, zip_longest(*(each.failed for each in counts), fillvalue=0))),
            {name: _united([each.values.get(name, ()) for each in counts], message.most) for name in message.fields},
            is_whole and all(each.exact for each in counts),
        )

    def _ask(self, requests: Mapping[str, Any], kind: type[R], timeout: float) -> dict[str, R]:
        """By node, the replies of those that reply."""
        messages = {self._addresses[node]: message for node, message in requests.items()}
        messages = {to: message for to, message in messages.items() if not self.nodes.is_missing(to)}
        replies = self._bridge.ask_all(messages, timeout) if messages else {}
        found: dict[str, R] = {}
        for to, reply in replies.items():
            node = node_id_of(to) or self.nodes.own_id
            if isinstance(reply, kind) and (not node_id_of(to) or _is_of_a_node(reply)):
                found[node] = reply
            elif isinstance(reply, Failed) and reply.field is not None:
                raise Invalid(reply.field, reply.error)
            elif not self.nodes.note(to, reply):
                checked(to, reply, Failed)
                raise OperationFailed("The log can't be read")
        return found

    def _named(self, node: str, row: Row) -> Row:
        return {**row, **self.nodes.of_record(self._addresses[node])}


def _is_of_a_node(reply: LogPage | LogTailPage | LogCounts) -> bool:
    """Whether a node replies so, maybe one of another release: a stolen edge node may reply anything."""
    if isinstance(reply, LogCounts):
        return True
    if isinstance(reply, LogTailPage):
        numbers = [reply.last]
    elif len(reply.keys) != len(reply.rows):
        return False
    else:
        numbers = [reply.total, reply.upto, *chain(*reply.keys), *(reply.next or ())]
    return all(map(_is_number, numbers)) and all(map(_is_record, reply.rows))


def _is_record(row: Row) -> bool:
    return row.keys() >= _NEEDED and all(_is_value(name, value) for name, value in row.items())


def _is_value(name: str, value: Any) -> bool:
    if isinstance(_EMPTY.get(name, value), str):
        return isinstance(value, str)
    return type(value) in (int, float) and 0 <= value <= (_LAST_MOMENT if name == TIMESTAMP else _EVER)


def _from(query: QueryLogs, at: Position) -> QueryLogs:
    return replace(query, before=at[:2], upto=at[2])


def _behind(page: LogPage, taken: int, at: Position) -> Position | None:
    """Where the next page begins, when so many rows of this one were taken."""
    if taken == len(page.rows):
        return None if page.next is None else (*page.next, page.upto)
    return (*(page.keys[taken - 1] if taken else at[:2]), page.upto)


def _united(counted: Sequence[Sequence[tuple[str, int, int, int]]], most: int) -> tuple[tuple[str, int, int, int], ...]:
    sums: dict[str, tuple[int, int, int]] = {}
    for value, *figures in (each for those in counted for each in those):
        known = sums.get(value, (0, 0, 0))
        sums[value] = (known[0] + figures[0], known[1] + figures[1], known[2] + figures[2])
    ordered = sorted(sums.items(), key=lambda each: (-each[1][0], each[0]))[:most]
    return tuple((value, *figures) for value, figures in ordered)
