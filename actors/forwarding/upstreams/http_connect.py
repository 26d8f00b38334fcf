"""The client's side of CONNECT (RFC 9110 section 9.3.6), and what a request in absolute-form carries for the upstream.

A 2xx makes the tunnel; its Content-Length and Transfer-Encoding mean nothing, and what is behind its head is the
tunnel's. Any other final response is a refusal, and its body is not read. Responses are parsed as strictly as those of
origins.

A check asks what an HTTP upstream itself says, of our credentials first of all, by a request that goes no further.
`OPTIONS` with `Max-Forwards: 0` is for the upstream itself to respond to (RFC 9110 section 7.6.2), and its target is a
name that never resolves (RFC 6761 section 6.4), for upstreams that know nothing of this. Any response but 407 will do:
an upstream that rejects OPTIONS may serve all else. Where an origin's response suggested that the upstream refuses to
serve us, the same refusal here confirms it.
"""

from __future__ import annotations

import base64
from dataclasses import replace

from actors.forwarding.protocols.failures import Failure, Refused
from actors.forwarding.protocols.http.head_parser import ResponseHead, find_end, parse_response
from actors.forwarding.protocols.http.targets import Authority, authority_of_name
from actors.forwarding.protocols.http.upstream_exchange import proxy_status, retry_after
from actors.forwarding.upstreams.handshake import Blame, HandshakeStep, UpstreamFailed, unusable, wrong_credentials

INTERIM_MAX = 8
HEAD_MAX = 16 * 1024
"""Bytes of the head of a response to CONNECT, which needs no more."""

_TARGET_KINDS = {
    b"dns_error": 502,
    b"dns_timeout": 504,
    b"connection_refused": 502,
    b"connection_timeout": 504,
    b"connection_terminated": 502,
    b"destination_unavailable": 502,
    b"destination_ip_unroutable": 502,
    b"destination_ip_prohibited": 403,
    b"http_request_denied": 403,
    b"proxy_loop_detected": 502,
}
"""Error types of RFC 9209 that an upstream may report about the target, and the status that goes with each."""

_TARGET_STATUS = {
    403: Failure(403, "http_request_denied", "the upstream proxy refuses this target"),
    404: Failure(502, "dns_error", "the upstream proxy does not find this target"),
    502: Failure(502, "destination_unavailable", "the upstream proxy can't reach this target"),
    504: Failure(504, "connection_timeout", "the target did not respond to the upstream proxy in time"),
}
NOT_NOW = Failure(503, "destination_unavailable", "the upstream proxy can't serve this now")
_BUSY = frozenset((429, 503))
"""These may be about the upstream or about the target; another upstream may do."""


def credentials_field(username: str | None, password: str | None) -> bytes:
    """The `Proxy-Authorization` line (RFC 7617, UTF-8) with its CRLF; empty without a user."""
    if username is None:
        return b""
    pair = f"{username}:{password or ''}".encode()
    return b"Proxy-Authorization: Basic " + base64.b64encode(pair) + b"\r\n"


class ConnectHandshake:
    """Asks for a tunnel to `target`. `via` is the value of `Via` to send, or empty; `credentials` a line or nothing."""

    def __init__(self, target: Authority, credentials: bytes, via: bytes) -> None:
        self._target = target
        self._credentials = credentials
        self._via = via
        self._head = b""
        self._interim = 0
        self.target_sent = True

    def begin(self) -> bytes:
        """The request."""
        authority = self._target.text
        if not authority.endswith(b":%d" % self._target.port):
            authority += b":%d" % self._target.port
        via = b"Via: %b\r\n" % self._via if self._via else b""
        return b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b%b\r\n" % (authority, authority, via, self._credentials)

    def feed(self, data: bytes) -> HandshakeStep:
        """Take bytes of the response; what is behind its head is not used. Raises `UpstreamFailed`."""
        searched = len(self._head)
        buffered = self._head + data
        end = self._find_end(buffered, searched)
        if end < 0:
            self._head = buffered
            return HandshakeStep(len(data))
        self._head = b""
        response = self._parse(buffered[:end])
        if response.status < 200:
            self._interim += 1
            if response.status == 101 or self._interim > INTERIM_MAX:
                raise unusable("it sent an unexpected interim response to CONNECT")
        else:
            self._check(response)
        return HandshakeStep(end - searched, done=response.status >= 200)

    def _check(self, response: ResponseHead) -> None:
        """Raise `UpstreamFailed` when this final response is a refusal."""
        if response.status >= 300:
            raise refusal(response)

    def _find_end(self, buffered: bytes, searched: int) -> int:
        try:
            end = find_end(buffered, searched)
        except Refused as refused:
            raise unusable(f"its response is not HTTP: {refused.failure.detail}") from None
        if end > HEAD_MAX or (end < 0 and len(buffered) > HEAD_MAX):
            raise unusable(f"the head of its response is over {HEAD_MAX} bytes")
        return end

    def _parse(self, head: bytes) -> ResponseHead:
        try:
            return parse_response(head)
        except Refused as refused:
            raise unusable(f"its response is not HTTP: {refused.failure.detail}") from None

    def __repr__(self) -> str:
        return f"<ConnectHandshake to {self._target.text!r}, {len(self._head)} bytes of the response>"


def refusal(response: ResponseHead) -> UpstreamFailed:
    """The failure that a response to CONNECT other than 2xx stands for."""
    status, wait = response.status, retry_after(response)
    cause = f"it responds {status} to CONNECT"
    if status in (401, 407):
        return wrong_credentials(f"it responds {status}: it wants other credentials", status, wait)
    kind = _reported_kind(response)
    if kind is not None:
        detail = "the upstream proxy reports this error of the target"
        failure = Failure(_TARGET_KINDS[kind], kind.decode("ascii"), detail)
        return UpstreamFailed(Blame.TARGET, failure, cause, status, reported=True)
    if status in _TARGET_STATUS:
        return UpstreamFailed(Blame.TARGET, _TARGET_STATUS[status], cause, status, wait)
    if status in _BUSY:
        busy = replace(NOT_NOW, detail=f"the upstream proxy responds {status}: it can't serve this now")
        return UpstreamFailed(Blame.UNCLEAR, busy, cause, status, wait)
    odd = Failure(502, "destination_unavailable", f"the upstream proxy responds {status}")
    return UpstreamFailed(Blame.UNCLEAR, odd, cause, status, wait)


def _reported_kind(response: ResponseHead) -> bytes | None:
    """The last error type in its `Proxy-Status` that is one about a target."""
    found = (each.error for each in reversed(proxy_status(response)) if each.error in _TARGET_KINDS)
    return next(found, None)


WANTS_OTHERS = "it responds 407: it wants other credentials"
NOWHERE = authority_of_name(b"check.invalid", 80)


class CredentialsProbe(ConnectHandshake):
    """Reads as for CONNECT; done with the first final response that isn't 407 and doesn't confirm `suspected`, a
    status."""

    def __init__(self, username: str | None, password: str | None, suspected: int = 407) -> None:
        super().__init__(NOWHERE, credentials_field(username, password), b"")
        self.target_sent = False
        self._suspected = suspected

    def begin(self) -> bytes:
        """The request."""
        head = b"OPTIONS http://%b/ HTTP/1.1\r\nHost: %b\r\nMax-Forwards: 0\r\nConnection: close\r\n%b\r\n"
        return head % (NOWHERE.text, NOWHERE.text, self._credentials)

    def _check(self, response: ResponseHead) -> None:
        if response.status == 407:
            raise wrong_credentials(WANTS_OTHERS)
        status = response.status
        if status == self._suspected == 429 or (status >= 500 and self._suspected >= 500):
            cause = f"it responds {status}, as it seemed to before"
            raise UpstreamFailed(Blame.UPSTREAM, NOT_NOW, cause, status, retry_after(response))
