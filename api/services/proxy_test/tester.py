"""The test of a proxy: one GET through it, as an authorised client.

The forwarding actor gets credentials for one use, so a test needs no stored password. All of the test, from the first
byte to the last that is read, has one deadline.
"""

from __future__ import annotations

import json
import re
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection

from actors.bus.mailbox import STARTING
from actors.bus.messages.common import SUPERVISOR, Done, Unreachable
from actors.bus.messages.forwarding import AllowTestClient, QueryTester, ReportOfTest
from actors.bus.messages.supervision import AwaitProxy
from actors.net.guarded_client import Breakable, pools_by, within
from actors.net.proxy_protocol import LOCAL_V2
from api.bus_bridge import Bridge, is_asleep
from api.errors import NotReady, TooBusy
from api.services.proxy_cache import StoredProxy
from api.services.proxy_test.socks import Route, SocksAdapter, SocksRefused
from api.services.worker_requests import ask_workers
from config.model import json_patterns
from config.model.proxies import ProxyRecord
from config.model.proxy_parts import entries_of
from config.settings.settings import ProxyGroup
from config.text.formatting import timestamp_text

BODY_READ = 64 * 1024
"""Bytes of the response that are read: enough for any service that returns an address."""

AT_ONCE = 3
"""Tests under way at the same time: each holds a thread of the API."""

ADMIT_TIMEOUT = 3.0
TRIES = 5
"""How often a proxy is woken for a test: it may go to sleep in the same moment."""
REPORT_TIMEOUT = 2.0
_WEB_URL = re.compile(json_patterns.WEB_URL)
_TUNNEL_REFUSED = re.compile(r"Tunnel connection failed: (\d{3})(?: ([^'\")]*))?", re.ASCII)
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # these are compared, not bound


def test_target(url: str) -> str:
    """`url`, if a test can ask for it; else `ValueError`."""
    if not _WEB_URL.fullmatch(url):
        raise ValueError("must be an absolute http or https URL in ASCII, without user information")
    return url


@dataclass(slots=True)
class _Outcome:
    """The result of a test so far."""

    status: str = "failed"
    status_code: int | None = None
    external_ip: str | None = None
    error: str | None = None
    parent: str | None = None
    refused: bool = False
    """Whether the proxy refused to connect, for a reason that only its process knows."""


class ProxyTester:
    """Runs tests. Thread-safe."""

    def __init__(self, bridge: Bridge, default_url: str = ProxyGroup().test_url) -> None:
        self._bridge = bridge
        self.default_url = default_url
        self._places = threading.BoundedSemaphore(AT_ONCE)

    def run(self, proxy: StoredProxy, url: str | None, timeout: float, request_id: str) -> dict[str, Any]:
        """A `test_result`. Raises `TooBusy` when too many tests are under way, `NotReady` while the proxy starts.

        The access record that the test leaves has this request id.

        The thread that reads a response keeps its place until it has ended, at the deadline at the latest.
        """
        if not self._places.acquire(blocking=False):
            raise TooBusy(1, f"{AT_ONCE} tests are under way")
        began, moment = time.monotonic(), time.time()
        outcome: Future[_Outcome] = Future()

        def attempt() -> None:
            try:
                outcome.set_result(self._attempt(proxy, url or self.default_url, timeout, request_id))
            except BaseException as error:  # noqa: BLE001  # the thread that waits raises it
                outcome.set_exception(error)
            finally:
                self._places.release()

        threading.Thread(target=attempt, name="proxy-test", daemon=True).start()
        try:
            return _result(outcome.result(timeout + ADMIT_TIMEOUT), began, moment)
        except FutureTimeout:
            return _result(_late(timeout), began, moment)

    def _attempt(self, proxy: StoredProxy, url: str, timeout: float, request_id: str) -> _Outcome:
        if proxy.record.status != "active":
            return _Outcome(error="the proxy is inactive")
        user, token = _one_use_credentials(proxy.record.usual_protocol)
        admitted = AllowTestClient(user, token, timeout + ADMIT_TIMEOUT, request_id)
        replies = self._admit(proxy.record, admitted)
        if any(isinstance(reply, Unreachable) and reply.reason == STARTING for reply in replies):
            raise NotReady("The proxy's process is starting; try again in a moment")
        if not all(isinstance(reply, Done) for reply in replies):
            return _Outcome(error="the proxy's process does not reply")
        result = _get(url, proxy.record, user, token, timeout)
        reports = ask_workers(self._bridge, proxy.record, QueryTester(user), REPORT_TIMEOUT)
        _add_report(result, next((each for each in reports if _says_something(each)), ReportOfTest()))
        return result

    def _admit(self, proxy: ProxyRecord, message: AllowTestClient) -> list[Any]:
        """The replies of the proxy's processes; a proxy that sleeps is woken. It may have been about to sleep."""
        replies: list[Any] = []
        for _ in range(TRIES):
            replies = ask_workers(self._bridge, proxy, message, ADMIT_TIMEOUT)
            if replies and not any(map(is_asleep, replies)):
                break
            self._bridge.ask(SUPERVISOR, AwaitProxy(proxy.id, ADMIT_TIMEOUT, wake=True), ADMIT_TIMEOUT)
        return replies


def _says_something(report: Any) -> bool:
    """Whether it is of the worker that the test has met, as far as that has something to report."""
    return isinstance(report, ReportOfTest) and report != ReportOfTest()


def _one_use_credentials(protocol: str) -> tuple[str, str]:
    """A random user name and token; socks4 has a user name alone."""
    if protocol == "socks4":
        return "test-" + secrets.token_hex(24), ""
    return "test-" + secrets.token_hex(8), secrets.token_hex(16)


def _proxy_url(protocol: str, host: str, port: int, user: str, token: str) -> str:
    authority = f"[{host}]" if ":" in host else host
    return f"{protocol}://{quote(user)}:{quote(token)}@{authority}:{port}"


class _OwnProxies(HTTPAdapter):
    """Accepts any certificate of the proxy: it is our own listener, reached at its address and not by its name."""

    def __init__(self, link: Breakable, proxy_header: bool) -> None:
        """`link` has the connection; `proxy_header`: the proxy expects a header of the PROXY protocol first."""
        self._link = link
        self._proxy_header = proxy_header
        super().__init__()

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        manager = super().proxy_manager_for(proxy, **options, proxy_ssl_context=context, proxy_assert_hostname=False)
        manager.pool_classes_by_scheme = pools_by(self._open_socket)
        return manager

    def _open_socket(self, connection: HTTPConnection) -> socket.socket:
        """The header says that the client is the sender itself (LOCAL), as a balancer's check does."""
        sock = self._link.adopt(HTTPConnection._new_conn(connection))
        if self._proxy_header:
            sock.sendall(LOCAL_V2)
        return sock


def _send_through(
    session: requests.Session, link: Breakable, record: ProxyRecord, user: str, token: str, timeout: float
) -> Route:
    """Have the session send everything through the proxy; with SOCKS, the route has the proxy's refusal."""
    host = _WILDCARDS.get(record.host, record.host)
    proxy_header = record.accept_proxy_protocol
    route = Route(record.usual_protocol, (host, record.port), user, token, timeout, proxy_header, link)
    socks = record.usual_protocol in ("socks4", "socks5")
    for scheme in ("http://", "https://"):
        session.mount(scheme, SocksAdapter(route) if socks else _OwnProxies(link, proxy_header))
    if not socks:
        url = _proxy_url(record.usual_protocol, host, record.port, user, token)
        session.proxies = {"http": url, "https": url}
    return route


def _get(url: str, record: ProxyRecord, user: str, token: str, timeout: float) -> _Outcome:
    outcome = _Outcome()

    def source() -> str | None:
        if record.upstreams or record.pool:
            return None  # the connection leaves from the upstream, wherever that is
        if entries_of(record.bind_address):
            return None  # one of several addresses, which the access record names
        return str(record.bind_address) or _source_address(url)

    with within(timeout) as link, requests.Session() as session:
        session.trust_env = False
        session.headers.update({"User-Agent": "proxyfleet-test", "Accept-Encoding": "identity"})
        route = _send_through(session, link, record, user, token, timeout)
        try:
            with session.get(url, timeout=timeout, allow_redirects=False, stream=True) as response:
                outcome.status_code = response.status_code
                _set_result(outcome, response, _read(response), source)
        except (requests.Timeout, TimeoutError):
            outcome = _late(timeout)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            _set_error(outcome, route.refusal or error)
        return _late(timeout) if link.broken else outcome


def _late(timeout: float) -> _Outcome:
    return _Outcome("timeout", error=f"no complete answer within {timeout:g} s")


def _read(response: requests.Response) -> bytes:
    """The beginning of the body as it came: decoding a coding that was not requested could yield any size."""
    content = b""
    for chunk in response.raw.stream(4096, decode_content=False):
        content += chunk
        if len(content) >= BODY_READ:
            break
    return content


def _set_result(
    outcome: _Outcome, response: requests.Response, content: bytes, source: Callable[[], str | None]
) -> None:
    by_proxy = response.headers.get("Proxy-Status")
    if response.status_code == 504 and by_proxy:
        outcome.status, outcome.error = "timeout", f"the proxy answered 504: {by_proxy}"
    elif by_proxy:
        outcome.error = f"the proxy answered {response.status_code}: {by_proxy}"
    elif response.status_code >= 400:
        outcome.error = f"the target answered {response.status_code}"
    else:
        outcome.status = "success"
        outcome.external_ip = address_in(content) or source()


def _set_error(outcome: _Outcome, error: Exception) -> None:
    if isinstance(error, SocksRefused):
        outcome.status_code, outcome.error, outcome.refused = error.status, error.text, True
        outcome.status = "timeout" if error.status == 504 else "failed"
        return
    refused = _TUNNEL_REFUSED.search(str(error))
    if refused is None:
        outcome.error = f"{type(error).__name__}: {str(error)[:300]}"
        return
    outcome.status_code = int(refused[1])
    outcome.status = "timeout" if refused[1] == "504" else "failed"
    outcome.error, outcome.refused = f"the proxy answered {refused[1]} to CONNECT", True


def _add_report(outcome: _Outcome, report: ReportOfTest) -> None:
    """Add what the process of the proxy knows of the test."""
    outcome.parent = report.parent
    if outcome.refused and report.reason:
        outcome.error = f"{outcome.error}: {report.reason}" + (f": {report.detail}" if report.detail else "")
    elif outcome.refused:
        outcome.error = f"{outcome.error}; its access record has the reason"


def address_in(content: bytes) -> str | None:
    """The address in a body that is one, or that is JSON with `ip` or `origin`; else None."""
    text = content.decode("utf-8", "replace").strip()
    try:
        value = json.loads(text) if text.startswith("{") else {"ip": text}
    except (ValueError, RecursionError):
        return None
    found = value.get("ip") or value.get("origin")
    try:
        return str(ip_address(str(found).partition(",")[0].strip()))
    except ValueError:
        return None


def _source_address(url: str) -> str | None:
    """The address of this machine from which the target is reached; None when that can't be found out."""
    parts = urlsplit(url)
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            parts.hostname, parts.port or 80, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError:
        return None


def _result(outcome: _Outcome, began: float, moment: float) -> dict[str, Any]:
    return {
        "status": outcome.status,
        "response_time": round((time.monotonic() - began) * 1000),
        "status_code": outcome.status_code,
        "external_ip": outcome.external_ip,
        "parent": outcome.parent,
        "timestamp": timestamp_text(moment),
        "error": outcome.error,
    }
