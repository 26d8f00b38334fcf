"""Proxy auto-configuration (PAC): a JavaScript function that tells a browser which proxies to try, in order.

There is no specification but Netscape's of 1996, which browsers follow: `FindProxyForURL(url, host)` returns
`PROXY host:port`, `HTTPS`, `SOCKS` (version 4) or `SOCKS5`, several with semicolons between, and `DIRECT`.
Nothing of a caller's choice is written into it but the host of the request, which must be a host.
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

# Patterns with asterisks would take 127.example.com for loopback: a page could make a browser go past the proxy.
_LOCAL = """  const local = /^(127(\\.[0-9]{1,3}){3}|\\[?::1\\]?|.+\\.localhost)$/i;
  if (isPlainHostName(host) || local.test(host)) {
    return "DIRECT";
  }
"""


def script(proxies: Iterable[ProxyRecord], own_host: str, direct: bool) -> str:
    """The function for these proxies, in their order; at last without a proxy if `direct`.

    `own_host` stands for those that listen at all addresses.
    """
    choices = [f"{_KEYWORDS[proxy.protocol]} {authority(proxy, own_host)}" for proxy in proxies]
    answer = "; ".join([*choices, "DIRECT"] if direct else choices)
    return f"function FindProxyForURL(url, host) {{\n{_LOCAL}  return {json.dumps(answer)};\n}}\n"


def authority(proxy: ProxyRecord, own_host: str) -> str:
    """Where clients find a proxy: `host:port`."""
    host = own_host if is_every_address(proxy.host) else proxy.host
    return f"[{host}]:{proxy.port}" if ":" in host else f"{host}:{proxy.port}"


def is_every_address(host: str) -> bool:
    """Does a proxy of this host listen at all addresses of the machine?"""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def host_of(authority_given: str | None) -> str | None:
    """The host of a `Host` header without its port and brackets; None when it is none that could be written down."""
    match = _AUTHORITY.fullmatch(authority_given or "")
    return match[1].strip("[]") if match else None
