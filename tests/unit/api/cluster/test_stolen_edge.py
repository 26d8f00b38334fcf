"""Who has stolen an edge node has its role in the database and its certificate: what these can do, and what not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

from api.cluster.joining import PATH as JOIN
from api.cluster.links.certificates import own_certificate
from api.cluster.links.internal_api import InternalApi, NodeRefused, NodeUnreachable, Route, ask
from api.cluster.links.leaving import PATH as LEAVE
from api.cluster.links.leaving import removal
from api.cluster.links.link import PATH as BUS
from tests.kit.postgresql import needs_postgresql
from tests.kit.tables import table
from tests.unit.api.cluster.admitted import Edge, Full
from tests.unit.api.cluster.nodes import fleet, owner
from tests.unit.api.store.account_documents import account

pytestmark = needs_postgresql
BEAT = {"boot": "b", "up_for": 1, "version": "1", "level": 1, "commit": 0, "clock_offset": 0}
DOCUMENTS = "documents WHERE collection = "
ROLES = "SELECT proxyfleet.make_node_role(%(edge)s, 'full', 'SCRAM-SHA-256$')"
USAGE = (
    "'l', 0, 1, 0, 0.8, '{1}', '{1}', '{a}', '{p}', '{5}', '{0}', '{1}', '{1}', '{0}',"
    " '{a}', '{0}', '{0}', '{total}', '{f}', '{0}', '{\"\"}', '{\"\"}'"
)


class Stolen:
    """A full node, its document and what it has in the database; and what was stolen."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.full = full = Full(stack.enter_context(fleet(stack.enter_context(owner()))), stack)
        for collection in ("users", "api_keys", "webhooks", "lists", "pools"):
            full.put(collection, {"id": f"{collection}_a", "name": "a", "username": "a"})
        full.put("accounts", account("acc_a"))
        full.put("proxies", {"id": "prx_here", "name": "here", "nodes": {"names": ["edge"]}})
        full.put("proxies", {"id": "prx_there", "name": "there", "nodes": {"names": ["first"]}})
        self.edge = Edge(full, folder / "edge", stack)
        routes = {
            JOIN: Route(full.admission.handle, for_strangers=True),
            LEAVE: Route(removal(full.remove), for_edges=True),
            BUS: Route(lambda _node, _body: {}),
        }
        self.api = stack.enter_context(closing(InternalApi(("127.0.0.1", 0), full.certificates, lambda: routes)))
        self.api.start()
        other = json.dumps([["sign_ins", "fam_a", 1e10, [""], '{"id": "fam_a"}']])
        for statement in (
            f"SELECT proxyfleet.note_heartbeat('{full.login.node}', '{self.beat}')",
            f"SELECT proxyfleet.note_heartbeat('{self.edge.node.node_id}', '{self.beat}')",
            f"SELECT proxyfleet.add_audit('{full.login.node}', '[[900, \"\", \"\"]]')",
            f"SELECT proxyfleet.write_loose('{full.login.node}', '{other}', false)",
            "INSERT INTO proxyfleet.secrets VALUES ('a', 'sealed')",
        ):
            full.fleet.execute(statement)
        self.ids = {"edge": self.edge.node.node_id, "full": full.login.node, "beat": self.beat}

    beat = json.dumps({**BEAT, "problems": {}, "settings": {}})


@pytest.fixture(scope="module")
def stolen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stolen]:
    with ExitStack() as stack:
        yield Stolen(tmp_path_factory.mktemp("stolen"), stack)


@table(
    "what, sees",
    [
        (f"{DOCUMENTS}'accounts'", 1),
        (f"{DOCUMENTS}'lists'", 1),
        (f"{DOCUMENTS}'pools'", 1),
        (f"{DOCUMENTS}'proxies' AND id = 'prx_here'", 1),
        (f"{DOCUMENTS}'proxies' AND id = 'prx_there'", 0),
        (f"{DOCUMENTS}'users'", 0),
        (f"{DOCUMENTS}'api_keys'", 0),
        (f"{DOCUMENTS}'webhooks'", 0),
        (f"{DOCUMENTS}'node_tokens'", 0),
        ("loose WHERE collection = 'sign_ins'", 0),
        ("revisions", 0),
        ("revision_changes", 0),
        ("audit WHERE node <> %(edge)s", 0),
        ("heartbeats WHERE node <> %(edge)s", 0),
        ("heartbeats WHERE node = %(edge)s", 1),
        ("secrets", None),
        ("idempotency", None),
        ("usage_hours", None),
        ("usage_totals", None),
        ("leases", None),
        ("failures", None),
        ("last_used", None),
        ("duties", None),
    ],
)
def test_its_role_sees_what_forwards_there(stolen: Stolen, what: str, sees: int | None) -> None:
    if sees == 0:
        ((there,),) = stolen.full.fleet.execute(f"SELECT count(*) FROM proxyfleet.{what}" % {"edge": "''"})
        assert there > 0, "else nothing was tried"
    with psycopg.connect(stolen.edge.node.identity.dsn, options="-c jit=off") as connection:
        query = f"SELECT count(*) FROM proxyfleet.{what}".encode()
        if sees is None:
            with pytest.raises(InsufficientPrivilege):
                connection.execute(query, stolen.ids)
        else:
            assert connection.execute(query, stolen.ids).fetchone() == (sees,)


@table(
    "statement, may",
    [
        ('SELECT proxyfleet.add_audit(%(edge)s, \'[[900, "", ""]]\')', True),
        ('SELECT proxyfleet.add_audit(%(full)s, \'[[901, "", ""]]\')', False),
        ('SELECT proxyfleet.add_audit(NULL, \'[[901, "", ""]]\')', False),
        ("INSERT INTO proxyfleet.audit VALUES (%(edge)s, 902, 0, '', '')", False),
        ("UPDATE proxyfleet.audit SET content = ''", False),
        ("DELETE FROM proxyfleet.audit", False),
        ("SELECT proxyfleet.heartbeat(%(edge)s, %(beat)s)", True),
        ("SELECT proxyfleet.heartbeat(%(full)s, %(beat)s)", False),
        ("SELECT proxyfleet.write_heartbeat(%(edge)s, %(beat)s)", False),
        (f"SELECT proxyfleet.report_usage(%(edge)s, {USAGE})", True),
        (f"SELECT proxyfleet.report_usage(%(full)s, {USAGE})", False),
        (f"SELECT proxyfleet.report_usage(NULL, {USAGE})", False),
        (f"SELECT proxyfleet.write_usage(%(edge)s, {USAGE})", False),
        ("SELECT proxyfleet.report_limits(%(edge)s, '{}', '{}', '{}', '{}', '{}', '{}', '{}')", True),
        ("SELECT proxyfleet.report_limits(%(full)s, '{}', '{}', '{}', '{}', '{}', '{}', '{}')", False),
        ("SELECT proxyfleet.reset_usage('{a}')", False),
        ("SELECT proxyfleet.tend_usage()", False),
        ("SELECT proxyfleet.add_up_usage()", False),
        ("SELECT proxyfleet.write_change(1, %(edge)s, '{}')", False),
        ("SELECT proxyfleet.begin_change(0, NULL, %(edge)s, 1)", False),
        ("SELECT proxyfleet.rise_above(99, NULL, %(edge)s)", False),
        ("SELECT proxyfleet.write_loose(%(edge)s, '[]', false)", False),
        ("SELECT proxyfleet.claim(%(edge)s, '{a}', 1)", False),
        (ROLES, False),
        ("SELECT proxyfleet.remove_node(%(full)s)", False),
        ("SELECT proxyfleet.end_backends(%(full)s)", False),
        ("SELECT proxyfleet.run_as_owner('SELECT 1')", False),
        ("SELECT proxyfleet.set_rights()", False),
        ("UPDATE proxyfleet.documents SET body = NULL", False),
        ("SELECT FROM proxyfleet.fleet FOR UPDATE", False),
    ],
)
def test_its_role_writes_what_is_its_own(stolen: Stolen, statement: str, may: bool) -> None:
    with psycopg.connect(stolen.edge.node.identity.dsn, options="-c jit=off") as connection:
        if may:
            connection.execute(statement.encode(), stolen.ids)
        else:
            with pytest.raises(InsufficientPrivilege):
                connection.execute(statement.encode(), stolen.ids)
        connection.rollback()


@table(
    "path, why", [(BUS, "an edge node may not ask this"), (JOIN, "there is no such token"), ("/x", "no such request")]
)
def test_its_certificate_opens_nothing_but_leaving(stolen: Stolen, path: str, why: str) -> None:
    own = own_certificate(stolen.edge.data)
    body = {"token": "tok_0", "secret": "x", "certificate": own.pem, "signature": "", "name": "", "address": ""}
    with pytest.raises(NodeRefused, match=why):
        ask(stolen.api.address, stolen.full.own.fingerprint, path, body, 5, own)


def test_with_its_certificate_only_that_node_is_removed_and_then_it_is_a_stranger(
    stolen: Stolen, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        other = Edge(stolen.full, tmp_path / "other", stack)
        place, own = (stolen.api.address, stolen.full.own.fingerprint, LEAVE), own_certificate(other.data)
        ask(*place, {"node": stolen.full.login.node, "id": stolen.edge.node.node_id}, 5, own)
        assert stolen.full.names() == {"first", "edge"}
        assert not other.may_sign_in()
        with pytest.raises(NodeUnreachable):
            ask(*place, {}, 5, own)
