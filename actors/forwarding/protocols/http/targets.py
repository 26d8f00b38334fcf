"""The target of a request: absolute-form and authority-form targets (RFC 9112 section 3.2), read in one way.

An authority is a name, a dotted quad or an IPv6 literal, and a port. What a resolver would still take for an address
though it isn't written as one (`127.1`, `2130706433`, `0x7f.1`, `0177.0.0.1`) is refused here: no name's last label
is a number (RFC 1123 2.1, WHATWG URL "ends in a number").
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from actors.forwarding.protocols.failures import malformed
from config.net.names import NUMERIC_END

_ABSOLUTE: Final = re.compile(rb"([A-Za-z][A-Za-z0-9+.\-]*+)://([^/?#]*+)([^#]*+)(#)?")
_AUTHORITY: Final = re.compile(rb"(?:([A-Za-z0-9._\-]{1,255})|\[([0-9A-Fa-f:.]{2,45})\])(?::([0-9]{1,5}))?")
_NAME: Final = re.compile(rb"[A-Za-z0-9._\-]{1,255}")
_V6_TEXT: Final = re.compile(rb"[0-9A-Fa-f:.]{2,45}")


@dataclass(frozen=True, slots=True)
class Authority:
    """A host and a port. `text` is how it is written in `Host`, without a default port. `literal`: an IP address.

    The last ones are kept: clients come back to the same targets, and every tunnel holds its own as long as it lives.
    """

    host: str
    port: int
    text: bytes
    literal: bool


@lru_cache(maxsize=1024)
def parse_authority(written: bytes, default_port: int | None) -> Authority:
    """The authority that `written` names; `default_port` None means that a port must be given.

    Raises `Refused` (400).
    """
    match = _AUTHORITY.fullmatch(written)
    if match is None:
        raise malformed("the target's host or port is not well-formed")
    name, literal, digits = match.groups()
    port = int(digits) if digits else default_port
    if port is None or not 1 <= port <= 65535:
        raise malformed("the target's port is missing or not in 1 to 65535")
    host, is_literal = _read_v6(literal) if literal else _read_name(name)
    written_host = f"[{host}]" if literal else host
    text = written_host if port == default_port else f"{written_host}:{port}"
    return Authority(host, port, text.encode("ascii"), is_literal)


def parse_absolute(target: bytes) -> tuple[Authority, bytes]:
    """Authority and origin-form path (`b""` when the target has none) of an absolute-form target.

    Raises `Refused` (400): no scheme, another scheme than http, userinfo, a fragment, a bad host or port.
    """
    match = _ABSOLUTE.fullmatch(target)
    if match is None:
        raise malformed("absolute-form request target required (RFC 9112 3.2.2)")
    scheme, authority, path, fragment = match.groups()
    if scheme.lower() != b"http":
        raise malformed("only http:// targets are forwarded; use CONNECT for others")
    if fragment:
        raise malformed("a request target has no fragment")
    if path and path[:1] == b"?":
        path = b"/" + path
    return parse_authority(authority, 80), path


_URL: Final = re.compile(r"(https?)://([^/?#]*)([/?][^#]*)?(?:#.*)?", re.IGNORECASE | re.DOTALL | re.ASCII)
_V6_MAX: Final = 45
"""Characters of an IPv6 address."""
WRITTEN_PORT: Final = 443
"""Of a target that people write without one."""


def read_target(text: str) -> Authority:
    """The authority in an http or https URL, in `host:port`, or in a host alone, whose port is 443 then.

    Raises `Refused` for what a proxy would not take as a target either.
    """
    port = WRITTEN_PORT
    if match := _URL.fullmatch(text):
        port, text = (80 if match[1].lower() == "http" else 443), match[2]
    elif _is_bare_v6(text):
        text = f"[{text}]"
    try:
        return parse_authority(text.encode("ascii"), port)
    except UnicodeEncodeError:
        raise malformed("the target is not ASCII; write the name as it is in the DNS (xn--…)") from None


def _is_bare_v6(text: str) -> bool:
    try:
        return ":" in text and len(text) <= _V6_MAX and IPv6Address(text).version == 6
    except ValueError:
        return False


def plain_path(text: str) -> str:
    """Path and query of an http URL; empty for any other target."""
    match = _URL.fullmatch(text)
    if match is None or match[1].lower() != "http":
        return ""
    path = match[3] or "/"
    return path if path.startswith("/") else "/" + path


@lru_cache(maxsize=256)
def authority_of_name(name: bytes, port: int) -> Authority:
    """The authority of a host and a port that stand apart (SOCKS); an address may be written as a name, unbracketed.

    Raises `Refused` (400) for what `parse_authority` would refuse too; the port is the caller's to check.
    """
    if b":" in name:
        host, literal = _read_v6(name) if _V6_TEXT.fullmatch(name) else _no_name()
    else:
        host, literal = _read_name(name) if _NAME.fullmatch(name) else _no_name()
    return _of_parts(host, port, literal)


@lru_cache(maxsize=256)
def authority_of_literal(packed: bytes, port: int) -> Authority:
    """The authority of an address in network order, 4 or 16 octets, and a port."""
    address = IPv4Address(packed) if len(packed) == 4 else IPv6Address(packed)
    mapped = None if isinstance(address, IPv4Address) else address.ipv4_mapped
    return _of_parts(str(address) if mapped is None else f"::ffff:{mapped}", port, literal=True)


def _of_parts(host: str, port: int, literal: bool) -> Authority:
    text = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Authority(host, port, text.encode("ascii"), literal)


def _no_name() -> tuple[str, bool]:
    raise malformed("the target's host is not a well-formed name")


def _read_v6(literal: bytes) -> tuple[str, bool]:
    try:
        return str(IPv6Address(literal.decode("ascii"))), True
    except ValueError:
        raise malformed("the target's IPv6 address is not well-formed") from None


def _read_name(name: bytes) -> tuple[str, bool]:
    host = name.decode("ascii").lower()
    try:
        return str(IPv4Address(host)), True
    except ValueError:
        pass  # not a dotted quad: a name, or an odd spelling of an address
    if NUMERIC_END.search(host.rstrip(".")):
        raise malformed("the target's host is an odd spelling of an address")
    if ".." in host or host.startswith(".") or any(len(label) > 63 for label in host.split(".")):
        raise malformed("the target's host is not a well-formed name")
    return host, False
