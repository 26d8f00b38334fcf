"""Requests to identity providers: no redirects, bounded in time and size, no credentials of the environment.

Responses are small JSON. A redirect from a token endpoint would carry a code or a secret to another server, so any is
an error. `requests` would read `~/.netrc` and replace our credentials; of the environment only proxies and
`SSL_CERT_FILE` are used.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.utils import get_environ_proxies
from urllib3.connection import HTTPConnection

from actors.net.egress_guard import OutgoingGuard
from actors.net.guarded_client import Breakable, connect_guarded, pools_by, pools_to, within
from api.errors import IDENTITY_PROVIDER, PeerUnavailable
from config.net.names import is_loopback

CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 5.0
DEADLINE = 10.0
"""Seconds for a whole response, from the request on."""
LARGEST = 256 * 1024
"""Bytes of a response."""

_CHUNK = 16 * 1024


class BoundedAdapter(HTTPAdapter):
    """Connects by the guard, once for each request, and reads the whole response within the bounds, whatever the caller
    asked for. A proxy of the environment is connected to without the guard. Raises `PeerUnavailable`."""

    def __init__(self, guard: OutgoingGuard) -> None:
        self._connection = Breakable()
        guarded = connect_guarded(guard, CONNECT_TIMEOUT)
        self._pools = pools_to(lambda host, port: self._connection.adopt(guarded(host, port)))
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **more: Any) -> None:
        """See `HTTPAdapter`."""
        super().init_poolmanager(connections, maxsize, block, **more)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def send(self, request: requests.PreparedRequest, *_args: Any, **_options: Any) -> requests.Response:
        """As `HTTPAdapter.send`, with timeouts, proxies and certificates of its own choice."""
        request.headers["Accept-Encoding"] = "identity"
        with within(DEADLINE) as self._connection:
            try:
                response = self._whole_response(request)
            except requests.RequestException as error:
                if self._connection.broken:
                    raise _late(request.url) from error
                raise
            if self._connection.broken:
                raise _late(request.url)
        return response

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        """See `HTTPAdapter`: the connection to a proxy of the environment has the deadline, too."""
        manager = super().proxy_manager_for(proxy, **options)
        manager.pool_classes_by_scheme = pools_by(self._to_proxy)
        return manager

    def _to_proxy(self, connection: HTTPConnection) -> socket.socket:
        return self._connection.adopt(HTTPConnection._new_conn(connection))

    def _whole_response(self, request: requests.PreparedRequest) -> requests.Response:
        response = super().send(
            request,
            stream=True,
            timeout=(CONNECT_TIMEOUT, READ_TIMEOUT),
            verify=os.environ.get("SSL_CERT_FILE") or True,
            proxies=_proxies(request.url or ""),
        )
        try:
            response._content = _whole(response)
        finally:
            response.close()
        return response


def _proxies(url: str) -> dict[str, str]:
    """Those of the environment; never to this machine itself, whatever NO_PROXY says."""
    return {} if is_loopback(urlsplit(url).hostname or "") else dict(get_environ_proxies(url))


def bind(made: requests.Session, guard: OutgoingGuard) -> None:
    """Make a session, also one of a subclass, keep the bounds."""
    made.trust_env = False
    adapter = BoundedAdapter(guard)
    made.mount("https://", adapter)
    made.mount("http://", adapter)


def get_json(url: str, guard: OutgoingGuard, token: str | None = None) -> Any:
    """The JSON of a GET, with an access token as bearer. Raises `PeerUnavailable`, also for a status other than 200."""
    headers = {"Accept": "application/json", **({} if token is None else {"Authorization": f"Bearer {token}"})}
    try:
        with requests.Session() as client:
            bind(client, guard)
            response = client.get(url, headers=headers)
        if response.status_code != requests.codes.ok:
            raise PeerUnavailable(IDENTITY_PROVIDER, f"{url}: status {response.status_code}")
        return json.loads(response.content)
    except (requests.RequestException, ValueError, RecursionError) as error:
        raise PeerUnavailable(IDENTITY_PROVIDER, f"{url}: {error}") from error


def get_object(url: str, guard: OutgoingGuard, token: str | None = None) -> dict[str, Any]:
    """As `get_json`, if it is an object."""
    found = get_json(url, guard, token)
    if not isinstance(found, dict):
        raise PeerUnavailable(IDENTITY_PROVIDER, f"{url}: the response is not a JSON object")
    return found


def _late(url: str | None) -> PeerUnavailable:
    return PeerUnavailable(IDENTITY_PROVIDER, f"{url}: the response took longer than {DEADLINE:g} s")


def _whole(response: requests.Response) -> bytes:
    url = response.url
    if 300 <= response.status_code < 400:
        raise PeerUnavailable(IDENTITY_PROVIDER, f"{url}: a redirect ({response.status_code}), which is not followed")
    if _encoding(response.headers) != "identity":
        raise PeerUnavailable(IDENTITY_PROVIDER, f"{url}: a content coding that was not requested")
    content = bytearray()
    for chunk in response.iter_content(_CHUNK):
        content += chunk
        if len(content) > LARGEST:
            raise PeerUnavailable(IDENTITY_PROVIDER, f"{url}: the response has more than {LARGEST} bytes")
    return bytes(content)


def _encoding(headers: Mapping[str, str]) -> str:
    return headers.get("Content-Encoding", "identity").strip().lower()
