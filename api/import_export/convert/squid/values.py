"""Values of access lists: addresses, ports, times, domains. Each function raises `ValueError` with what is wrong."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from api.import_export.convert.host_sets import ALL_ADDRESSES, V4_LAST, V6_LAST, Addresses, Names
from api.import_export.convert.intervals import Intervals
from api.import_export.convert.regions import MINUTES, PORTS
from config.net.host_names import is_host_name

_NONE = Intervals(())
WORDS = {
    "all": ALL_ADDRESSES,
    "ipv4": Addresses(Intervals(((0, V4_LAST),)), _NONE),
    "ipv6": Addresses(_NONE, Intervals(((0, V6_LAST),))),
    "none": Addresses(_NONE, _NONE),
}
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")
_DAYS = {"M": (0,), "T": (1,), "W": (2,), "H": (3,), "F": (4,), "A": (5,), "S": (6,), "D": (0, 1, 2, 3, 4)}
DAY = 24 * 60
_MAPPED = IPv6Network("::ffff:0:0/96")


def addresses(text: str) -> Addresses:
    """`192.0.2.0/24`, `192.0.2.0/255.255.255.0`, `192.0.2.1-192.0.2.9`, `all`."""
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    if "-" in text:
        return _between(*text.partition("-")[::2])
    network = _network(text)
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        network = IPv4Network((int(network.network_address) & V4_LAST, network.prefixlen - 96))
    return Addresses.of([network])


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text.strip("[]"), strict=False)
    except ValueError:
        raise ValueError(f"{text} is no address or network") from None


def _between(first: str, last: str) -> Addresses:
    last, slash, length = last.partition("/")
    try:
        low, high = ip_address(first), ip_address(last)
    except ValueError:
        raise ValueError(f"{first}-{last} is no range of addresses") from None
    if slash and length not in ("32", "255.255.255.255", "128"):
        low, high = _at_start(low, length), _network(f"{last}/{length}").broadcast_address
    if low.version != high.version or int(low) > int(high):
        raise ValueError(f"{first}-{last} is no range of addresses")
    return Addresses.between(low, high)


def _at_start(address: IPv4Address | IPv6Address, length: str) -> IPv4Address | IPv6Address:
    return _network(f"{address}/{length}").network_address


def ports(text: str) -> Intervals:
    """`443`, `1025-65535`."""
    low, dash, high = text.partition("-")
    if not (low.isdecimal() and (high.isdecimal() or not dash)):
        raise ValueError(f"{text} is no port")
    return Intervals.of([(int(low), int(high or low))]) & Intervals((PORTS,))


def names(text: str) -> Names:
    """`example.com`, `.example.com`."""
    name = text.lower().removesuffix(".")
    plain = name.removeprefix(".")
    if not plain.isascii() or not is_host_name(plain):
        raise ValueError(f"{text} is no domain in ASCII")
    alone = frozenset({plain})
    return Names(alone, alone if name.startswith(".") else frozenset())


def is_address(text: str) -> bool:
    """Whether a value of domains is an address."""
    try:
        ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True


def minutes(words: list[str]) -> Intervals:
    """`MTWHF 9:00-17:00`: days, times or both; the minute of the end is in it."""
    days: set[int] = set()
    start, end = 0, DAY - 1
    for word in words:
        clock = _CLOCK.fullmatch(word)
        if clock is not None:
            start, end = int(clock[1]) * 60 + int(clock[2]), min(int(clock[3]) * 60 + int(clock[4]), DAY - 1)
            if start > end:
                raise ValueError(f"{word} ends before it begins")
        elif set(word) <= _DAYS.keys():
            days.update(day for letter in word for day in _DAYS[letter])
        else:
            raise ValueError(f"{word} is neither days nor a time like 9:00-17:00")
    spans = [(day * DAY + start, day * DAY + end) for day in (days or range(7))]
    return Intervals.of(spans) & Intervals((MINUTES,))
