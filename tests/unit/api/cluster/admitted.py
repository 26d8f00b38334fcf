"""Full nodes that let others in and have them leave, and edge nodes with their real role."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg

from actors.cluster.identity import NodeIdentity, identity_of
from api.cluster.fleet_node import FleetNode
from api.cluster.joining import PATH, Admission, ask_to_join, finish_joining
from api.cluster.links.certificates import Certificates, KnownNode, own_certificate
from api.cluster.links.internal_api import InternalApi, Route
from api.cluster.links.leaving import PATH as LEAVE
from api.cluster.links.leaving import removal
from api.cluster.roles import NodeLogin, end_role
from api.engine.commit import Engine
from api.errors import NotFound
from api.store import Write
from config.files.paths import open_data_dir
from config.files.secret_box import secret_box_of
from config.model.nodes import NodeRecord
from config.model.nodes.tokens import COLLECTION as TOKENS
from config.model.nodes.tokens import NodeTokenCreate, TokenLine, new_token
from tests.kit.fleet_database import begin_roles
from tests.unit.api.cluster.nodes import Fleet

_numbers = iter(range(10**6))


class Asked:
    """A full node that lets others in."""

    def __init__(self, made: Fleet, stack: ExitStack) -> None:
        self.fleet = made
        self.login = NodeLogin(f"nod_{next(_numbers):016}", "full")
        begin_roles(made.database, self.login)
        dsn = self.login.dsn(made.dsn)
        self.node = made.node(self.login.node, dsn)
        self.seal = secret_box_of(self.node.data)
        self.own = own_certificate(self.node.data)
        self.put("nodes", NodeRecord(id=self.login.node, name="first", created_at=1.0).model_dump(mode="json"))
        self.certificates = Certificates(self.own, self.known)
        identity = NodeIdentity(made.id, self.login.node, "first", "full", dsn)
        self.events: list[tuple[str, str]] = []
        self.admission = Admission(
            self.node.engine, self.seal, identity, made.database, self.certificates,
            lambda event, data: self.events.append((event, data["name"])),
        )  # fmt: skip
        route = Route(self.admission.handle, for_strangers=True)
        self.api = stack.enter_context(closing(InternalApi(("127.0.0.1", 0), self.certificates, lambda: {PATH: route})))
        self.api.start()

    def known(self) -> list[KnownNode]:
        found = [KnownNode.of(each.body) for each in self.node.engine.find("nodes")]
        return [each for each in found if each.certificate]

    def put(self, collection: str, body: dict[str, Any] | None, identifier: str = "") -> None:
        key = identifier or (body or {})["id"]
        self.node.engine.commit([Write(collection, key, body, self.node.engine.revision_of(collection, key))])

    def token(self, ttl: int = 3600, **fields: Any) -> TokenLine:
        now = self.fleet.database.time()
        record, secret = new_token(NodeTokenCreate(**fields), now - 3600 + ttl)
        self.put(TOKENS, record.model_dump(mode="json"))
        address = "{}:{}".format(*self.api.address)
        return TokenLine(self.own.fingerprint, record.id, secret, address)

    def names(self) -> set[str]:
        return {each.body["name"] for each in self.node.engine.find("nodes")}

    def roles(self) -> int:
        ((count,),) = self.fleet.execute("SELECT count(*) FROM pg_roles WHERE rolname LIKE 'pf_nod_%' AND rolcanlogin")
        return int(count)


class Full(Asked):
    """A full node at which others leave."""

    def listen(self, stack: ExitStack) -> None:
        routes = {LEAVE: Route(removal(self.remove), for_edges=True)}
        api = stack.enter_context(closing(InternalApi(("127.0.0.1", 0), self.certificates, lambda: routes)))
        api.start()
        self.place = api.address
        self.announce("first", "{}:{}".format(*api.address))

    def announce(self, name: str, address: str) -> None:
        """There is this full node, with our certificate."""
        (document,) = self.node.engine.find("nodes", name="first")
        certificate = {"fingerprint": self.own.fingerprint, "pem": self.own.pem}
        identifier = document.id if name == "first" else name
        changed = {"id": identifier, "name": name, "certificate": certificate, "addresses": {"internal": address}}
        self.put("nodes", {**document.body, **changed})

    def remove(self, node_id: str) -> None:
        if self.node.engine.get("nodes", node_id) is None:
            raise NotFound("The node")
        end_role(self.fleet.database, node_id)
        self.put("nodes", None, node_id)


class Edge:
    def __init__(self, full: Full, folder: Path, stack: ExitStack) -> None:
        self.data = open_data_dir(folder)
        self.name = ask_to_join(self.data, full.token(role="edge").text, folder.name)
        finish_joining(self.data)
        identity = identity_of(self.data, secret_box_of(self.data))
        assert identity is not None
        self.node = FleetNode(identity)
        stack.callback(self.node.close)
        self.engine = stack.enter_context(closing(Engine(self.data, secret_box_of(self.data), self.node.ledger)))
        self.node.opened(self.engine)
        self.engine.catch_up()

    def may_sign_in(self) -> bool:
        try:
            with psycopg.connect(self.node.identity.dsn):
                return True
        except psycopg.OperationalError:
            return False
