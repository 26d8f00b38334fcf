"""What the command line asks of the API about the fleet."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from actors.bus.codec import message


@message
class FoundFleet:
    """Command line → API: make this installation the first node of a fleet (`api.cluster.founding`).

    → `FleetFounded` when it is one, or `Failed`: then it stands alone as before.
    """

    dsn: str = field(repr=False)
    name: str = ""
    address: str = ""
    listen_dsn: str = field(default="", repr=False)
    shared_role: bool = False


@message
class FleetFounded:
    """API → command line: this node is the first one of the fleet with this id."""

    fleet: str
    node: str
    name: str


@message
class NoteFleet:
    """API → metrics collector: this node's heartbeat has been at the fleet's database. → `Done`

    `slot` is when totals of usage have changed last, in tens of seconds, and `limits` whether another node has accounts
    with limits in use: so the collector need not look. Without these it does. `refused` is why the database takes
    nothing of this node, for whose sake nothing is reported until a heartbeat is taken again.
    """

    slot: int = 0
    limits: bool = False
    refused: str = ""


@message
class LeaveFleet:
    """Command line → API: go on alone; with `force` also when the database can't be reached.

    → `FleetLeft`, or `Failed`: then it is a node as before.
    """

    force: bool = False


@message
class FleetLeft:
    """API → command line: it stands alone. `unsent` is what waited here for the database and is on this machine alone:
    numbers of `sign_ins`, `credentials`, entries of the `audit` trail, `usage_bytes`."""

    unsent: dict[str, int]


@message
class MoveFleet:
    """Command line → API: the fleet gets this database, which has a copy of the present one (`api.cluster.moving`); by
    `force` this node alone follows it.

    → `FleetMoved` when it has, or `Failed`.
    """

    dsn: str = field(repr=False)
    listen_dsn: str = field(default="", repr=False)
    force: bool = False


@message
class FleetMoved:
    """API → command line: the database is there."""

    database: str


@message
class JoinFleet:
    """Command line → API: join the fleet of this token (`api.cluster.joining`), and be its node from then on.

    → `FleetJoined`, or `Failed`: then it stands alone as before.
    """

    line: str = field(repr=False)
    name: str = ""
    address: str = ""
    discard: bool = False


@message
class RekeyFleet:
    """Command line → API: replace the key that seals secrets, on all nodes (`api.cluster.keys`).

    → `FleetRekeyed`, or `Failed`: then it is to be done again, unless that says that nothing was changed.
    """


@message
class FleetRekeyed:
    """API → command line: the mark of the new key; the names of nodes that have no other, and of those that will."""

    key: str
    nodes: tuple[str, ...]
    waiting: tuple[str, ...]


@message
class FleetJoined:
    """API → command line: this installation is a node of this name."""

    name: str


@message
class QueryPoolState:
    """API → API of another node: what that node knows of a pool, by its id. → `KnownPool` or `Failed`."""

    pool_id: str


@message
class KnownPool:
    """API → API of another node: counts, and each upstream in the order of the pool, as `GET /pools/…` has them."""

    status: dict[str, Any]
    upstreams: tuple[dict[str, Any], ...]


@message
class VerifyTrail:
    """API → API of another node: follow that node's audit trail, in which this entry has to be. → `TrailVerified` or
    `Failed`.

    It is the last one that the database has; with number 0 there is none.
    """

    seq: int
    hash: str


@message
class TrailVerified:
    """API → API of another node: the last entry, or the first one that is not what was written, and why."""

    seq: int
    hash: str
    error: str


@message
class TryProxy:
    """API → API of another node: one GET through this proxy, there. → `ProxyTried` or `Failed`.

    `timeout` is in seconds; the access record has `request_id`.
    """

    proxy_id: str
    url: str | None
    timeout: float
    request_id: str


@message
class ProxyTried:
    """API → API of another node: the outcome; `response_time` in milliseconds, `timestamp` as the API has it."""

    status: str
    response_time: int
    status_code: int | None
    external_ip: str | None
    parent: str | None
    timestamp: str
    error: str | None


ClusterRequest = FoundFleet | LeaveFleet | JoinFleet | RekeyFleet | MoveFleet
"""What the command line asks of the API."""
