"""A check that requests a URL through an upstream, as a client would: what that takes is what clients wait for.

An `http` URL goes to an HTTP upstream in absolute-form; anything else through a tunnel, with TLS for an `https` one,
whose certificate is verified against the system's authorities.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import cache
from urllib.parse import urlsplit

from actors.bus.messages.specs import UpstreamSpec
from actors.forwarding.protocols.failures import Refused
from actors.forwarding.protocols.http.head_parser import ResponseHead
from actors.forwarding.protocols.http.targets import authority_of_name
from actors.forwarding.upstreams.handshake import Handshake, HandshakeStep, unusable, wrong_credentials
from actors.forwarding.upstreams.http_connect import WANTS_OTHERS, ConnectHandshake, credentials_field
from actors.forwarding.upstreams.socks_connect import Socks4Handshake, Socks5Handshake

PORTS = {"http": 80, "https": 443}
READ_SIZE = 16 * 1024


class CheckUrl:
    """A URL, and the status that its response has to have. Raises `UpstreamFailed` for one that can't be used."""

    def __init__(self, url: str, expect: int) -> None:
        parts = urlsplit(url)
        self.url = url
        self.expect = expect
        self.secure = parts.scheme == "https"
        try:
            self.target = authority_of_name((parts.hostname or "").encode(), parts.port or PORTS[parts.scheme])
        except Refused as refused:
            raise unusable(f"the URL of the check can't be used: {refused.failure.detail}") from None
        self.path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.host = parts.netloc

    def handshake(self, spec: UpstreamSpec) -> Handshake:
        """The check of an upstream. Raises `UpstreamFailed` when it can't reach such a target."""
        credentials = credentials_field(spec.username, spec.password)
        if spec.protocol == "socks4":
            tunnel: Handshake = Socks4Handshake(self.target, spec.username)
        elif spec.protocol == "socks5":
            tunnel = Socks5Handshake(self.target, spec.username, spec.password)
        elif self.secure:
            tunnel = ConnectHandshake(self.target, credentials, b"")
        else:
            return _UrlRequest(self, f"http://{self.host}{self.path}", credentials)
        request = _UrlRequest(self, self.path, b"")
        return _Through(tunnel, _Secured(self.target.host, request) if self.secure else request)

    def __repr__(self) -> str:
        return f"<CheckUrl {self.url} {self.expect}>"


class _UrlRequest(ConnectHandshake):
    """Reads as for CONNECT. The target counts as the upstream's own part: the time of the check is for all of it."""

    def __init__(self, check: CheckUrl, written: str, credentials: bytes) -> None:
        super().__init__(check.target, credentials, b"")
        self.target_sent = False
        self._expect = check.expect
        self._lines = f"GET {written} HTTP/1.1\r\nHost: {check.host}\r\nConnection: close\r\n".encode()

    def begin(self) -> bytes:
        """The request."""
        return b"%b%b\r\n" % (self._lines, self._credentials)

    def _check(self, response: ResponseHead) -> None:
        if self._credentials and response.status == 407:
            raise wrong_credentials(WANTS_OTHERS)
        if response.status != self._expect:
            raise unusable(f"the URL of the check responds {response.status} through it, not {self._expect}")


class _Through:
    """One handshake behind another."""

    target_sent = False

    def __init__(self, tunnel: Handshake, inner: Handshake) -> None:
        self._tunnel = tunnel
        self._inner = inner
        self._feed: Callable[[bytes], HandshakeStep] = self._feed_tunnel

    def begin(self) -> bytes:
        """See `Handshake`."""
        return self._tunnel.begin()

    def feed(self, data: bytes) -> HandshakeStep:
        """See `Handshake`."""
        return self._feed(data)

    def _feed_tunnel(self, data: bytes) -> HandshakeStep:
        step = self._tunnel.feed(data)
        if not step.done:
            return step
        self._feed = self._inner.feed
        return HandshakeStep(step.used, step.send + self._inner.begin())


class _Secured:
    """A handshake within TLS, made in memory: the connection may have TLS of the upstream around it."""

    target_sent = False

    def __init__(self, name: str, inner: Handshake) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _context().wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        self._inner = inner
        self._secured = False

    def begin(self) -> bytes:
        """See `Handshake`."""
        return self.feed(b"").send

    def feed(self, data: bytes) -> HandshakeStep:
        """See `Handshake`."""
        self._incoming.write(data)
        try:
            done = self._advance()
        except ssl.SSLWantReadError:
            done = False
        except ssl.SSLError as error:
            raise unusable(f"TLS with the URL of the check fails: {error.reason or error}") from None
        return HandshakeStep(len(data), self._outgoing.read(), done)

    def _advance(self) -> bool:
        if not self._secured:
            self._tls.do_handshake()
            self._secured = True
            self._tls.write(self._inner.begin())
        while data := self._tls.read(READ_SIZE):
            while data:  # an interim response may come with the final one
                step = self._inner.feed(data)
                if step.done:
                    return True
                data = data[step.used :]
        raise unusable("TLS with the URL of the check ends without a response", "connection_terminated")


@cache
def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
