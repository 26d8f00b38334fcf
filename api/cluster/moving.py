"""The fleet gets another database: a copy of the present one by `pg_dump`, on whatever server.

    the node that is asked                      present database                other database
      checks it ─────────────────────────────────────────────────────────────► the same fleet, schema, rights
      leaves word for each node ──────────────► moves: DSN and password, sealed
      makes the roles ────────────────────────────────────────────────────────► passwords as in that word
      brings it forward ──────────────────────► what the copy lacks ──────────► written
      under the lock of the fleet: the same once more, then
                                                moved: no commit any more
      keeps the new DSN, and starts again
    each other node: a heartbeat has the word, and it does the same

Changes wait from the lock on until a node has started again. Each step may be done again, in the same order, so a
command that was killed is given once more: passwords are those of the word that was left. Where roles are those of the
present server, a second database of it, they and their passwords stay. The database lets only the role that has left
word last end the move, so that nodes go where everything was brought; on another node it is begun anew until then.

What needs no order, usage and sign-ins, is not copied: nodes notice that the database has less of that than they have
sent, and send it again. A node that was away finds the word in the former database as long as that is there; later the
command is given on it, by force.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

from actors.bus.messages.cluster import MoveFleet
from actors.cluster.database import CHANGE, Database, DatabaseSession, dsn_of_role, login_of
from actors.cluster.errors import DatabaseUnavailable, DatabaseUnusable, StatementRefused
from actors.cluster.identity import NodeIdentity
from api.cluster.migration_runner import ALONE, LOCK, missing_within
from api.cluster.roles import NodeLogin, begin_roles_within
from api.engine.commit import Engine
from config import OperatorError
from config.files.paths import DataDir
from config.files.secret_box import SealedFor, SecretBox
from config.model.nodes import COLLECTION

_WITHIN = 60.0
"""Seconds of one statement."""
_AT_ONCE = 500
"""Rows that are written at once."""
_SAME_MOMENT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; "
_STATE = """
SELECT f.id, f.head, c.stamp, f.history, f.has_roles, f.moved_at IS NOT NULL, f.pruned_to
FROM proxyfleet.fleet f JOIN proxyfleet.commits c ON c.number = f.head
"""
_OWNER = "SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = 'proxyfleet'"
_OF_COMMITS = {
    "commits": "number > %s",
    "documents": "revision > %s",
    "revisions": '"commit" > %s',
    "revision_changes": 'number IN (SELECT r.number FROM proxyfleet.revisions r WHERE r."commit" > %s)',
    "audit": '"commit" > %s',
}
"""Tables, with what commits after a number have written there."""
_REPLACED = (
    "DELETE FROM proxyfleet.documents d USING json_array_elements(%s) w"
    " WHERE d.collection = w ->> 'collection' AND d.id = w ->> 'id'"
)


_LEAVE_WORD = """
DELETE FROM proxyfleet.moves WHERE node NOT IN (SELECT w ->> 0 FROM json_array_elements(%s) w);
INSERT INTO proxyfleet.moves (node, sealed) SELECT w ->> 0, w ->> 1 FROM json_array_elements(%s) w
ON CONFLICT (node) DO UPDATE SET sealed = excluded.sealed
"""
_OF_ANOTHER = "PF018"
"""The word that is left in the database is another role's (migration 0018)."""
Words = Mapping[str, Mapping[str, Any]]
"""By node what it needs to follow."""


class MoveRefused(OperatorError):
    """The fleet has the database that it had; the text says why, and what can be done."""


def move_fleet(engine: Engine, seal: SecretBox, identity: NodeIdentity, asked: MoveFleet) -> str:
    """Give the fleet of this node another database, whose role owns the copy; the place of it. The node has to start
    again then. By `force` this node alone follows it, and the present database is not asked: what the other one lacks
    of this node's commits is undone, as after a restore (`api.cluster.following.rereading`).

    Raises `MoveRefused`, `DatabaseError`, `SecretBoxError`, `OSError`.
    """
    with closing(Database(asked.dsn)) as there, closing(Database(identity.dsn)) as here:
        _check(there, identity)
        nodes = {each.id: str(each.body["role"]) for each in engine.find(COLLECTION)}
        if asked.force:
            words = _words(there, identity, {identity.id: nodes.get(identity.id, "full")}, asked, None)
        else:
            words = _left_words(here, there, seal, identity, nodes, asked)
        _make_roles(there, nodes, words)
        if not asked.force:
            _bring_forward(here, there)
        take_move(engine.data, seal, identity, seal.seal(json.dumps(words[identity.id]), SealedFor.MOVE))
        return there.place


def take_move(data: DataDir, seal: SecretBox, identity: NodeIdentity, sealed: str) -> None:
    """Keep what was left for this node as its way to the database, if it leads there. Raises as `move_fleet`."""
    word = json.loads(seal.open(sealed, SealedFor.MOVE))
    login = word["login"] or login_of(identity.dsn)
    dsn, listen_dsn = (word[name] and dsn_of_role(word[name], *login) for name in ("dsn", "listen_dsn"))
    with closing(Database(dsn)) as database:
        database.check()
    replace(identity, dsn=dsn, listen_dsn=listen_dsn).save(data, seal)


def _check(database: Database, identity: NodeIdentity) -> None:
    """Raises unless the fleet can be moved there; without it nothing was changed."""
    database.check()
    with database.session() as session:
        ((table,),) = session.transaction("SELECT to_regclass('proxyfleet.fleet')")
        if not table:
            raise MoveRefused(f"{database.place} holds no fleet: restore a dump of the present database there first")
        found = session.transaction(_STATE.replace("f.moved_at IS NOT NULL", "false"))
        ((is_owner,),) = session.begin(_OWNER)
        missing = missing_within(session)
    if not found:
        raise MoveRefused(f"{database.place} holds no fleet: was all of the dump restored?")
    if found[0][0] != identity.fleet:
        raise MoveRefused(f"{database.place} holds the fleet {found[0][0]}, and this node is of {identity.fleet}")
    if not is_owner:
        raise MoveRefused(
            f"{database.place}: the role of the DSN does not own the schema proxyfleet: restore the dump as it"
        )
    if missing:
        raise MoveRefused(
            f"{database.place} lacks {missing[0].title}: `proxyfleet cluster migrate`, then make a new dump"
        )


def _left_words(
    here: Database, there: Database, seal: SecretBox, identity: NodeIdentity, nodes: Mapping[str, str], asked: MoveFleet
) -> dict[str, dict[str, Any]]:
    """What each node needs to follow, which the present database has now, and gives to none until it has moved."""
    try:
        with here.session() as session, there.session() as other:
            session.begin(ALONE)
            if other.transaction(f"SELECT pg_try_advisory_xact_lock({LOCK})") == [(False,)]:
                raise MoveRefused(f"{there.place} is the database that the fleet has")
            rows = session.finish("SELECT node, sealed FROM proxyfleet.moves")
    except (DatabaseUnavailable, DatabaseUnusable) as error:  # also one that was dropped
        raise MoveRefused(
            f"the present database can't be reached: {error}; --force has this node alone follow the other one"
        ) from error
    known = {node: json.loads(seal.open(sealed, SealedFor.MOVE)) for node, sealed in rows}
    words = _words(there, identity, nodes, asked, known)
    left = json.dumps([[node, seal.seal(json.dumps(word), SealedFor.MOVE)] for node, word in words.items()])
    with _of_this_node():
        here.transaction(_LEAVE_WORD, [left, left], CHANGE)
    return words


@contextmanager
def _of_this_node() -> Iterator[None]:
    """A move that another node has begun since, or done, is not ended by this one. Raises `MoveRefused`."""
    try:
        yield
    except StatementRefused as error:
        if error.code != _OF_ANOTHER:
            raise
        raise MoveRefused(
            f"{error}: when that is done this node follows by itself; until then the command may be given again"
        ) from error


def _words(
    there: Database, identity: NodeIdentity, nodes: Mapping[str, str], asked: MoveFleet, known: Words | None
) -> dict[str, dict[str, Any]]:
    """By node the DSNs, and in `login` role and password: those of the DSN for all without roles of nodes, none where
    the present ones are good there. `known` is what was left before; None by force."""
    with there.session() as session:
        ((has_roles,),) = session.transaction("SELECT has_roles FROM proxyfleet.fleet")
        there_are = {name for (name,) in session.transaction("SELECT rolname FROM pg_roles")}
    are_known = has_roles and _signs_in(dsn_of_role(asked.dsn, *login_of(identity.dsn)))
    # without a password: an edge opens its word
    bare, bare_listen = (each and dsn_of_role(each, "", "") for each in (asked.dsn, asked.listen_dsn))
    words = {}
    for node, role in nodes.items():
        login = None if are_known else login_of(asked.dsn)
        if has_roles and not are_known:
            before = None if known is None else known.get(node, {}).get("login")
            login = tuple(before) if before else (f"pf_{node}", NodeLogin(node, role).password)
            if login[0] in there_are and known is not None and not before:
                raise MoveRefused(
                    f"{there.place}: {login[0]} is there, and its password is another: DROP ROLE {login[0]}"
                )
        words[node] = {"dsn": bare, "listen_dsn": bare_listen, "login": login}
    return words


def _signs_in(dsn: str) -> bool:
    try:
        with closing(Database(dsn)) as database:
            database.check()
    except DatabaseUnusable:
        return False
    return True


def _make_roles(there: Database, nodes: Mapping[str, str], words: Words) -> None:
    """The copy has no roles, and who may do what there. It may be of a database that had moved itself."""
    with there.session() as session:
        session.begin("UPDATE proxyfleet.fleet SET moved_at = NULL; DELETE FROM proxyfleet.moves")
        ((has_roles,),) = session.go_on("SELECT has_roles FROM proxyfleet.fleet")
        if has_roles:
            logins = [
                NodeLogin(node, nodes[node], word["login"][1])
                for node, word in words.items()
                if word["login"] is not None
            ]
            for each in logins:
                begin_roles_within(session, each)
            if not logins:
                session.go_on("SELECT proxyfleet.set_rights()")
        session.finish("SELECT 1")


def _bring_forward(here: Database, there: Database) -> None:
    """The copy gets what was committed since it was made, and the present database takes no commit any more."""
    with there.session() as session, here.session() as source:
        for begin in (_SAME_MOMENT, "SELECT 1 FROM proxyfleet.fleet FOR UPDATE; "):
            ((_, head, stamp, history, _, is_moved, pruned_to),) = source.begin(f"{begin}{_STATE}", (), _WITHIN)
            if is_moved:  # by this command before, or by that on another node: the other one may be ahead
                source.finish("SELECT 1")
                return
            ((_, after, known, *_),) = session.begin(_STATE, (), _WITHIN)
            found = source.go_on("SELECT stamp FROM proxyfleet.commits WHERE number = %s", [after])
            if after < pruned_to or after > head or found != [(known,)]:
                raise MoveRefused(
                    f"{there.place} is at the commit {after}, which the present database, at {head}, does not have:"
                    " it is no copy of it, or too old; make a new dump"
                )
            _copy(source, session, after)
            if (after, known) != (head, stamp):
                session.go_on("UPDATE proxyfleet.fleet SET head = %s, history = %s", [head, history])
            session.finish("SELECT 1")
            if begin != _SAME_MOMENT:
                with _of_this_node():
                    source.go_on("UPDATE proxyfleet.fleet SET moved_at = clock_timestamp()")
            source.finish("SELECT 1")


def _copy(source: DatabaseSession, target: DatabaseSession, after: int) -> None:
    for table, which in _OF_COMMITS.items():
        _copy_rows(source, target, table, which, [after])
    there = {digest for (digest,) in target.go_on("SELECT DISTINCT digest FROM proxyfleet.blobs")}
    for (digest,) in source.go_on("SELECT DISTINCT digest FROM proxyfleet.blobs"):
        if digest not in there:
            _copy_rows(source, target, "blobs", "digest = %s", [digest])


def _copy_rows(source: DatabaseSession, target: DatabaseSession, table: str, which: str, values: list[Any]) -> None:
    name = f"proxyfleet.{table}"
    rows = source.go_on(f"SELECT to_json(t)::text FROM {name} t WHERE {which}", values, _WITHIN)  # noqa: S608 - ours
    for start in range(0, len(rows), _AT_ONCE):
        text = f"[{','.join(row for (row,) in rows[start : start + _AT_ONCE])}]"
        if table == "documents":
            target.go_on(_REPLACED, [text], _WITHIN)
        target.go_on(
            f"INSERT INTO {name} SELECT w.* FROM json_populate_recordset(NULL::{name}, %s) w ON CONFLICT DO NOTHING",  # noqa: S608 - ours
            [text],
            _WITHIN,
        )
