"""A readiness probe for containers: `python -m api.operator.readiness_probe` requests `/readyz` and exits with 0 or 1.

Container runtimes start it every half minute. It finds the API as the product does: by the configuration and by the
settings changed through the API. The request stays on this machine, so a certificate is not verified.
"""

from __future__ import annotations

import http.client
import os
import ssl
import sys
from pathlib import Path

from api.operator.offline import peek_settings
from config.files.paths import DataDir, default_data_dir
from config.net.names import from_this_machine
from config.settings.env import ENV_PREFIX
from config.settings.loading import load
from config.settings.runtime import InvalidOverride, with_overrides
from config.settings.settings import ConfigError, Server

TIMEOUT = 4.0
"""Seconds for the connection, and for the response."""


def ask(server: Server) -> tuple[bool, str]:
    """Whether it is ready, and the body of the response or the error."""
    host, port = from_this_machine(server.host), server.port
    connection: http.client.HTTPConnection
    if server.tls.enabled:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        return response.status == 200, response.read(10_000).decode(errors="replace").strip()
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
        ready, text = ask(with_overrides(settings, peek_settings(data)).server)
    except (ConfigError, InvalidOverride, ValueError) as error:
        ready, text = False, str(error)
    sys.stdout.write(f"{text}\n")
    return 0 if ready else 1


if __name__ == "__main__":
    sys.exit(main())
