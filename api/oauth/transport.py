"""Requests to identity providers: no redirects, bounded in time and size, no credentials of the environment.

Responses are small JSON. A redirect from a token endpoint would carry a code or a secret to another server, so any is
an error. Of the environment only proxies and `SSL_CERT_FILE` are used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from requests.utils import (
    DEFAULT_CA_BUNDLE_PATH,
    get_auth_from_url,
    get_environ_proxies,
    select_proxy,
)
from urllib3.util import make_headers

from actors.net.egress_guard import OutgoingGuard
from actors.net.guarded_client import HttpClient, HttpProxy, RequestFailed, guarded
from api.errors import IDENTITY_PROVIDER, PeerUnavailable
from config import VERSION
from config.net.names import is_loopback

SILENCE = 5.0
"""Seconds without an octet after which a response is given up."""
DEADLINE = 10.0
"""Seconds for a whole response, from the request on."""
LARGEST = 256 * 1024
"""Bytes of a response."""


class ProviderResponse(NamedTuple):
    """A whole response, with the methods that Authlib's client uses."""

    url: str
    status_code: int
    content: bytes

    def json(self) -> Any:
        """Its content. Raises `ValueError` and `RecursionError`."""
        return json.loads(self.content)

    def raise_for_status(self) -> None:
        """Raises `PeerUnavailable` for an error."""
        if self.status_code >= 400:
            raise PeerUnavailable(IDENTITY_PROVIDER, f"{self.url}: status {self.status_code}")


def ask(
    method: str, url: str, guard: OutgoingGuard, headers: Mapping[str, str], body: bytes | None = None
) -> ProviderResponse:
    """The response to one request. A proxy of the environment is connected to without the guard. Raises
    `PeerUnavailable`."""
    proxy = _proxy_for(url)
    authorities = os.environ.get("SSL_CERT_FILE") or DEFAULT_CA_BUNDLE_PATH
    client = HttpClient(guarded(guard if proxy is None else None), DEADLINE, SILENCE, authorities, proxy)
    try:
        with client.request(method, url, {"User-Agent": f"Proxyfleet/{VERSION}", **headers}, body) as response:
            if 300 <= response.status < 400:
                why = f"a redirect ({response.status}), which is not followed"
                raise PeerUnavailable(IDENTITY_PROVIDER, f"{url}: {why}")
            return ProviderResponse(url, response.status, response.whole(LARGEST))
    except RequestFailed as failure:
        reason = f"the response took longer than {DEADLINE:g} s" if failure.late else failure
        raise PeerUnavailable(IDENTITY_PROVIDER, f"{url}: {reason}") from failure


class TokenRequests(NamedTuple):
    """The session of Authlib's client."""

    guard: OutgoingGuard

    def post(self, url: str, data: Mapping[str, str], headers: Mapping[str, str], auth: Any) -> ProviderResponse:
        """The response to a form, which `auth` adds the client's credentials to. Raises `PeerUnavailable`."""
        url, sent, body = auth.prepare("POST", url, dict(headers), urlencode(data))
        return ask("POST", url, self.guard, sent, body.encode())


def get_json(url: str, guard: OutgoingGuard, token: str | None = None) -> Any:
    """The JSON of a GET, with an access token as bearer. Raises `PeerUnavailable`, also for a status other than 200."""
    headers = {"Accept": "application/json", **({} if token is None else {"Authorization": f"Bearer {token}"})}
    response = ask("GET", url, guard, headers)
    if response.status_code != 200:
        raise PeerUnavailable(IDENTITY_PROVIDER, f"{url}: status {response.status_code}")
    try:
        return response.json()
    except (ValueError, RecursionError) as error:
        raise PeerUnavailable(IDENTITY_PROVIDER, f"{url}: {error}") from error


def get_object(url: str, guard: OutgoingGuard, token: str | None = None) -> dict[str, Any]:
    """As `get_json`, if it is an object."""
    found = get_json(url, guard, token)
    if not isinstance(found, dict):
        raise PeerUnavailable(IDENTITY_PROVIDER, f"{url}: the response is not a JSON object")
    return found


def _proxy_for(url: str) -> HttpProxy | None:
    found = select_proxy(url, _proxies(url))
    if found is None:
        return None
    user, password = get_auth_from_url(found)
    own = make_headers(proxy_basic_auth=f"{user}:{password}") if user else {}
    return HttpProxy(found if "://" in found else f"http://{found}", own)


def _proxies(url: str) -> dict[str, str]:
    """Those of the environment; never to this machine itself, whatever NO_PROXY says."""
    return {} if is_loopback(urlsplit(url).hostname or "") else dict(get_environ_proxies(url))
