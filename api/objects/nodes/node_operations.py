"""The operations on nodes. On one machine without a fleet there is a list with this machine, and nothing else."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from api.call import Call, Reply
from api.engine.levels import LEVELS
from api.engine.operation import V1, delete, get, post, resource, update
from api.engine.records import Stored, moment, view_of
from api.engine.responses import ResponseModel, all_of, model_of, one_of
from api.errors import Invalid
from api.fleet import Presence
from api.objects.nodes.node_kind import NODES, NodeView
from api.security.permissions import ADMIN
from config import VERSION
from config.model.nodes import NodeRecord, NodeUpdate

LATE, DOWN = 10.0, 30.0
"""Seconds without a heartbeat after which a node is late, and down."""
READ_ONLY_FIELDS = frozenset(model_of(NodeView).model_fields) - {"tags", "addresses"}

OneNode = one_of("node", NodeView)


class RemovedNode(ResponseModel):
    """A removed node, and what it had that no other node has."""

    id: str
    deleted: Literal[True]
    lost: dict[str, Any]


def list_nodes(call: Call) -> Reply:
    """List nodes.

    Returns all nodes of the fleet with their state. Without a fleet there is this machine alone.
    """
    nodes = call.services.nodes
    views = [_this_machine(call)] if nodes.this_id is None else _views(call, nodes.all())
    return Reply({"nodes": views, "total": len(views)})


def get_node(call: Call) -> Reply:
    """Show a node.

    Returns a node of the fleet with its state. Paths name it by its id or its name.
    """
    return _one(call, call.services.node_objects.get(_key(call)))


def update_node(call: Call) -> Reply:
    """Update a node.

    Changes tags and addresses. Proxies that select the node by a tag begin or end to run there at once. A change to
    which its proxies do not fit is refused.
    """
    return _one(call, call.services.node_objects.update(_key(call), call.body, call.if_match, call.caller))


def drain_node(call: Call) -> Reply:
    """Drain a node.

    Its proxies accept no more connections and finish those that they have, also after a restart, until it resumes. Its
    API stays, and its readiness check responds 503.
    """
    return _set_draining(call, True)


def resume_node(call: Call) -> Reply:
    """Resume a node.

    Its proxies accept connections again. Nothing else of the node was changed by draining it.
    """
    return _set_draining(call, False)


def remove_node(call: Call) -> Reply:
    """Remove a node.

    Ends what it may do: its role in the database, its certificate and its sign-ins. `lost` is what it had that no other
    node has, beside its records and series: `pending` as of its last heartbeat, and since when it has used what it had
    not reported.
    """
    services = call.services
    found = services.node_objects.matching(_key(call), call.if_match)
    if found.record.id == services.nodes.this_id:
        raise Invalid("node_id", "is the asked node: run proxyfleet cluster leave on it, or ask another one")
    lost = services.remove_node(found.record, call.caller)
    seen, unreported = lost.get("last_seen_at"), lost.get("pending", {}).get("usage_seconds")
    since = seen - unreported if seen and unreported else None
    lost = {**lost, "usage_since": moment(since), "last_seen_at": moment(seen)}
    return Reply({"id": found.record.id, "deleted": True, "lost": lost})


def _key(call: Call) -> str:
    call.services.nodes.all()  # which raises `NotAFleet`
    return call.params[NODES.parameter]


def _set_draining(call: Call, draining: bool) -> Reply:
    def change(record: NodeRecord) -> NodeRecord:
        return record.model_copy(update={"draining": draining})

    return _one(call, call.services.node_objects.change(_key(call), change, call.if_match))


def _one(call: Call, stored: Stored[NodeRecord]) -> Reply:
    (view,) = _views(call, [stored])
    return Reply({"node": view}, revision=stored.revision)


# --- views ----------------------------------------------------------------------------------------------------------


def _views(call: Call, nodes: Sequence[Stored[NodeRecord]]) -> list[dict[str, Any]]:
    services = call.services
    known = services.node.presence()
    is_cut_off = services.node.cut_off_for() is not None
    names = {each.record.id: each.record.name for each in services.nodes.all()}
    active = [each.record for each in services.proxies.all() if each.record.status == "active"]
    return [
        {
            **_of_document(each.record),
            "proxies": sum(proxy.nodes.selects(each.record) for proxy in active),
            **_of_heartbeat(each, known.get(each.record.id), each.record.id == services.nodes.this_id, is_cut_off),
            "settings_differ": _differing(each.record.id, known, names),
        }
        for each in nodes
    ]


def _of_document(record: NodeRecord) -> dict[str, Any]:
    view = view_of(record)
    return {**view, "certificate": view["certificate"] if record.certificate.fingerprint else None}


def _of_heartbeat(node: Stored[NodeRecord], known: Presence | None, is_this: bool, is_cut_off: bool) -> dict[str, Any]:
    """Who is cut off knows nothing of how others are now."""
    record = node.record
    if known is None:
        nothing = ("revision", "behind_seconds", "database", "version", "level")
        state = _state(record, {}, 0.0, follows=False) if is_this else "unknown" if is_cut_off else "joining"
        return {"state": state, **dict.fromkeys((*nothing, "started_at", "last_seen_at", "clock_offset")), **_NO_LISTS}
    problems, is_current = known.problems, known.is_current and not is_cut_off
    state = _state(record, problems, 0.0 if is_this else known.silent, known.revision >= node.revision)
    return {
        "state": state if is_this or is_current else "unknown",
        "revision": known.revision,
        "behind_seconds": round(known.behind, 1),
        "failed": [{**each, "since": moment(each["since"])} for each in problems.get("failed", ())],
        "database": _database(known, is_current) if is_this or is_current else None,
        "pending": dict(problems.get("pending", {})),
        "version": known.version,
        "level": known.level,
        "started_at": moment(known.started_at),
        "last_seen_at": moment(known.seen_at),
        "clock_offset": known.clock_offset,
    }


_NO_LISTS: Mapping[str, Any] = {"failed": [], "pending": {}}


def _state(record: NodeRecord, problems: Mapping[str, Any], silent: float, follows: bool) -> str:
    """`follows`: what the node says was said after it had got its document as it is now."""
    if silent >= LATE:
        return "down" if silent >= DOWN else "late"
    if not record.draining:
        return "up"
    ending = not follows or any(each["state"] == "draining" for each in problems.get("proxies", {}).values())
    return "draining" if ending else "drained"


def _database(known: Presence, is_current: bool) -> dict[str, Any]:
    reported = known.problems.get("database", {})
    connected = is_current and known.silent < LATE
    return {
        "connected": connected,
        "since": None if connected else moment(known.seen_at),
        "doorbell": reported.get("doorbell"),
        "round_trip_ms": reported.get("round_trip_ms"),
    }


def _differing(node_id: str, known: Mapping[str, Presence], names: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    if node_id not in known:
        return found
    own = known[node_id].settings
    for other, presence in known.items():
        if other in names:
            for key in {**own, **presence.settings}:
                if own.get(key) != presence.settings.get(key):
                    found.setdefault(key, []).append(names[other])
    return found


def _this_machine(call: Call) -> dict[str, Any]:
    """This machine, which stands alone."""
    services, now = call.services, time.time()
    return {
        **dict.fromkeys(("id", "certificate", "created_at", "database", "clock_offset")),
        "name": socket.gethostname(),
        "role": "full",
        "state": "up",
        "tags": [],
        "addresses": {},
        "proxies": sum(each.record.status == "active" for each in services.proxies.all()),
        "revision": services.store.file.last_number,
        "behind_seconds": 0.0,
        "version": VERSION,
        "level": LEVELS.level,
        "started_at": moment(services.health.started_at()),
        "last_seen_at": moment(now),
        "settings_differ": {},
        **_NO_LISTS,
    }


ROWS = resource(f"{V1}/nodes", read="settings.read", write="settings.write", delete=ADMIN)(
    get("", "listNodes", list_nodes, all_of("Nodes", "nodes", NodeView)),
    get("/{node_id}", "getNode", get_node, OneNode, if_match=True, errors=(409,)),
    *update(
        "/{node_id}",
        ("replaceNode", "updateNode"),
        update_node,
        OneNode,
        body=NodeUpdate,
        read_only=READ_ONLY_FIELDS,
        if_match=True,
        errors=(409,),
    ),
    post("/{node_id}/drain", "drainNode", drain_node, OneNode, if_match=True, errors=(409,)),
    post("/{node_id}/resume", "resumeNode", resume_node, OneNode, if_match=True, errors=(409,)),
    delete("/{node_id}", "removeNode", remove_node, RemovedNode, if_match=True, errors=(409,)),
)
