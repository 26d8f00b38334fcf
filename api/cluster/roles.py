"""The role that a node has in the database, and its password.

A node's role is `pf_` and its id. What the roles of full nodes and of edge nodes may do is said once, in
`migrations/0006_nodes.sql`. Roles are made and ended by functions that run with the rights of the schema's owner, so
nodes need no `CREATEROLE` themselves. The database gets a verifier (RFC 5803) and never the password, which would be in
its log.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from actors.cluster.database import CHANGE, Database, DatabaseSession, dsn_of_role
from actors.cluster.errors import DatabaseUnusable, StatementRefused
from api.cluster.following.presence import reported

NO_RIGHT = "42501"
_LAST_WORDS = "SELECT extract(epoch FROM at)::float8, problems::text FROM proxyfleet.heartbeats WHERE node = %s"


@dataclass(frozen=True, slots=True)
class NodeLogin:
    """How a node signs in."""

    node: str
    role: str
    """`full` or `edge`."""
    password: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def statement(self) -> tuple[str, Sequence[Any]]:
        """What makes the role with this password, for a transaction, with its parameters."""
        return "SELECT proxyfleet.make_node_role(%s, %s, %s)", [self.node, self.role, verifier(self.password)]

    def dsn(self, of_another: str) -> str:
        """The DSN of this node, from that of another one. Raises `DatabaseUnusable`."""
        return dsn_of_role(of_another, f"pf_{self.node}", self.password)


def begin_roles_within(session: DatabaseSession, first: NodeLogin) -> None:
    """Give a new fleet its roles, and its first node one, within a transaction. By the owner of the schema.

    Raises `DatabaseUnusable` for a role that may make none: without roles of their own (`--shared-role`) there can be
    no edge nodes. Raises `DatabaseError`.
    """
    statement, parameters = first.statement
    try:
        session.go_on(f"SELECT proxyfleet.set_rights(); {statement}", parameters, CHANGE)
    except (StatementRefused, DatabaseUnusable) as error:
        if isinstance(error, StatementRefused) and error.code != NO_RIGHT:
            raise
        raise DatabaseUnusable(
            f"{error}: the role of the DSN needs CREATEROLE, to make one for each node; with --shared-role all nodes"
            " have this one, a removed node has to be locked out by a new password of it, and there are no edge nodes"
        ) from error


def end_role(database: Database, node: str) -> Mapping[str, Any]:
    """End the role of a node, and what it has open; what it had that no other node has. May be repeated.

    Raises `DatabaseError`.
    """
    with database.session() as session:
        found = session.transaction(_LAST_WORDS, [node], CHANGE)
        session.transaction("SELECT proxyfleet.remove_node(%s)", [node], CHANGE)
        session.transaction("SELECT proxyfleet.end_backends(%s)", [node], CHANGE)  # it can't connect again
    if not found:
        return {}
    at, problems = found[0]
    return {"pending": reported(problems).get("pending", {}), "last_seen_at": at}


def verifier(password: str, rounds: int = 4096) -> str:
    """What the database has instead of a password in ASCII: `SCRAM-SHA-256$…` of RFC 5803.

    With the rounds of PostgreSQL itself: the passwords of roles have 256 bits.
    """
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, rounds)
    client, server = (hmac.digest(salted, name, "sha256") for name in (b"Client Key", b"Server Key"))
    parts = [base64.b64encode(each).decode() for each in (salt, hashlib.sha256(client).digest(), server)]
    return f"SCRAM-SHA-256${rounds}:{parts[0]}${parts[1]}:{parts[2]}"
