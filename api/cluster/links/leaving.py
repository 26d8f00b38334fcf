"""How an edge node leaves its fleet: a full node removes it, since an edge commits nothing.

It asks over the internal API of full nodes, one after the other, and shows its certificate: so it can have no other
node removed than itself. Its role in the database has ended when the response comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from api.audit.audit_context import on_behalf_of
from api.cluster.links.certificates import KnownNode, NodeCertificateError, own_certificate
from api.cluster.links.internal_api import Handle, NodeRefused, NodeUnreachable, ask, place_of_node
from api.engine.commit import Engine
from api.errors import NotFound
from api.store import LedgerError, StoreError
from config.model.nodes import COLLECTION

PATH = "/leave"
WITHIN = 10.0
"""Seconds that each full node has."""


class NotRemoved(LedgerError):
    """No full node has removed this one; the text has what each of them responded."""


def removal(remove: Callable[[str], object]) -> Handle:
    """What a full node responds with to `POST /leave`. `remove` does what `nodes remove` does, with a node's id."""

    def handle(node: KnownNode | None, _body: Mapping[str, Any]) -> Mapping[str, Any]:
        assert node is not None  # the route is not for strangers
        try:
            with on_behalf_of("system", "leave"):
                remove(node.id)
        except NotFound:  # at this moment by another one
            pass
        except StoreError as error:
            raise NodeRefused(f"the node can't be removed now: {error}", 503) from error
        return {}

    return handle


def be_removed(engine: Engine) -> None:
    """Have a full node remove this one. Raises `NotRemoved`."""
    failures = []
    for each in engine.find(COLLECTION, role="full"):
        try:
            ask(*place_of_node(each.body), PATH, {}, WITHIN, own_certificate(engine.data))
        except (NodeRefused, NodeUnreachable, NodeCertificateError) as error:
            failures.append(f"{each.body['name']}: {error}")
        else:
            return
    raise NotRemoved("; ".join(["no full node has removed this one, which may be removed already", *failures]))
