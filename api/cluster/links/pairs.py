"""Certificates that were uploaded at one node: others that run a proxy which names them ask full nodes for the pair.

Private keys are never in the database. They go from node to node, over TLS with both certificates: to full nodes, and
to an edge node for the proxies that it runs. The files have the same path on each node, or are not found.

A node asks before a proxy gets its change, for two seconds at most, and goes on asking for what it didn't get.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from api.cluster.links.certificates import KnownNode, NodeCertificateError, OwnCertificate
from api.cluster.links.internal_api import Handle, NodeRefused, NodeUnreachable, ask, place_of_node
from api.engine.commit import Engine
from api.periodic_work import PeriodicWork
from config.files.certificates import CertificateError
from config.files.pairs import NoRoom, Pair, files_of, keep_pair, pair_named_by, read_pair
from config.model.nodes import COLLECTION, NodeRecord, NodesOfProxy

log = logging.getLogger(__name__)

PATH = "/certificate"
PROXIES = "proxies"
WITHIN, OF_ONE = 2.0, 1.0
"""Seconds that all other nodes together have to respond, and each of them."""
PERIOD = 20.0
"""Seconds between two tries to get what is missing."""
CLOSE = 0.5


class Pairs(PeriodicWork):
    """Those of a node. Thread-safe."""

    def __init__(self, engine: Engine, node_id: str, own: OwnCertificate) -> None:
        super().__init__("certificates", "get certificates of other nodes", PERIOD, 0.0, within=CLOSE)
        self._engine, self._node_id, self._own = engine, node_id, own

    def act(self) -> None:
        """See `PeriodicWork`."""
        self.have(each.body for each in self._engine.every(PROXIES))

    def have(self, proxies: Iterable[Mapping[str, Any]]) -> None:
        """Get what these documents of proxies name and this node lacks, of those that it runs."""
        lacked, folder = dict[str, str](), self._engine.data.keys
        for each in proxies:
            cert_file = _cert_file(each)
            name = pair_named_by(cert_file)
            if name is None or name in lacked or Path(cert_file).parent != folder:
                continue
            if not all(file.exists() for file in files_of(folder, name)) and _runs(self._engine, each, self._node_id):
                lacked[name] = each["id"]
        until = time.monotonic() + WITHIN
        for name, proxy_id in lacked.items():
            self._get(name, proxy_id, until)

    def _get(self, name: str, proxy_id: str, until: float) -> None:
        """Have a full node give the pair of this name, if one has it."""
        for each in self._engine.find(COLLECTION, role="full"):
            left = until - time.monotonic()
            if each.id == self._node_id or left <= 0:
                continue
            try:
                wanted = {"name": name, "proxy": proxy_id}
                reply = ask(*place_of_node(each.body), PATH, wanted, min(left, OF_ONE), self._own)
                pair = Pair(str(reply.get("certificate")).encode(), str(reply.get("private_key")).encode())
                if pair.name != name:
                    raise NodeRefused("it is another certificate")
                keep_pair(self._engine.data.keys, pair, self._used)
            except (NodeRefused, NodeUnreachable, NodeCertificateError) as error:
                log.debug("%s does not give the certificate %s: %s", each.body["name"], name, error)
            except (CertificateError, NoRoom, OSError) as error:
                log.error("the certificate %s can't be kept: %s", name, error or "there are too many")
                return
            else:
                log.info("%s has given the certificate %s", each.body["name"], name)
                return

    def _used(self) -> set[str]:
        return {_cert_file(each.body) for each in self._engine.every(PROXIES)}


def _cert_file(proxy: Mapping[str, Any]) -> str:
    return str((proxy.get("tls") or {}).get("cert_file") or "")


def _runs(engine: Engine, proxy: Mapping[str, Any], node_id: str) -> bool:
    """Whether a proxy is for this node."""
    node = engine.get(COLLECTION, node_id)
    nodes = NodesOfProxy.model_validate(proxy.get("nodes") or {"all": True})
    return node is not None and nodes.selects(NodeRecord.model_validate(node.body))


# --- the other side ---------------------------------------------------------------------------------------------------


def pairs_for_nodes(engine: Engine) -> Handle:
    """What responds at `PATH`."""

    def handle(node: KnownNode | None, body: Mapping[str, Any]) -> Mapping[str, Any]:
        assert node is not None  # the route is not for strangers
        name = str(body.get("name"))
        if node.role != "full" and not _may_have(engine, node.id, str(body.get("proxy")), name):
            raise NodeRefused("no proxy of this node has this certificate")
        pair = read_pair(engine.data.keys, name)
        if pair is None:
            raise NodeRefused("this node does not have it", 404)
        log.info("the node %s gets the certificate %s", node.name, name)
        return {"certificate": pair.certificate.decode(), "private_key": pair.key.decode()}

    return handle


def _may_have(engine: Engine, node_id: str, proxy_id: str, name: str) -> bool:
    found = engine.get(PROXIES, proxy_id)
    return found is not None and pair_named_by(_cert_file(found.body)) == name and _runs(engine, found.body, node_id)
