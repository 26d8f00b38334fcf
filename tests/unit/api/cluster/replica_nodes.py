"""Nodes that take what there is when they are asked, and whether they are what the database has."""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from typing import Any

from actors.cluster.database import Database
from actors.cluster.identity import NodeIdentity, NodeRole
from api.audit.trail import Head, verify
from api.cluster.following.rereading import Rereading
from api.cluster.roles import NodeLogin
from api.cluster.shared_ledger import Rewound, SharedLedger
from api.engine.commit import Engine
from api.engine.effects import CommitEffect
from api.engine.ledger import TooFarBehind
from api.engine.loose import LOOSE
from api.history.document_changes import DocumentChange
from api.store import HistoryPruned
from config.files.paths import open_data_dir
from tests.unit.api.cluster.nodes import Fleet
from tests.unit.api.store.replicas import COLLECTIONS, answers

ORDERED = [each for each in COLLECTIONS if each not in LOOSE]


class Replica:
    """A node that takes what there is when it is asked, with the changes that its effects have got."""

    def __init__(
        self, fleet: Fleet, name: str, stack: ExitStack, folder: str = "", login: NodeLogin | None = None, dsn: str = ""
    ) -> None:
        dsn = dsn or fleet.dsn
        self.name = name
        self.data = open_data_dir(fleet.folder / (folder or name))
        self.data.cluster.mkdir(exist_ok=True)
        self.database = stack.enter_context(closing(Database(dsn if login is None else login.dsn(dsn))))
        self.engine = Engine(self.data, fleet.seal, ledger := SharedLedger(self.database, fleet.id, name))
        stack.callback(self.engine.close)
        self.made: list[DocumentChange] = []
        self.engine.effects.follow(CommitEffect(COLLECTIONS, self.made.extend))
        self.events: list[tuple[str, dict[str, Any]]] = []
        role: NodeRole = "edge" if login is not None and login.role == "edge" else "full"
        identity = NodeIdentity(fleet.id, name, f"name-{name}", role, fleet.dsn)
        self.reread = Rereading(ledger, identity, self.engine, lambda kind, data: self.events.append((kind, data)))

    def follow(self) -> None:
        try:
            self.engine.catch_up()
        except (Rewound, HistoryPruned, TooFarBehind):
            self.reread()

    def lost(self) -> Any:
        (found,) = self.data.cluster.glob("lost-*.json")
        return json.loads(found.read_text())


def alike(fleet: Fleet, *nodes: Replica) -> None:
    """All nodes are what the database has, and the ledger has each of their audit trails whole."""
    wanted, *others = (answers(each.engine, fleet.seal) for each in nodes)
    assert len({each.engine.stamped() for each in nodes}) == 1
    for found in others:
        for name in wanted.keys() - {"audit", "changed", "recent", "clash", "numbers"}:
            assert found[name] == wanted[name], name
    documents = fleet.execute(
        "SELECT collection, id, revision FROM proxyfleet.documents WHERE body IS NOT NULL ORDER BY 1, 2"
    )
    engine = nodes[0].engine
    assert documents == sorted((name, each.id, each.revision) for name in ORDERED for each in engine.every(name))
    assert [engine.stamped()[0]] == [row[0] for row in fleet.execute("SELECT head FROM proxyfleet.fleet")]
    for node in nodes:
        sent = fleet.execute(f"SELECT seq, hash FROM proxyfleet.audit WHERE node = '{node.name}' ORDER BY seq")
        head = verify(node.data)
        assert isinstance(head, Head)
        assert sent[-1:] == ([(head.seq, head.hash)] if head.seq else [])
