"""Proxy auto-configuration (PAC): a JavaScript function that returns the proxies that a browser tries, in order.

There is no specification but Netscape's of 1996, which browsers follow: `FindProxyForURL(url, host)` returns
`PROXY host:port`, `HTTPS`, `SOCKS` (version 4) or `SOCKS5`, several with semicolons between, and `DIRECT`.
Of a caller's input only the host of the request is written into it, which must be a host.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from ipaddress import ip_address

from config.model.proxies import ProxyRecord

MEDIA_TYPE = "application/x-ns-proxy-autoconfig"

_KEYWORDS = {"http": "PROXY", "https": "HTTPS", "socks4": "SOCKS", "socks5": "SOCKS5"}
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(:[0-9]{1,5})?", re.ASCII)

# Patterns with asterisks would match 127.example.com: a page could make a browser bypass the proxy.
_LOCAL = """  const local = /^(127(\\.[0-9]{1,3}){3}|\\[?::1\\]?|.+\\.localhost)$/i;
  if (isPlainHostName(host) || local.test(host)) {
    return "DIRECT";
  }
"""


def script(proxies: Iterable[ProxyRecord], own_host: str, direct: bool) -> str:
    """The function for these proxies, in their order; with `direct`, a connection without a proxy comes last.

    `own_host` is the host of those that listen at all addresses.
    """
    choices = [f"{_KEYWORDS[proxy.usual_protocol]} {authority(proxy, own_host)}" for proxy in proxies]
    result = "; ".join([*choices, "DIRECT"] if direct else choices)
    return f"function FindProxyForURL(url, host) {{\n{_LOCAL}  return {json.dumps(result)};\n}}\n"


def authority(proxy: ProxyRecord, own_host: str) -> str:
    """The address of a proxy for clients: `host:port`."""
    host = own_host if is_every_address(proxy.host) else proxy.host
    return f"[{host}]:{proxy.port}" if ":" in host else f"{host}:{proxy.port}"


def is_every_address(host: str) -> bool:
    """Whether a proxy of this host listens at all addresses of the machine."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def host_of(authority_given: str | None) -> str | None:
    """The host of a `Host` header without its port and brackets; None when it is malformed."""
    match = _AUTHORITY.fullmatch(authority_given or "")
    return match[1].strip("[]") if match else None
