"""Entries of access rules, read from text: clients and destinations. Light to import: forwarding actors need no models.

A **client** entry is an address or a network: `192.0.2.7`, `192.0.2.0/24`, `2001:db8::/32`.

A **destination** entry is a host, a host with ports, or ports alone:

    entry   = host / host ":" ports / ":" ports
    host    = "*" / name / "*." name / network / "[" IPv6 network "]" / "list:" list / geo
    geo     = "geo:" list ":" ("country=" country / "asn=" number)
    network = address / address "/" length
    ports   = port / port "-" port                          ; 1 to 65535, both ends included

`example.com` is that name alone, `*.example.com` every name below it and not itself, `*` every host. Names are compared
without regard to case and to a dot at the end, as they were asked for; networks are compared with the address that is
connected to. Without ports an entry holds for all of them. An IPv6 network with ports stands in brackets. A `*` in
any other place, an address in an odd spelling (`127.1`) and a name that isn't ASCII are refused.

`list:mirrors` is whatever the list of that name has, `geo:world:country=DE` every address that the database of the list
`world` has in that country (ISO 3166-1), `geo:world:asn=64500` those of an autonomous system. `list:443` is the port of
a host called `list`.

An IPv4 network written as IPv6 (`::ffff:10.0.0.0/104`) is that IPv4 network.

What connections leave from are addresses and networks, too. An address is one of this machine. A network is one that is
routed to it: none of its addresses has to be configured. `192.0.2.4/32` is a network, so an address that is only routed
here is written like that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from config.net.names import is_host_name

Network = IPv4Network | IPv6Network
Ports = tuple[int, int]

ALL_PORTS: Ports = (1, 65535)

_LENGTH = re.compile(r"[^/]*(?:/(?:0|[1-9][0-9]{0,2}))?")
_PORTS = re.compile(r":([1-9][0-9]{0,4})(?:-([1-9][0-9]{0,4}))?", re.ASCII)
_BRACKETS = re.compile(r"\[([^\[\]]*)\](.*)", re.DOTALL)
_MAPPED = IPv6Network("::ffff:0:0/96")

GEO: Final = "geo"
"""The kind of a list that is a database of places."""
COUNTRY: Final = "country"
ASN: Final = "asn"

_LIST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_COUNTRY = re.compile(r"[A-Z]{2}", re.ASCII)
_ASN = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)
_ASN_MAX = 2**32 - 1

_FORMS = "a name, *.name, *, an address or a network, each with :port or :port-port behind it, or ports alone"


@dataclass(frozen=True, slots=True)
class ListHost:
    """The hosts that a list has: all, or those whose `attribute` (`country`, `asn`) has this value in a database."""

    name: str
    attribute: str = ""
    value: str = ""

    def __str__(self) -> str:
        return f"geo:{self.name}:{self.attribute}={self.value}" if self.attribute else f"list:{self.name}"


@dataclass(frozen=True, slots=True)
class Destination:
    """One entry, read. `host` is a network, a name in lower case, `*.` and a name, or `*`."""

    host: Network | str
    ports: Ports


@dataclass(frozen=True, slots=True)
class ListDestination:
    """One entry that names a list, read."""

    host: ListHost
    ports: Ports


def read_network(text: str) -> Network:
    """An address or a network, bits behind its length left out. Raises `ValueError`."""
    if "%" in text:
        raise ValueError("must have no zone")
    try:
        if _LENGTH.fullmatch(text) is None:
            raise ValueError  # a netmask, which ip_network would take too
        network = ip_network(text, strict=False)
    except ValueError:
        raise ValueError("must be an IP address or a network like 10.0.0.0/8 or 2001:db8::/32") from None
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        return IPv4Network((int(network.network_address) & 0xFFFFFFFF, network.prefixlen - 96))
    return network


def one_address(text: str) -> str:
    """`text` in the usual form, if it is one address without a zone; else `ValueError`."""
    try:
        if "%" not in text:
            return str(ip_address(text))
    except ValueError:
        raise ValueError("must be an IP address") from None
    raise ValueError("must have no zone")


def read_entry(text: str) -> Destination | ListDestination:
    """One destination entry; the grammar is the module's docstring. Raises `ValueError`."""
    return _of_list(text) if names_list(text) else read_destination(text)


def names_list(text: str) -> bool:
    """Whether an entry begins with what names a list; `list:443` is the port of a host."""
    return text.startswith(("list:", "geo:")) and _PORTS.fullmatch(text[text.index(":") :]) is None


def read_destination(text: str) -> Destination:
    """One destination entry that names no list. Raises `ValueError`."""
    if match := _BRACKETS.fullmatch(text):
        if ":" not in match[1]:
            raise ValueError("only IPv6 stands in brackets")
        return Destination(read_network(match[1]), _ports(match[2]))
    if text.count(":") > 1:
        return Destination(read_network(text), ALL_PORTS)
    host, colon, ports = text.partition(":")
    return Destination(_host(host) if host or not colon else "*", _ports(colon + ports))


def _ports(text: str) -> Ports:
    if not text:
        return ALL_PORTS
    match = _PORTS.fullmatch(text)
    if match is None:
        raise ValueError("ports are written :25 or :8000-8999, and entries have neither scheme nor path")
    low, high = int(match[1]), int(match[2] or match[1])
    if not 1 <= low <= high <= 65535:
        raise ValueError("ports are 1 to 65535, the lower one first")
    return low, high


def _of_list(text: str) -> ListDestination:
    kind, name, *rest = text.split(":", 3)
    if _LIST_NAME.fullmatch(name) is None:
        raise ValueError("the name of a list is 1 to 64 letters, digits, '.', '_' and '-'")
    if kind == "list":
        return ListDestination(ListHost(name), _ports("".join(f":{each}" for each in rest)))
    attribute, _, value = (rest[0] if rest else "").partition("=")
    if not _is_place(attribute, value):
        raise ValueError("must be geo:NAME:country=DE or geo:NAME:asn=64500")
    return ListDestination(ListHost(name, attribute, value), _ports("".join(f":{each}" for each in rest[1:])))


def _is_place(attribute: str, value: str) -> bool:
    if attribute == COUNTRY:
        return _COUNTRY.fullmatch(value) is not None
    return attribute == ASN and _ASN.fullmatch(value) is not None and int(value) <= _ASN_MAX


def _host(text: str) -> Network | str:
    if text == "*":
        return text
    try:
        return read_network(text)
    except ValueError:
        name = text.lower().removesuffix(".")
    if not text.isascii() or not is_host_name(name.removeprefix("*.")):
        raise ValueError(f"must be {_FORMS}")
    return name


_FORM = "must be an address of this machine or a network like 192.0.2.0/24 or 2001:db8:7::/48"
_NO_SOURCES = (
    IPv4Network("0.0.0.0/8"),
    IPv4Network("224.0.0.0/4"),
    IPv4Network("255.255.255.255/32"),
    IPv6Network("::/128"),
    IPv6Network("ff00::/8"),
    IPv6Network("fe80::/10"),
)
"""Unspecified, multicast, broadcast, and link-local addresses of IPv6, which are nothing without an interface."""


def read_egress(text: str) -> Network:
    """One entry. Raises `ValueError`."""
    try:
        network = read_network(text)
    except ValueError:
        raise ValueError(_FORM) from None
    if any(network.version == each.version and network.overlaps(each) for each in _NO_SOURCES):
        raise ValueError(f"{_FORM}: nothing leaves from addresses that are unspecified, multicast or link-local")
    return network


def usual_form(text: str) -> str:
    """An entry as it is stored: bits behind the length are left out, and IPv4 written as IPv6 is IPv4."""
    network = read_egress(text)
    return str(network) if "/" in text else str(network.network_address)


def is_network(entry: str) -> bool:
    """Whether an entry is a network, rather than one address."""
    return "/" in entry


def usable(entry: str) -> tuple[int, int]:
    """The first and the last address of an entry that connections may leave from, as numbers.

    Of a network these are not its own address and its broadcast address (IPv4, RFC 922; not of a /31, RFC 3021), and
    not the anycast address of its routers (IPv6, RFC 4291 section 2.6.1; not of a /127, RFC 6164). Raises `ValueError`.
    """
    network = read_egress(entry)
    first, last = int(network.network_address), int(network.broadcast_address)
    if network.prefixlen >= network.max_prefixlen - 1:
        return first, last
    return first + 1, last - (1 if network.version == 4 else 0)


def is_ipv6(entry: str) -> bool:
    """Whether an entry is of IPv6."""
    return isinstance(read_egress(entry).network_address, IPv6Address)
