"""A product whose API speaks TLS, with the certificate of an unknown authority, and that asks a name server."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from tests.kit.certificates import make_pair
from tests.kit.name_servers import ScriptedNameServer
from tests.kit.product import Product

LONG = 120.0
NAME = "site.names.example"
"""What the name server has: the address of loopback."""


class SecuredProduct(Product):
    """`cert` and `key` are its files, which may be replaced. It publishes live metrics at any port.

    Names come from `names`, and a proxy keeps no connection: a request over a kept one needs no name.
    """

    def __init__(self, folder: Path, names: ScriptedNameServer) -> None:
        self.names = names
        self.cert, self.key = map(Path, make_pair(folder))
        config = f'[server.tls]\nenabled = true\ncert_file = "{self.cert}"\nkey_file = "{self.key}"\n'
        config += "[security]\nhttps_only = true\nrequest_logging = true\n"
        config += '[proxy]\ndns_allow = ["127.0.0.0/8"]\nmax_idle_connections = 0\n'
        config += f'[proxy.dns]\nservers = ["{names.address}"]\n'
        super().__init__({"PROXYFLEET_METRICS__PUBLISH": "tcp://127.0.0.1:0"}, config)
        self.base_url = f"https://127.0.0.1:{self.port}"
        self.session.verify = False

    def connect(self, source: str = "127.0.0.1") -> ssl.SSLSocket:
        """A connection that trusts any certificate and offers HTTP/2, too."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2", "http/1.1"])
        return context.wrap_socket(socket.create_connection(("127.0.0.1", self.port), LONG, (source, 0)))
