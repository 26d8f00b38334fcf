"""The audit trails of all nodes in the database: this node's entries that no commit brings there, and searches of all.

Entries of a full node go with its next commit. What no commit has brought by the next heartbeat, such as a sign-in, is
sent after it, as an edge node, which makes no commit, sends all; and when everything was read anew.

A search is of what the database has. This node's own entries are sent before it; those of another one are there after
its next heartbeat, and those of a node that is gone stay.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from types import NoneType
from typing import Any

from actors.cluster.database import CHANGE, REPORT, Database
from actors.cluster.errors import DatabaseBusy, DatabaseError
from actors.log_lines import ThrottledLog
from api.audit.trail import GENESIS, Broken, Entry, FoundEntries, Head, Selection, Trail, error_of
from api.cluster.following.heartbeat import Beat
from api.cluster.shared_ledger import as_of_store
from api.store import StoreError
from api.store.schema import SEARCHABLE

log = logging.getLogger(__name__)

WITHIN = 60.0
"""Seconds of one statement."""
PAGE = 5_000
"""Entries that are sent at once."""
OF_BEAT = 500
"""Entries that are sent after one heartbeat, which the next one waits for."""

_LAST = "SELECT coalesce(max(seq), 0) FROM proxyfleet.audit WHERE node = %s"
_ADD = "SELECT proxyfleet.add_audit(%s, %s)"
_HEADS = """
SELECT n.node, a.seq, a.hash FROM unnest(%s::text[]) n (node) CROSS JOIN LATERAL (
    SELECT e.seq, e.hash FROM proxyfleet.audit e WHERE e.node = n.node ORDER BY e.seq DESC LIMIT 1
) a
"""
_NODES = "SELECT DISTINCT node FROM proxyfleet.audit"
_ROWS = "SELECT seq, content, hash FROM proxyfleet.audit WHERE node = %s AND seq > %s ORDER BY seq LIMIT %s"
_PATHS = {**SEARCHABLE, "resource_name": "$.resource.name"}
# Of what a stolen edge node has written in place of an entry this bounds what is read.
_CONTENT = "CASE WHEN octet_length(content) <= 262144 THEN content ELSE '' END"
_KINDS: Mapping[str, Any] = {
    **dict.fromkeys(("timestamp", "action", "outcome"), str),
    **dict.fromkeys(("address", "request_id", "operation"), (str, NoneType)),
    **dict.fromkeys(("credential", "resource", "before", "after", "details"), (dict, NoneType)),
    "actor": dict,
}
"""Fields of an entry, and what they are."""
_PARTS = {
    "actor": {"type", "user_id", "username", "role"},
    "credential": {"method", "id"},
    "resource": {"type", "id", "name"},
}
"""Of those that are maps, what they have."""


class AuditSending:
    """That of one node."""

    def __init__(self, database: Database, node: str, trail: Trail) -> None:
        self._database = database
        self._node = node
        self._trail = trail
        self._sent: int | None = None
        """The last entry that the database has, once that is known."""
        self._log = ThrottledLog(log, "entries of the audit trail wait for the database")

    @property
    def waiting(self) -> int:
        """The number of entries that the database lacks."""
        return self._trail.waiting if self._sent is None else max(0, self._trail.head.seq - self._sent)

    def send(self, most: int | None = None, within: float = WITHIN) -> None:
        """Send what the database lacks, of that the first `most` entries. Raises `DatabaseError`, `StoreError`."""
        with self._database.session() as session:
            ((last,),) = session.transaction(_LAST, [self._node], REPORT)
            entries = self._trail.after(last)[:most]
            for start in range(0, len(entries), PAGE):
                session.transaction(_ADD, [self._node, json.dumps(entries[start : start + PAGE])], within)
        self._sent = entries[-1][0] if entries else last

    def send_new(self, most: int, within: float) -> None:
        """As `send`, if there is something."""
        if self._sent is None or self._trail.head.seq > self._sent:
            self.send(most, within)

    def on_audited(self, last: int) -> None:
        """The database has the entries up to this one."""
        self._sent = last

    def on_heartbeat(self, _beat: Beat) -> None:
        """Send some of them, if there are new ones, after a heartbeat."""
        try:
            self.send_new(OF_BEAT, REPORT)
        except (DatabaseError, StoreError) as error:
            self._log.error(str(error))


class AuditTrails:
    """The `api.audit.trail.FleetTrails` of a node."""

    def __init__(self, database: Database, sending: AuditSending) -> None:
        self._database = database
        self._sending = sending

    def find(self, selection: Selection, nodes: Collection[str] | None, limit: int, offset: int) -> FoundEntries:
        """See `FleetTrails`."""
        where, values = _condition(selection, nodes)
        behind = " AND (at, node, seq) < (%s, %s, %s)" if selection.before else ""
        table = 'proxyfleet.audit_field(content, \'{timestamp}\') COLLATE "C" AS at, node COLLATE "C" AS node, seq'
        page = (
            f"SELECT at, node, seq, {_CONTENT}, hash FROM (SELECT {table}, content, hash FROM proxyfleet.audit) a"  # noqa: S608 - names are ours, values are bound
            f" WHERE {where}{behind} ORDER BY at DESC, node DESC, seq DESC LIMIT %s OFFSET %s"
        )
        count = f"SELECT count(*) FROM (SELECT {table}, content FROM proxyfleet.audit) a WHERE {where}"  # noqa: S608 - as above
        with as_of_store():
            self._sending.send_new(PAGE, CHANGE)
            with self._database.session() as session:
                rows = session.transaction(page, [*values, *(selection.before or ()), limit, offset], CHANGE)
                try:
                    ((total,),), at_least = session.transaction(count, values, REPORT), False
                except DatabaseBusy:  # it takes too long
                    total, at_least = offset + len(rows), True
        found = [((at, node, seq), _entry(seq, content, digest)) for at, node, seq, content, digest in rows]
        return FoundEntries(found, total, at_least)

    def heads(self, nodes: Collection[str]) -> dict[str, Head]:
        """See `FleetTrails`."""
        with as_of_store():
            rows = self._database.transaction(_HEADS, [[*nodes]], REPORT)
        return {node: Head(seq, digest) for node, seq, digest in rows}

    def verify(self) -> dict[str, Head | Broken]:
        """See `FleetTrails`."""
        with as_of_store():
            nodes = self._database.transaction(_NODES, (), CHANGE)
            return {node: self._verified(node) for (node,) in nodes}

    def _verified(self, node: str) -> Head | Broken:
        head = Head(0, GENESIS)
        while rows := self._database.transaction(_ROWS, [node, head.seq, PAGE], CHANGE):
            for seq, content, digest in rows:
                error = error_of(seq, content, digest, head)
                if error is not None:
                    return Broken(seq, error)
                head = Head(seq, digest)
        return head


def _condition(selection: Selection, nodes: Collection[str] | None) -> tuple[str, list[Any]]:
    """The SQL condition and its values, without the place of a page."""
    terms, values = ["true"], list[Any]()
    if nodes is not None:
        terms.append("node = ANY (%s)")
        values.append([*nodes])
    for name, value in selection.equal.items():
        if isinstance(value, str) and "\0" in value:  # which no text of the database can have
            return "false", []
        if name == "seq":
            terms.append("seq = %s")
            values.append(value)
            continue
        path = _PATHS[name].split(".")[1:]
        is_group = name == "action" and str(value).endswith(".*")
        wanted = str(value)[:-1] if is_group else value
        # Most rows are left out by their text, which costs a tenth.
        terms.append("strpos(content, %s) > 0")
        values.append(f'"{path[-1]}":{json.dumps(wanted, ensure_ascii=False)}'.removesuffix('"' if is_group else ""))
        field = f"proxyfleet.audit_field(content, '{{{','.join(path)}}}')"
        terms.append(f"starts_with({field}, %s)" if is_group else f"{field} = %s")
        values.append(wanted)
    for term, bound in (("at >= %s", selection.start), ("at <= %s", selection.end)):
        if bound is not None:
            terms.append(term)
            values.append(bound)
    return " AND ".join(terms), values


def _entry(seq: int, content: str, digest: str) -> Entry | None:
    """None where the row is no entry: then no program of ours wrote it, or someone has altered it."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("seq") != seq:
        return None
    if not all(name in found and isinstance(found[name], kind) for name, kind in _KINDS.items()):
        return None
    is_whole = all(found[name] is None or keys <= found[name].keys() for name, keys in _PARTS.items())
    return Entry(seq, found, digest) if is_whole else None
