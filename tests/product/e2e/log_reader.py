"""Access records as the API returns them."""

from __future__ import annotations

from typing import Any

import requests

from tests.kit.http_origins import Origin

Proxy = dict[str, Any]


def get(proxy: Proxy, origin: Origin, path: str) -> int:
    """The status of a request through the proxy."""
    through = {"http": f"http://127.0.0.1:{proxy['port']}"}
    with requests.Session() as session:
        session.trust_env = False
        return session.get(f"http://127.0.0.1:{origin.port}/{path}", proxies=through, timeout=20).status_code
