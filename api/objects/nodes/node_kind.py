"""Nodes of a fleet. They are of the installation, not of its configuration: no export has them
(`api.objects.kinds`)."""

from __future__ import annotations

from typing import Literal

from api.engine.kind import Kind
from api.engine.responses import Moment, ResponseModel, shows
from api.engine.transfer import Transfer
from config.model.nodes import COLLECTION, MAX_NODES, NodeCertificate, NodeRecord, NodeRole, NodeUpdate

NodeState = Literal["up", "late", "down", "draining", "drained", "joining", "unknown"]


@shows(NodeCertificate)
class CertificateOfNode(ResponseModel):
    """The public certificate of a node. `fingerprint` is its SHA-256."""


class NotApplied(ResponseModel):
    """A document that a node could not apply in its present revision: it serves the previous one."""

    collection: str
    id: str
    name: str | None
    revision: int
    error: str
    since: Moment


class DatabaseOfNode(ResponseModel):
    """How a node reaches the database. While it is cut off, `since` is when it last responded. `doorbell` is
    `polling` while it gets no notifications."""

    connected: bool
    since: Moment | None
    doorbell: Literal["heard", "polling"] | None
    round_trip_ms: float | None


class NodeView(ResponseModel):
    """A node of the fleet, or a machine without one, which has no `id`.

    `revision` is the last commit that it serves, `behind_seconds` the age of the oldest one that it does not. `failed`
    is what it could not apply. `pending` are numbers of what waits there for the database. `proxies` is how many active
    proxies select it. `settings_differ` names, by key of the configuration file, the nodes that have another value.
    What heartbeats say is null while none was seen. While the asked node is cut off from the database the state of each
    other one is `unknown` since `last_seen_at`, `database` is null, and the rest is what was known then.
    """

    id: str | None
    name: str
    role: NodeRole
    state: NodeState
    tags: list[str]
    addresses: dict[str, str]
    certificate: CertificateOfNode | None
    created_at: Moment | None
    proxies: int
    revision: int | None
    behind_seconds: float | None
    failed: list[NotApplied]
    database: DatabaseOfNode | None
    pending: dict[str, float]
    version: str | None
    level: int | None
    started_at: Moment | None
    last_seen_at: Moment | None
    clock_offset: float | None
    settings_differ: dict[str, list[str]]


NODES = Kind(
    name="node",
    collection=COLLECTION,
    model=NodeRecord,
    transfer=Transfer(model=NodeUpdate, exported=NodeView, blank={}),  # of which only the identity is used
    most=MAX_NODES,
    by_name=True,
)
