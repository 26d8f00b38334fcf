"""The way to upstreams themselves: their addresses, TLS, and which addresses they may have."""

from __future__ import annotations

import ssl

from actors.bus.messages.specs import AccessSpec, EgressSpec
from actors.bus.messages.upstreams import UpstreamSpec
from actors.forwarding.access.policy import AccessPolicy
from actors.forwarding.access.rules import Rules
from actors.forwarding.protocols.http.targets import Authority, authority_of_name
from actors.forwarding.upstreams.attempt import Plan
from actors.forwarding.upstreams.tls_client import context_for
from actors.net.egress_guard import UpstreamGuard


class Reaching:
    """Makes plans, and keeps what several have in common."""

    def __init__(self) -> None:
        self._contexts: dict[tuple[bool, str | None], ssl.SSLContext] = {}
        self._authorities: dict[str, Authority] = {}

    def plan(self, spec: UpstreamSpec, timeout: float) -> Plan:
        """The way to the upstream itself. Raises `UpstreamFailed` when its `ca_file` can't be used."""
        address = self._authorities.get(spec.host)
        if address is None or address.port != spec.port:
            address = self._authorities[spec.host] = authority_of_name(spec.host.encode("ascii"), spec.port)
        context = self._context(spec) if spec.protocol == "https" else None
        return Plan(address, timeout, context=context, server_name=spec.server_name or spec.host)

    def _context(self, spec: UpstreamSpec) -> ssl.SSLContext:
        kind = (spec.verify, spec.ca_file)
        if kind not in self._contexts:
            self._contexts[kind] = context_for(spec)
        return self._contexts[kind]


def access_to_upstreams(egress: EgressSpec, fetched: bool = False) -> AccessPolicy:
    """Which addresses upstreams may have; `fetched`: those from a source."""
    return AccessPolicy(UpstreamGuard(egress, fetched=fetched), Rules(AccessSpec()))
