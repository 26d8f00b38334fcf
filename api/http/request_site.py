"""The client's address of a request, its security, its id, and the site that the client sees.

The client's address is the peer's. `X-Forwarded-For` counts only when the peer is a trusted proxy, and then from the
right: the first address that isn't a trusted proxy is the client; entries left of it may be forged. The other
`X-Forwarded-…` count only from trusted proxies, too, by their last word.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from config.net.addresses import unmapped

SAFE = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing (RFC 9110, section 9.2.1)."""
_DEFAULT_PORTS = {"http": 80, "https": 443}
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._~+/=:-]{1,128}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Site:
    """This API as a client sees it: whether it speaks TLS, its host in lower case, empty if unknown, and its port."""

    secure: bool
    host: str
    port: int

    @classmethod
    def of(cls, scheme: str, peer: str, headers: Mapping[str, str], trusted: Sequence[str]) -> Site:
        """The site of a request that came by `scheme` from `peer`; `headers` by their names in lower case."""
        secure = is_secure(scheme, peer, headers.get("x-forwarded-proto"), trusted)
        forwarded = headers if is_within(peer, trusted) else {}
        host, port = _authority(_last_word(forwarded.get("x-forwarded-host")) or headers.get("host", ""))
        if port is None and _PORT.fullmatch(given := _last_word(forwarded.get("x-forwarded-port"))):
            port = int(given)
        return cls(secure, host, port or _DEFAULT_PORTS["https" if secure else "http"])

    def is_cross_origin(self, fetch_site: str | None, origin: str | None) -> bool:
        """Whether a request may come from a page of another origin; also of one that has neither header."""
        if fetch_site is not None:
            return fetch_site.strip().lower() not in ("same-origin", "none")
        scheme, _, authority = (origin or "").lower().partition("://")
        host, port = _authority(authority)
        theirs = scheme, host, port or _DEFAULT_PORTS.get(scheme)
        return not host or theirs != ("https" if self.secure else "http", self.host, self.port)


NO_SITE = Site(False, "", 0)
"""Of requests whose site does not matter."""


def client_address(peer: str, forwarded_for: str | None, trusted: Sequence[str]) -> str:
    """The client's address as text."""
    current = _address(peer)
    if forwarded_for is None:
        return peer if current is None else str(current)
    hops = [hop.strip(" \t") for hop in forwarded_for.split(",")] if forwarded_for else []
    while current is not None and hops and _trusted(current, trusted):
        following = _address(hops.pop())
        if following is None:
            break
        current = following
    return peer if current is None else str(current)


def is_secure(scheme: str, peer: str, forwarded_proto: str | None, trusted: Sequence[str]) -> bool:
    """Whether the request came by TLS, to the API or to a trusted proxy (the last word of `X-Forwarded-Proto`)."""
    address = _address(peer)
    if forwarded_proto is not None and address is not None and _trusted(address, trusted):
        return _last_word(forwarded_proto).lower() == "https"
    return scheme == "https"


def is_within(address: str, networks: Sequence[str]) -> bool:
    """Whether the client's address is in one of `networks`."""
    found = _address(address)
    return found is not None and _trusted(found, networks)


def is_cross_site(fetch_site: str | None, origin: str | None, host: str | None) -> bool:
    """Whether a page of another site made a browser send this. No page can suppress the headers that show it.

    `Sec-Fetch-Site` is the most exact; browsers send it only to https and to this machine. `Origin` comes with every
    request that may change something.
    """
    if fetch_site is not None:
        return fetch_site.strip().lower() not in ("same-origin", "none")
    if origin is None:
        return False  # no browser, or one that asks for a page
    return origin.partition("://")[2].lower() != (host or "").strip().lower()


def is_by_script(fetch_mode: str | None, origin: str | None) -> bool:
    """Whether a script of a page sent this. A browser that is offered HTTP Basic then would ask for a password of its
    own accord, and remember it beyond the sign-out of the page."""
    return origin is not None if fetch_mode is None else fetch_mode.strip().lower() != "navigate"


def request_id(given: str | None) -> str:
    """The client's own id of its request, if it is well formed, else a new one."""
    return given if given and _REQUEST_ID.fullmatch(given) else "req_" + secrets.token_hex(12)


def _authority(text: str) -> tuple[str, int | None]:
    """Host, in lower case, and port, if there is one; an empty host for anything else."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return "", None
    return (host, port) if host and parts.netloc == text and "@" not in text else ("", None)


def _last_word(header: str | None) -> str:
    return (header or "").rpartition(",")[2].strip(" \t")


def _trusted(address: IPv4Address | IPv6Address, networks: Sequence[str]) -> bool:
    return any(address in _network(network) for network in networks)


@lru_cache(maxsize=1024)
def _network(text: str) -> IPv4Network | IPv6Network:
    return ip_network(text, strict=False)


@lru_cache(maxsize=4096)
def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return unmapped(ip_address(text))  # the zone of a link-local client stays in the log
    except ValueError:
        return None
