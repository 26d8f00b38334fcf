"""Name servers as text: `192.0.2.53`, `192.0.2.53:5353`, `[2001:db8::53]:53`, `tls://…` (RFC 7858), `https://…` (RFC
8484)."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from config.net.host_names import is_host_name

FORMS = (
    "must be an address (192.0.2.53, [2001:db8::53]:5353), tls://HOST[:PORT][#NAME] or https://HOST[:PORT][/PATH]; "
    "HOST is an address or a name, NAME that of the certificate"
)
_PORTS = {"udp": 53, "tls": 853, "https": 443}
_WITH_PORT = re.compile(r"(?:\[([^\]]+)\]|([^:\[\]]+))(?::([0-9]{1,5}))?", re.ASCII)
_PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*", re.ASCII)


class DnsServer(NamedTuple):
    """One name server. `transport` is `udp` (with TCP), `tls` or `https`; `name` is that of its certificate."""

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
    if text.startswith("https://"):
        return _read_https(text)
    if text.startswith("tls://"):
        where, _, name = text.removeprefix("tls://").partition("#")
        host, port = _host_and_port(where, "tls")
        if not (_is_address(host) or is_host_name(host)) or (name and not is_host_name(name)):
            raise ValueError(FORMS)
        return DnsServer("tls", host, port, name or host)
    host, port = (text, _PORTS["udp"]) if _is_address(text) else _host_and_port(text, "udp")
    if not _is_address(host):
        raise ValueError(FORMS)
    return DnsServer("udp", host, port)


def _read_https(text: str) -> DnsServer:
    parts = urlsplit(text)
    host, port = _host_and_port(parts.netloc, "https")
    path = parts.path or "/dns-query"
    if not (_is_address(host) or is_host_name(host)) or parts.query or not _PATH.fullmatch(path):
        raise ValueError(FORMS)
    if parts.fragment and not is_host_name(parts.fragment):
        raise ValueError(FORMS)
    return DnsServer("https", host, port, parts.fragment or host, path)


def _host_and_port(text: str, transport: str) -> tuple[str, int]:
    match = _WITH_PORT.fullmatch(text)
    port = _PORTS[transport] if match is None or match[3] is None else int(match[3])
    if match is None or not 1 <= port <= 65535:
        raise ValueError(FORMS)
    return (match[1] or match[2]).lower(), port


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
