"""What is known of the nodes of a fleet by their heartbeats, read once for all requests of a second."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, Field

from actors.cluster.database import Database
from actors.cluster.errors import DatabaseError
from api.fleet import Presence

WITHIN = 1.0
"""Seconds that a reader waits for the database at most; and how long a reply is good."""
_READ = """
SELECT h.node, extract(epoch FROM h.at)::float8, extract(epoch FROM clock_timestamp() - h.at)::float8,
    extract(epoch FROM h.started_at)::float8, h.version, h.level, h."commit",
    coalesce((
        SELECT extract(epoch FROM clock_timestamp() - c.at)::float8
        FROM proxyfleet.commits c WHERE c.number > h."commit" ORDER BY c.number LIMIT 1
    ), 0), h.clock_offset, h.problems::text
FROM proxyfleet.heartbeats h
"""

log = logging.getLogger(__name__)

Moment = Annotated[float, Field(ge=0, le=253_402_300_799, allow_inf_nan=False)]
"""Unix seconds of a year that can be written."""


class _Failed(BaseModel):
    collection: str
    id: str
    name: str | None
    revision: int
    error: str
    since: Moment


class _StateOfProxy(BaseModel):
    state: str
    error: str | None


class _StateOfDatabase(BaseModel):
    connected: bool = True
    since: Moment | None = None
    doorbell: str | None = None
    round_trip_ms: Annotated[float, Field(allow_inf_nan=False)] | None = None


class _Reported(BaseModel):
    """What a node says of itself; the rest is passed on. An edge node, which may be stolen, can say anything."""

    proxies: dict[str, _StateOfProxy] = {}
    failed: list[_Failed] = []
    database: _StateOfDatabase = _StateOfDatabase()
    pending: dict[str, Annotated[int, Field(ge=0, lt=2**63)]] = {}
    settings: dict[str, str] = {}


class Presences:
    """Those in this database. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reading = threading.Lock()
        self._read_at = 0.0
        self._known: Mapping[str, Presence] = {}
        self._current: Mapping[str, Presence] = {}

    def read(self, fresh: bool = False) -> Mapping[str, Presence]:
        """By id. In an outage what was last known: others count as silent for as long as the database is."""
        with self._reading:
            if fresh or time.monotonic() - self._read_at >= WITHIN:
                try:
                    rows = self._database.transaction(_READ, (), WITHIN)
                    self._current = self._known = {row[0]: _presence(*row[1:]) for row in rows}
                except DatabaseError:
                    self._current = self._aged()
                self._read_at = time.monotonic()
            return self._current

    def _aged(self) -> Mapping[str, Presence]:
        """They may have been read long before the outage: then they were as recent when it began as they were then."""
        now, silent = self._database.time(), self._database.silent_for
        return {
            name: replace(each, silent=each.silent + silent, seen_at=now - each.silent - silent, is_current=False)
            for name, each in self._known.items()
        }


def reported(problems: str) -> dict[str, Any]:
    """What a node says of itself; nothing, where that is what no node says."""
    try:
        found: dict[str, Any] = json.loads(problems)
        _Reported.model_validate(found, strict=True)
    except (ValueError, RecursionError):  # of numbers with very many digits, too
        log.warning("a node reports what no node does, which is taken for nothing")
        return {}
    return found


def _presence(*columns: Any) -> Presence:
    *plain, problems = columns
    known = Presence(*plain)
    offset = known.clock_offset if math.isfinite(known.clock_offset) else 0.0  # JSON has no other numbers
    return replace(known, problems=reported(problems), clock_offset=offset)
