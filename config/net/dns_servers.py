"""Name servers and addresses of names as text, in the settings and in the configuration of proxies."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import NamedTuple

from config.net.addresses import is_plain_address
from config.net.names import is_host_name

FORMS = (
    "must be an address (192.0.2.53, [2001:db8::53]:5353), tls://HOST[:PORT][#NAME] or https://HOST[:PORT][/PATH]"
    "[#NAME]; HOST is an address or a name, NAME that of the certificate"
)
TTL_MAX = 7 * 86_400
_PORTS = {"udp": 53, "tls": 853, "https": 443}
_SERVER = re.compile(
    r"(?:(tls|https)://)?(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:/#]+))(?::([1-9][0-9]{0,4}))?(/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?"
    r"(?:#([^#/]+))?",
    re.ASCII,
)


class DnsServer(NamedTuple):
    """One name server. `transport` is `udp` (with TCP), `tls` (RFC 7858) or `https` (RFC 8484).

    `name` is that of its certificate.
    """

    transport: str
    host: str
    port: int
    name: str = ""
    path: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.transport == "udp":
            return self.host if self.port == _PORTS["udp"] else f"{host}:{self.port}"
        port = "" if self.port == _PORTS[self.transport] else f":{self.port}"
        name = "" if self.name == self.host else f"#{self.name}"
        return f"{self.transport}://{host}{port}{self.path}{name}"


def read_server(text: str) -> DnsServer:
    """The server that `text` names. Raises `ValueError` with what is allowed."""
    if is_plain_address(text):
        return DnsServer("udp", str(ip_address(text)), _PORTS["udp"])
    match = _SERVER.fullmatch(text)
    if match is None:
        raise ValueError(FORMS)
    transport, (v6, other, number, path, name) = match[1] or "udp", match.groups()[1:]
    port = int(number or _PORTS[transport])
    good_host = ":" in v6 and is_plain_address(v6) if v6 else _is_host(other, transport)
    if not good_host or port > 65535 or (path and transport != "https") or (name and transport == "udp"):
        raise ValueError(FORMS)
    if name and not is_host_name(name):
        raise ValueError(FORMS)
    host = str(ip_address(v6)) if v6 else other.lower()
    return DnsServer(transport, host, port, *_parts(transport, host, name, path))


def _parts(transport: str, host: str, name: str | None, path: str | None) -> tuple[str, str]:
    if transport == "udp":
        return "", ""
    return (name or host).lower(), (path or "/dns-query") if transport == "https" else ""


def _is_host(text: str, transport: str) -> bool:
    return is_plain_address(text) or (transport != "udp" and is_host_name(text))


def read_address(text: str) -> str:
    """An IP address in its usual form. Raises `ValueError`."""
    if not is_plain_address(text):
        raise ValueError("must be an IPv4 or IPv6 address")
    return str(ip_address(text))


def read_hosts_name(text: str) -> str:
    """A name in lower case. Raises `ValueError`."""
    if not is_host_name(text):
        raise ValueError("must be a host name in ASCII, without a dot at its end")
    return text.lower()
