"""Nodes of a fleet. They are of the installation, not of its configuration: no export has them
(`api.objects.kinds`)."""

from __future__ import annotations

from api.engine.kind import Kind
from api.engine.responses import ResponseModel, shows
from api.engine.transfer import Transfer
from config.model.nodes import COLLECTION, MAX_NODES, NodeCertificate, NodeRecord, NodeUpdate


@shows(NodeCertificate)
class CertificateOfNode(ResponseModel):
    """The public certificate of a node. `fingerprint` is its SHA-256; both are empty while it has none."""


@shows(NodeRecord)
class NodeView(ResponseModel):
    """A node of the fleet."""

    certificate: CertificateOfNode


NODES = Kind(
    name="node",
    collection=COLLECTION,
    model=NodeRecord,
    transfer=Transfer(model=NodeUpdate, exported=NodeView, blank={}),  # of which only the identity is used
    most=MAX_NODES,
    by_name=True,
)
