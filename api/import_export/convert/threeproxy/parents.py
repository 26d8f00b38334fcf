"""`parent` lines behind an `allow`, as upstreams."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any, NamedTuple

from api.import_export.convert.statements import Statement

WHOLE = 1000
"""The sum of the weights of a group."""
_PROTOCOLS = {"http": "http", "connect": "http", "socks4": "socks4", "socks5": "socks5"}
_LOCAL = frozenset({"http", "ftp", "pop3", "imap", "smtp", "admin"})


class Way(NamedTuple):
    """Where an `allow` leads: by `upstreams`, or directly without any; from `egress`, if that is not empty."""

    upstreams: list[dict[str, Any]]
    egress: list[str]


class Impossible(ValueError):
    """The text says why these lines can't be carried over."""


def way_of(parents: Sequence[Statement]) -> Way:
    """What the lines say together. Raises `Impossible`."""
    groups, weight, egress, header = list[list[dict[str, Any]]](), WHOLE, list[str](), False
    for statement in parents:
        share, kind, host, port, *credentials = (*statement.words, "", "", "", "")[: max(4, len(statement.words))]
        if not share.isdecimal() or not port.isdecimal():
            raise Impossible("it has no weight and no port")
        if kind == "ha":
            header = True
            continue
        if source := _source(kind, host, int(port)):
            egress.append(source)
            continue
        if _is_local(kind, host, int(port)):
            continue
        if weight >= WHOLE:
            groups.append([])
            weight = 0
        weight += int(share)
        groups[-1].append(_upstream(kind, host, int(port), credentials, int(share), header))
        header = False
    if len(groups) > 1:
        raise Impossible("it is a chain of upstreams; there is one on the way here")
    return Way(groups[0] if groups else [], egress)


def _source(kind: str, host: str, port: int) -> str:
    """The source address that a line sets, empty for none."""
    if kind == "extip" or (kind == "http" and port == 0 and not _unspecified(host)):
        try:
            return str(ip_address(host))
        except ValueError:
            raise Impossible(f"{host} is no address") from None
    return ""


def _is_local(kind: str, host: str, port: int) -> bool:
    """Whether it leads to another service of 3proxy itself, which judges what is inside."""
    if kind not in _LOCAL or port != 0 or not _unspecified(host):
        return False
    raise Impossible("SOCKS is not led to services of other protocols")


def _unspecified(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def _upstream(kind: str, host: str, port: int, credentials: Sequence[str], share: int, header: bool) -> dict[str, Any]:
    plain, tls = (
        kind.removesuffix("s") if kind not in _PROTOCOLS else kind,
        kind not in _PROTOCOLS and kind.endswith("s"),
    )
    protocol = _PROTOCOLS.get(plain.removesuffix("+").removesuffix("b"))
    if protocol is None or not 1 <= port <= 65535 or _unspecified(host):
        raise Impossible(f"{kind} {host}:{port} is no upstream that is known here")
    if tls and protocol != "http":
        raise Impossible(f"{kind}: TLS is for http upstreams only")
    upstream = {"protocol": "https" if tls else protocol, "host": host.lower(), "port": port}
    upstream["weight"] = min(max(round(share / 10), 1), 100)
    if header:
        upstream["proxy_protocol"] = "v1"
    user, password = (*(each for each in credentials if each), "", "")[:2]
    if user == "*":
        raise Impossible("credentials of clients are not passed on to upstreams")
    if user:
        known = password and protocol != "socks4"
        upstream["auth"] = {"username": user, **({"password": password} if known else {})}
    return upstream
