"""A TLS client of an `https` proxy."""

from __future__ import annotations

import socket
import ssl

from tests.kit.forwarding_rig import Rig


def connect(rig: Rig, cert: str, **limits: ssl.TLSVersion) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=cert)
    context.set_alpn_protocols(["h2", "http/1.1"])
    for name, version in limits.items():
        setattr(context, name, version)
    sock = socket.create_connection(("127.0.0.1", rig.port), timeout=60)
    return context.wrap_socket(sock, server_hostname="localhost")
