"""What one configuration says about the connections and requests of a proxy."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from actors.bus.messages.specs import ProxySpec, RequestHeadersSpec
from actors.forwarding.access.policy import AccessPolicy
from actors.forwarding.protocols.http.header_changes import pseudonym_of, received_by
from actors.forwarding.protocols.session import SessionConfig

if TYPE_CHECKING:
    from actors.forwarding.protocols.http.header_changes import OwnHeaders

_UNCHANGED: Final = RequestHeadersSpec()


@dataclass(frozen=True, slots=True)
class ProxyPolicy:
    """Replaced whole when the configuration changes, so that all of it is of one configuration.

    `headers` is None where requests are sent with the fields that they have. `tls_name` and `tls_ports` are as in
    `ProxySpec`.
    `access` stays the same object while egress settings and access rules do: who has compared with it need not again.
    """

    access: AccessPolicy
    session: SessionConfig
    protocol: str = "http"
    max_connections: int = 0
    accept_proxy_protocol: bool = False
    headers: OwnHeaders | None = None
    tls_name: str = "auto"
    tls_ports: frozenset[int] = frozenset((443,))

    @property
    def speaks_http(self) -> bool:
        """Whether clients may send plain requests."""
        return not self.protocol.startswith("socks")


def policy_of(spec: ProxySpec, access: AccessPolicy, session: SessionConfig) -> ProxyPolicy:
    """The policy of a configuration, of which the other two are made."""
    headers = own_headers(spec)
    return ProxyPolicy(
        access,
        session,
        spec.protocol,
        spec.max_connections,
        spec.accept_proxy_protocol,
        headers,
        spec.tls_name,
        frozenset(spec.tls_ports),
    )


def own_headers(spec: ProxySpec) -> OwnHeaders | None:
    """What the proxy does to the heads of requests. It names itself in `Forwarded` where it does in `Via`."""
    wanted = spec.request_headers
    if wanted == _UNCHANGED:
        return None
    from actors.forwarding.protocols.http.header_changes import (  # only proxies that change heads
        FIELDS,
        OwnHeaders,
        field_changes,
        merged,
    )

    by = b"" if spec.via == "off" else b"_" + pseudonym_of(spec.id)
    return OwnHeaders(merged((field_changes(wanted.set, wanted.remove),)), FIELDS.get(wanted.forwarded), by)


def via_entry(spec: ProxySpec) -> bytes:
    """The proxy's entry in `Via` without the version, as `headers.via` says; empty when it adds none."""
    if spec.via == "off":
        return b""
    pseudonym = pseudonym_of(spec.id)
    return received_by(pseudonym, socket.gethostname(), spec.port) if spec.via == "on" else pseudonym
