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
from urllib.parse import urlsplit

from requests.utils import DEFAULT_CA_BUNDLE_PATH
from urllib3.util import make_headers

from actors.bus.mailbox import STARTING
from actors.bus.messages.common import SUPERVISOR, Done, Unreachable
from actors.bus.messages.forwarding import AllowTestClient, QueryTester, ReportOfTest
from actors.bus.messages.supervision import AwaitProxy
from actors.forwarding.protocols.failures import UPSTREAM_REFUSES_US, Refused
from actors.forwarding.protocols.http.targets import authority_of_name
from actors.forwarding.upstreams.handshake import Handshake, UpstreamFailed
from actors.forwarding.upstreams.socks_connect import Socks4Handshake, Socks5Handshake
from actors.net.guarded_client import HttpClient, HttpProxy, HttpResponse, RequestFailed, guarded
from actors.net.proxy_protocol import LOCAL_V2
from api.bus_bridge import Bridge, ask_workers, is_asleep
from api.errors import NotReady, TooBusy
from api.objects.proxies.proxy_cache import StoredProxy
from config.model.proxies import ProxyRecord
from config.model.proxy_parts import entries_of
from config.text.formatting import timestamp_text

BODY_READ = 64 * 1024
"""Bytes of the response that are read: enough for any service that returns an address."""

AT_ONCE = 3
"""Tests under way at the same time: each holds a thread of the API."""

ADMIT_TIMEOUT = 3.0
TRIES = 5
"""How often a proxy is woken for a test: it may go to sleep in the same moment."""
REPORT_TIMEOUT = 2.0
_REPLY = re.compile(r"(?:Tunnel connection failed:|it replies) (\d+)", re.ASCII)
"""How urllib3 and the handshakes of SOCKS say what the proxy has replied to CONNECT."""
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # these are compared, not bound


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

    def __init__(self, bridge: Bridge, default_url: Callable[[], str]) -> None:
        """`default_url` returns what a test without a URL asks for."""
        self._bridge = bridge
        self._default_url = default_url
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
                outcome.set_result(self._attempt(proxy, url or self._default_url(), timeout, request_id))
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


class _Refused(Exception):
    """The proxy refused the connection; `status` is the HTTP status that this means."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def _client_of(record: ProxyRecord, user: str, token: str, timeout: float) -> HttpClient:
    """Sends everything through the proxy. Requests raise `_Refused` for what a SOCKS proxy refuses."""
    own, direct, protocol = (
        (_WILDCARDS.get(record.host, record.host), record.port),
        guarded(None),
        record.usual_protocol,
    )
    is_socks = protocol in ("socks4", "socks5")

    def connect(host: str, port: int, adopt: Callable[[socket.socket], object]) -> socket.socket:
        sock = direct(*own, adopt)
        try:
            if record.accept_proxy_protocol:
                sock.sendall(LOCAL_V2)
            if is_socks:
                _pass_handshake(sock, _handshake(protocol, host, port, user, token))
        except BaseException:
            sock.close()
            raise
        return sock

    authority = f"[{own[0]}]:{own[1]}" if ":" in own[0] else f"{own[0]}:{own[1]}"
    headers = make_headers(proxy_basic_auth=f"{user}:{token}")
    proxy = None if is_socks else HttpProxy(f"{protocol}://{authority}", headers, _any_certificate())
    return HttpClient(connect, timeout, authorities=DEFAULT_CA_BUNDLE_PATH, proxy=proxy)


def _any_certificate() -> ssl.SSLContext:
    """The proxy is our own listener, reached at its address and not by its name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _handshake(protocol: str, host: str, port: int, user: str, token: str) -> Handshake:
    """Names are left to the proxy (`socks5h`, SOCKS 4a), as most clients do. Raises `_Refused`."""
    try:
        target = authority_of_name(host.encode("idna"), port)
        return Socks4Handshake(target, user) if protocol == "socks4" else Socks5Handshake(target, user, token)
    except (UpstreamFailed, Refused) as error:
        raise _Refused(error.failure.status, str(error)) from error


def _pass_handshake(sock: socket.socket, handshake: Handshake) -> None:
    """Raises `OSError` and `_Refused`."""
    sock.sendall(handshake.begin())
    done = False
    while not done:
        octet = sock.recv(1)  # what is behind the handshake stays
        if not octet:
            raise _Refused(502, "the proxy closed the connection in the handshake")
        try:
            _used, more, done = handshake.feed(octet)
        except UpstreamFailed as error:
            status = 407 if error.failure is UPSTREAM_REFUSES_US else error.failure.status
            reply = _REPLY.search(error.cause)
            text = f"the proxy refuses: {error.cause}" if reply is None else _refusal(reply)
            raise _Refused(status, text) from error
        sock.sendall(more)


def _refusal(reply: re.Match[str]) -> str:
    return f"the proxy answered {reply[1]} to CONNECT"


def _get(url: str, record: ProxyRecord, user: str, token: str, timeout: float) -> _Outcome:
    outcome = _Outcome()

    def source() -> str | None:
        if record.upstreams or record.pool:
            return None  # the connection leaves from the upstream, wherever that is
        if entries_of(record.bind_address):
            return None  # one of several addresses, which the access record names
        return str(record.bind_address) or _source_address(url)

    client = _client_of(record, user, token, timeout)
    try:
        with client.request("GET", url, {"User-Agent": "proxyfleet-test"}) as response:
            outcome.status_code = response.status
            _set_result(outcome, response, response.beginning(BODY_READ), source)
    except _Refused as refused:
        if client.aborted:  # the end of the handshake is ours
            return _late(timeout)
        _set_refused(outcome, refused.status, str(refused))
    except RequestFailed as failure:
        reply = _REPLY.search(str(failure))
        if failure.late:
            return _late(timeout)
        if reply is None:
            outcome.error = str(failure)[:300]
        else:
            _set_refused(outcome, int(reply[1]), _refusal(reply))
    return outcome


def _late(timeout: float) -> _Outcome:
    return _Outcome("timeout", error=f"no complete answer within {timeout:g} s")


def _set_result(outcome: _Outcome, response: HttpResponse, content: bytes, source: Callable[[], str | None]) -> None:
    by_proxy = response.headers.get("Proxy-Status")
    if response.status == 504 and by_proxy:
        outcome.status, outcome.error = "timeout", f"the proxy answered 504: {by_proxy}"
    elif by_proxy:
        outcome.error = f"the proxy answered {response.status}: {by_proxy}"
    elif response.status >= 400:
        outcome.error = f"the target answered {response.status}"
    else:
        outcome.status = "success"
        outcome.external_ip = address_in(content) or source()


def _set_refused(outcome: _Outcome, status: int, error: str) -> None:
    outcome.status_code, outcome.error, outcome.refused = status, error, True
    outcome.status = "timeout" if status == 504 else "failed"


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
