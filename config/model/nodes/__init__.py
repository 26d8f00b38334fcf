"""Nodes of a fleet in requests, and as they are stored; which of them a proxy runs on, and as what.

One machine without a fleet has no such document. In `host`, `bind_address` and the paths of `tls` of a proxy `{node}`
stands for the name of the node, and `{address}` and `{address:public}` for a host of its `addresses`, of which
`internal` needs no name.
"""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, StrictStr, TypeAdapter, ValidationError

from config.model import json_patterns
from config.model.declaration import INTERNAL, Given, Instant, Viewed, gives, update
from config.model.fields import Body, Distinct, InvalidProxy, Text, example
from config.model.object_fields import Chosen, ChosenInput, Tags, selecting
from config.net.addresses import is_plain_address, read_bind_address
from config.net.names import is_host_name
from config.text.formatting import counted

if TYPE_CHECKING:  # it has what is declared here
    from config.model.proxies import ProxyRecord

COLLECTION = "nodes"
FLEET_KEY = "secrets", "fleet-key"
"""Collection and id of a document that is sealed with the fleet's key; among what a node could not apply it stands for
the key, which the node lacks."""
API_ADDRESS = "api"
"""The address at which its API is reached."""
INTERNAL_ADDRESS = "internal"
"""The address at which other nodes reach it, which `{address}` stands for."""
ADDRESSES_MAX = 16
MAX_NODES = 200
NODE_ID = "nod_"
"""How ids of nodes begin."""

_NAME = re.compile(json_patterns.NODE_NAME, re.ASCII)
_ADDRESS_NAME = re.compile(json_patterns.ADDRESS_NAME, re.ASCII)
_PENDING = {
    "sign_ins": "sign-in",
    "credentials": "credential",
    "audit": "entry of the audit trail",
    "usage_bytes": "byte of usage",
}
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)


def pending_text(pending: Mapping[str, float]) -> str:
    """What waits at a node for the database, as `pending` of a node has it: `2 sign-ins, 1 credential`."""
    return ", ".join(counted(round(number), one) for name, one in _PENDING.items() if (number := pending.get(name)))


def node_name(text: str) -> str:
    """`text`, if it may be the name of a node; else `ValueError`."""
    if _NAME.fullmatch(text) is None:
        raise ValueError("must be 1 to 63 letters, digits and '-', with neither end a '-'")
    return text


def name_of_machine() -> str:
    """The host's name as far as it may be the name of a node; empty if nothing is left of it."""
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname().partition(".")[0]).strip("-")[:63]


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


def node_address(text: str) -> str:
    """`text`, if it may be an address of a node; else `ValueError`."""
    try:
        return str(TypeAdapter(NodeAddress).validate_python(text))
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None


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
    return NODE_ID + secrets.token_hex(8)


def changed_node(before: NodeRecord, body: NodeUpdate) -> NodeRecord:
    """`before` with the changes of `body`."""
    return before.model_copy(update=update(before, body))


# --- which nodes a proxy runs on ------------------------------------------------------------------------------------


class NodesOfProxy(Chosen):
    """The nodes that a proxy runs on: every node, or each that a name or a tag names."""

    names: list[str] = Field(default_factory=list)
    tags: list[str] = Field(default_factory=list)

    def selects(self, node: NodeRecord) -> bool:
        """Whether the proxy runs on this node."""
        return self.all or node.name in self.names or not set(self.tags).isdisjoint(node.tags)


NodeNames = Annotated[list[NodeName], Field(min_length=1, max_length=MAX_NODES)]


class NodesInput(ChosenInput):
    """The nodes that a proxy runs on: `all`, or each that one of the names or tags names."""

    model_config = selecting("names")
    SELECTED = "nodes"
    BY = "names"

    names: NodeNames | None = None

    def stored(self) -> NodesOfProxy:
        """As it is stored."""
        return NodesOfProxy.model_validate(self.model_dump(exclude_none=True))


EVERY_NODE = NodesOfProxy(all=True)

# --- what stands for a part of a node ---------------------------------------------------------------------------------

_PLACEHOLDER = re.compile(r"\{node\}|\{address(?::([a-z][a-z0-9_-]{0,31}))?\}", re.ASCII)
_ADDRESS_OF_NODE = re.compile(json_patterns.ADDRESS_OF_NODE, re.ASCII)
_PROXY_HOST = re.compile(json_patterns.PROXY_HOST, re.ASCII)
_PATHS = ("cert_file", "key_file", "client_ca", "client_crl")


def is_address_of_node(text: str) -> bool:
    """Whether it stands for an address of the node: `{address}`, `{address:public}`."""
    return _ADDRESS_OF_NODE.fullmatch(text) is not None


def _proxy_host(text: str) -> str:
    if is_plain_address(text) or is_host_name(text) or ("{" in text and _PROXY_HOST.fullmatch(text) is not None):
        return text
    raise ValueError("must be an IP address or a host name of this machine")


ProxyHost = Annotated[StrictStr, Text(1, 253, _proxy_host, pattern=json_patterns.PROXY_HOST, lengths=False)]


def placeholders_of(proxy: ProxyRecord) -> Iterator[tuple[str, str]]:
    """The fields of a proxy that name a part of the node, with their texts."""
    for field, text in _texts_of(proxy):
        if "{" in text and _PLACEHOLDER.search(text):
            yield field, text


def on_node(proxy: ProxyRecord, node: NodeRecord) -> ProxyRecord:
    """The proxy as it runs on this node. Raises `InvalidProxy` when the node lacks what it names."""
    found = {field: _on_node(field, text, node) for field, text in placeholders_of(proxy)}
    if not found:
        return proxy
    changed: dict[str, Any] = {"host": found.get("host", proxy.host)}
    bind = proxy.bind_address
    if isinstance(bind, list):
        changed["bind_address"] = [found.get(f"bind_address[{index}]", each) for index, each in enumerate(bind)]
    else:
        changed["bind_address"] = found.get("bind_address", bind)
    if proxy.tls is not None:
        paths = {name: found.get(f"tls.{name}", getattr(proxy.tls, name)) for name in _PATHS}
        changed["tls"] = proxy.tls.model_copy(update=paths)
    return proxy.model_copy(update=changed)


def alone(proxy: ProxyRecord, node: NodeRecord) -> ProxyRecord:
    """The proxy as one machine has it that was this node: as it ran there, and inactive if it did not."""
    changed: dict[str, Any] = {"nodes": EVERY_NODE}
    try:
        found = on_node(proxy, node)
        if not proxy.nodes.selects(node):
            changed["status"] = "inactive"
    except InvalidProxy:
        found = proxy
        changed["status"] = "inactive"
    return found.model_copy(update=changed)


def _texts_of(proxy: ProxyRecord) -> Iterator[tuple[str, str]]:
    yield "host", proxy.host
    if isinstance(proxy.bind_address, list):
        yield from ((f"bind_address[{index}]", each) for index, each in enumerate(proxy.bind_address))
    else:
        yield "bind_address", proxy.bind_address
    for name in _PATHS if proxy.tls is not None else ():
        yield f"tls.{name}", getattr(proxy.tls, name) or ""


def filled(text: str, node: str, addresses: Mapping[str, str]) -> str:
    """`text` with what stands for parts of a node as on the one with this name and these addresses.

    Raises `KeyError` with what stands for an address that it lacks, and the name of that.
    """

    def part(found: re.Match[str]) -> str:
        if found[0] == "{node}":
            return node
        name = found[1] or INTERNAL_ADDRESS
        if name not in addresses:
            raise KeyError(found[0], name)
        return host_of(addresses[name])

    return _PLACEHOLDER.sub(part, text)


def _on_node(field: str, text: str, node: NodeRecord) -> str:
    try:
        made = filled(text, node.name, node.addresses)
    except KeyError as missing:
        what, name = missing.args
        raise InvalidProxy(field, f"{what}: the node {node.name!r} has no address {name!r}") from None
    if field == "host" and not (is_plain_address(made) or is_host_name(made)):
        raise InvalidProxy(field, f"would be {made!r} on the node {node.name!r}, which is no host")
    if field.startswith("bind_address"):
        try:
            return read_bind_address(made)
        except ValueError as error:
            raise InvalidProxy(field, f"would be {made!r} on the node {node.name!r}: {error}") from error
    return made
