"""Upstreams for tests: specs of our own proxies and of hostile scripts."""

from __future__ import annotations

import socket
from typing import Any

from actors.bus.messages.upstreams import UpstreamSpec, UpstreamsSpec
from tests.kit.forwarding_rig import Rig


def upstream_entry(port: int, protocol: str = "http", **changes: Any) -> UpstreamSpec:
    """An upstream on loopback."""
    return UpstreamSpec(f"{protocol}-{port}", protocol, "127.0.0.1", port, **changes)


def upstream_list(*given: UpstreamSpec, policy: str = "failover", **changes: Any) -> UpstreamsSpec:
    """These upstreams, without checks unless asked for."""
    return UpstreamsSpec(given, policy, **{"check_enabled": False, **changes})


def of_rig(rig: Rig, **changes: Any) -> UpstreamSpec:
    """One of our own proxies as an upstream."""
    return upstream_entry(rig.port, rig.spec.protocol, **changes)


def closed_port() -> int:
    """A port of loopback without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port
