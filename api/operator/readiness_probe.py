"""Is the product of this configuration ready? `python -m api.operator.readiness_probe` asks its `/readyz` and ends with
0 or 1.

For supervisors of containers, which start it every half minute. It finds the API as the product does: by the
configuration and by what was set through the API. It asks on this machine, so a certificate is not verified.
"""

from __future__ import annotations

import http.client
import os
import ssl
import sys
from ipaddress import ip_address
from pathlib import Path

from actors.supervision.effective_settings import with_overrides
from api.operator.offline import peek_settings
from config.files.paths import DataDir, default_data_dir
from config.settings.env import ENV_PREFIX
from config.settings.runtime import InvalidOverride
from config.settings.settings import ConfigError, Server, load

PATIENCE = 4.0
"""Seconds for the connection, and for the answer."""


def address_of(server: Server) -> tuple[str, int]:
    """Where to ask on this machine: a wildcard address is reached by loopback."""
    try:
        host = ip_address(server.host)
    except ValueError:
        return server.host, server.port
    if host.is_unspecified:
        return ("127.0.0.1" if host.version == 4 else "::1"), server.port
    return server.host, server.port


def ask(server: Server) -> tuple[bool, str]:
    """Is it ready, and what it said."""
    host, port = address_of(server)
    connection: http.client.HTTPConnection
    if server.tls.enabled:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, port, timeout=PATIENCE, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        return answer.status == 200, answer.read(10_000).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return False, f"{host}:{port}: {error}"
    finally:
        connection.close()


def main() -> int:
    """The exit status."""
    try:
        file = os.environ.get(f"{ENV_PREFIX}CONFIG")
        settings = load(Path(file) if file else None, {})
        data = DataDir(settings.data_dir or default_data_dir())
        ready, said = ask(with_overrides(settings, peek_settings(data)).server)
    except (ConfigError, InvalidOverride, ValueError) as error:
        ready, said = False, str(error)
    sys.stdout.write(f"{said}\n")
    return 0 if ready else 1


if __name__ == "__main__":
    sys.exit(main())
