"""`proxyfleet nodes …`: the nodes of a fleet, and the tokens by which machines join it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from api.cli.client import quoted
from api.cli.commands import YES, Commands, Given, Session, command, confirm, key_argument, named_alone
from api.cli.documents import body_of, require_changes
from api.cli.errors import CommandError, Status
from api.cli.options import NODE, argument, choice, find, sent, text, texts
from api.cli.quantities import Quantity, size, span, span_option
from api.cli.terminal import Column, fields_of, inside, titled
from config.model.nodes import FLEET_KEY, NodeRole, pending_text
from config.model.nodes.tokens import LEAST, LONGEST

PAUSE = 1.0
"""Seconds between two looks at a node that drains; the API knows no more before."""


def _behind(node: Any) -> Quantity | None:
    return None if node["behind_seconds"] is None else span(node["behind_seconds"])


def _problems(node: Any) -> list[str]:
    """What is wrong with a node, a few words each; the details have the rest."""
    database, pending = node["database"] or {}, node["pending"]
    reached = node["state"] not in ("late", "down", "joining", "unknown")
    of_key = [each["error"] for each in node["failed"] if (each["collection"], each["id"]) == FLEET_KEY]
    found = {
        "no heartbeat": node["state"] in ("late", "down"),
        f"as of {node['last_seen_at']}": node["state"] == "unknown" and node["last_seen_at"] is not None,
        "cut off": reached and database.get("connected") is False,
        "no notifications": reached and database.get("doorbell") == "polling",
        **dict.fromkeys(of_key, True),
        f"{len(node['failed']) - len(of_key)} not applied": len(node["failed"]) > len(of_key),
        f"unreported {size(int(pending.get('usage_bytes', 0))).text}": pending.get("usage_seconds", 0) > 60,
        "settings differ": bool(node["settings_differ"]),
    }
    return [words for words, applies in found.items() if applies]


def _failed(node: Any) -> list[str]:
    return [f"{each['collection']} {each['name'] or each['id']}: {each['error']}" for each in node["failed"]]


def _database(node: Any) -> Quantity:
    return fields_of(node["database"] or {})


def _differ(node: Any) -> list[str]:
    return [f"{key}: {' '.join(others)}" for key, others in node["settings_differ"].items()]


nodes = Commands(
    NODE,
    "Nodes of a fleet.",
    (
        *titled("name", "role", "state", "version"),
        *titled("revision", ("BEHIND", _behind), "proxies", right=True),
        Column("PROBLEMS", _problems),
    ),
    (
        *("name", "id", "role", "state", "tags"),
        ("addresses", lambda node: fields_of(node["addresses"])),
        *("version", "level", "revision"),
        ("behind", _behind),
        *("proxies", ("problems", _problems), ("not applied", _failed), ("database", _database)),
        ("pending", lambda node: fields_of(node["pending"])),
        ("settings differ", _differ),
        ("clock offset", "clock_offset"),
        ("certificate", lambda node: inside(node, "certificate.fingerprint")),
        *("started_at", "last_seen_at", "created_at"),
    ),
    only=("list", "show"),
    texts={"list": "List nodes; also what `proxyfleet nodes` does."},
    group_class=named_alone("list"),
).group()
_NODE = {"node": key_argument(NODE)}
_UPDATE = {
    **_NODE,
    "tags": texts("--tag", "A tag, by which proxies select it; may be given several times. Replaces all."),
    "addresses": texts(
        "--address",
        "One of its addresses; the others stay, and NAME= removes it. May be given several times.",
        metavar="NAME=HOST",
    ),
}


@command(nodes, "update", _UPDATE)
def update_node(session: Session, node: str, addresses: list[str] | None, fields: Given) -> None:
    """Change a node: only what is given changes."""
    body, headers = body_of(fields), {}
    if addresses is not None:
        given = dict(_address(each) for each in addresses)
        known = _sent(session, "GET", node)["node"]["addresses"]
        body["addresses"] = {name: host for name, host in {**known, **given}.items() if host}
        headers["If-Match"] = session.api.etag or "*"
    require_changes(body, "nodes")
    data = sent(session.api, NODE, node, lambda: session.api.call("PATCH", _path(node), body=body, headers=headers))
    session.out.done(data, f"{data['node']['name']} is changed.")


def _address(given: str) -> tuple[str, str]:
    name, sign, host = given.partition("=")
    if not sign:
        raise CommandError(
            f"--address {given!r}: must be NAME=HOST[:PORT]", "Such as public=192.0.2.7, internal=10.0.0.7:7443",
            Status.USAGE,
        )  # fmt: skip
    return name, host


_WAIT = span_option("--wait", "How long to wait until its proxies have finished; by default not at all.")


@command(nodes, "drain", {**_NODE, "wait": _WAIT})
def drain_node(session: Session, node: str, wait: float | None) -> None:
    """Have the proxies of a node accept no more connections and finish; its API stays. It holds over restarts."""
    deadline = time.monotonic() + (wait or 0)
    data = _sent(session, "POST", node, "/drain")
    drained = 0
    while wait and drained < 2:  # what is sent to its proxies and what they say cross each other once
        if time.monotonic() >= deadline:
            hint = f"They go on until they end: proxyfleet nodes show {node}; or back: proxyfleet nodes resume {node}"
            raise CommandError(f"{data['node']['name']} still has connections after {wait:g} s", hint)
        time.sleep(PAUSE)
        data = _sent(session, "GET", node)
        drained = drained + 1 if data["node"]["state"] == "drained" else 0
    name, state = data["node"]["name"], "is drained" if wait else "drains"
    session.out.done(data, f"{name} {state}.")


@command(nodes, "resume", _NODE)
def resume_node(session: Session, node: str) -> None:
    """Have the proxies of a node accept connections again."""
    data = _sent(session, "POST", node, "/resume")
    session.out.done(data, f"{data['node']['name']} accepts connections again.")


@command(nodes, "remove", {**_NODE, "yes": YES})
def remove_node(session: Session, node: str, yes: bool) -> None:
    """Remove a node: its role in the database, its certificate and its sign-ins end within a second."""
    found = find(session.api, NODE, node)
    confirm(f"Remove the node {found['name']} ({found['state']})? It can't come back but by a new token.", yes)
    data = session.api.delete(f"{NODE.path}/{quoted(found['id'])}")
    session.out.done(data, f"{found['name']} is removed.")
    if session.out.format != "json":
        session.out.note(f"it had what no other node has: {', '.join(_lost(data['lost']))}")


def _lost(lost: Any) -> Iterator[str]:
    """What is gone with a node, in words; what it has used and not reported with its time."""
    yield "its access records and series"
    if waiting := pending_text(lost.get("pending") or {}):
        since, seen = lost.get("usage_since"), lost.get("last_seen_at")
        yield waiting + (f" (used since {since})" if since else "")
        yield f"as of its last heartbeat at {seen}"


def _path(node: str) -> str:
    return f"{NODE.path}/{quoted(node)}"


def _sent(session: Session, method: str, node: str, action: str = "") -> Any:
    return sent(session.api, NODE, node, lambda: session.api.call(method, f"{_path(node)}{action}"))


# --- tokens ---

_TOKEN = {
    "name": text("--name", "The name of the node; without one it names itself."),
    "role": choice("--role", "A full node has the management API, an edge node only forwards.", NodeRole),
    "tags": texts("--tag", "A tag of the node, by which proxies select it; may be given several times."),
    "ttl": span_option("--ttl", "How long it is good, 1m to 7d; by default 1h.", least=LEAST, most=LONGEST),
}


@command(nodes, "token", _TOKEN)
def create_token(session: Session, fields: Given) -> None:
    """Make a token: one line by which one machine can join, `proxyfleet cluster join`."""
    data = session.api.post("/nodes/tokens", body_of(fields))
    session.out.data(data, lambda: session.out.line(data["line"]))


@command(nodes, "tokens")
def list_tokens(session: Session) -> None:
    """List tokens; none has its secret."""
    data = session.api.get("/nodes/tokens")
    used = any(each["used_by"] for each in data["tokens"])
    names = {each["id"]: each["name"] for each in session.api.get("/nodes")["nodes"]} if used else {}
    columns = titled("id", "role", "name", "tags", "expires_at", ("USED BY", lambda row: _name_in(names, row)))
    session.out.data(data, lambda: session.out.table(columns, data["tokens"], "There are no tokens."))


def _name_in(names: Mapping[str, str], token: Any) -> str | None:
    """The name of the node that has used a token; its id when it is in the fleet no more."""
    used_by: str | None = token["used_by"]
    return names.get(used_by or "", used_by)


@command(nodes, "revoke-token", {"token": argument("TOKEN_ID", "The id of a token: proxyfleet nodes tokens.")})
def revoke_token(session: Session, token: str) -> None:
    """Revoke a token: no machine can join by it any more."""
    data = session.api.delete(f"/nodes/tokens/{quoted(token)}")
    session.out.done(data, f"{token} is revoked.")
