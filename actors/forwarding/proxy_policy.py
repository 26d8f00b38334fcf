"""What one configuration says about the connections and requests of a proxy."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from actors.bus.messages.specs import ProxySpec
from actors.forwarding.access.policy import AccessPolicy
from actors.forwarding.protocols.http.via import pseudonym_of, received_by
from actors.forwarding.protocols.session_config import SessionConfig


@dataclass(frozen=True, slots=True)
class ProxyPolicy:
    """Replaced whole when the configuration changes, so that all of it is of one configuration.

    `access` stays the same object while egress settings and access rules do: who has compared with it need not again.
    """

    access: AccessPolicy
    session: SessionConfig
    protocol: str = "http"
    max_connections: int = 0
    accept_proxy_protocol: bool = False


def via_entry(spec: ProxySpec) -> bytes:
    """The proxy's entry in `Via` without the version, as `headers.via` says; empty when it adds none."""
    if spec.via == "off":
        return b""
    pseudonym = pseudonym_of(spec.id)
    return received_by(pseudonym, socket.gethostname(), spec.port) if spec.via == "on" else pseudonym
