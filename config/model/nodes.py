"""Nodes of a fleet in requests, and as they are stored. One machine without a fleet has no such document."""

from __future__ import annotations

import re
import secrets
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, StrictStr

from config.model import json_patterns
from config.model.declaration import INTERNAL, Given, Instant, Viewed, gives, update
from config.model.fields import Body, Distinct, Text, example
from config.model.object_fields import Tags
from config.net.addresses import is_plain_address
from config.net.names import is_host_name

COLLECTION = "nodes"
INTERNAL_ADDRESS = "internal"
"""The address at which other nodes reach it, which `{address}` stands for."""
ADDRESSES_MAX = 16
MAX_NODES = 200

_NAME = re.compile(json_patterns.NODE_NAME, re.ASCII)
_ADDRESS_NAME = re.compile(json_patterns.ADDRESS_NAME, re.ASCII)
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)


def node_name(text: str) -> str:
    """`text`, if it may be the name of a node; else `ValueError`."""
    if _NAME.fullmatch(text) is None:
        raise ValueError("must be 1 to 63 letters, digits and '-', with neither end a '-'")
    return text


def host_of(address: str) -> str:
    """The host of an address of a node, without its port."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address if address.count(":") > 1 else address.partition(":")[0]


def _address(text: str) -> str:
    host = host_of(text)
    port = text.removeprefix(f"[{host}]").removeprefix(host)
    is_bare_ipv6 = ":" in host and not text.startswith("[")
    if not (is_plain_address(host) or is_host_name(host)) or (is_bare_ipv6 and port) or not _is_port(port):
        raise ValueError(
            "must be an IP address or a host name, and may have a port: 192.0.2.7:8080, [2001:db8::7]:8080"
        )
    if text.startswith("[") and ":" not in host:
        raise ValueError("must have brackets only around an IPv6 address")
    return text


def _is_port(rest: str) -> bool:
    return not rest or (rest[0] == ":" and _PORT.fullmatch(rest[1:]) is not None and int(rest[1:]) <= 65535)


def _address_name(text: str) -> str:
    if _ADDRESS_NAME.fullmatch(text) is None:
        raise ValueError(
            "the name of an address is 1 to 32 lower-case letters, digits, '_' and '-', beginning with a letter"
        )
    return text


NodeName = Annotated[StrictStr, AfterValidator(node_name), json_patterns.text(json_patterns.NODE_NAME)]
NodeAddress = Annotated[StrictStr, Text(1, 261, _address, pattern=json_patterns.NODE_ADDRESS, lengths=False)]
Addresses = Annotated[
    dict[Annotated[StrictStr, AfterValidator(_address_name)], NodeAddress],
    Field(max_length=ADDRESSES_MAX),
    json_patterns.mapping(
        {"pattern": json_patterns.ADDRESS_NAME}, json_patterns.text(json_patterns.NODE_ADDRESS), ADDRESSES_MAX
    ),
]
NodeTags = Annotated[Tags, Distinct("tag")]
NodeRole = Literal["full", "edge"]


class NodeCertificate(Viewed):
    """The public certificate of a node; `fingerprint` is its SHA-256 in hexadecimal digits. Empty: it has none yet."""

    fingerprint: str = ""
    pem: str = ""


class NodeRecord(BaseModel):
    """A document of the collection `nodes`. `addresses` are by name: `api`, `internal`, and any others."""

    id: str
    name: str
    role: NodeRole = "full"
    tags: Annotated[list[str], Given(NodeTags)] = Field(default_factory=list)
    addresses: Annotated[dict[str, str], Given(Addresses)] = Field(default_factory=dict)
    certificate: NodeCertificate = NodeCertificate()
    draining: Annotated[bool, INTERNAL] = False
    created_at: Instant

    def address(self, name: str) -> str | None:
        """The host of its address with this name."""
        found = self.addresses.get(name)
        return None if found is None else host_of(found)


@gives(NodeRecord)
class NodeUpdate(Body):
    """A change of a node: what is not given stays. `addresses` are all that it has."""

    model_config = example({"tags": ["eu"], "addresses": {"public": "192.0.2.7", "internal": "10.0.0.7:7443"}})


def new_node_id() -> str:
    """An id that no node has had."""
    return "nod_" + secrets.token_hex(8)


def changed_node(before: NodeRecord, body: NodeUpdate) -> NodeRecord:
    """`before` with the changes of `body`."""
    return before.model_copy(update=update(before, body))
