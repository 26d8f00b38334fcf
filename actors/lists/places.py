"""A database of places (MaxMind DB), mapped: which country and which autonomous system an address is in.

The mapping lives as long as the object, whatever becomes of the file's name meanwhile, and its pages are shared by all
processes that have it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path
from typing import Any, Final, NamedTuple

import maxminddb

from actors.lists.compiled import ListDamaged
from config.net.entries import COUNTRY, ListHost

Address = IPv4Address | IPv6Address

DIGITS: Final = 24
"""Digits of the digest of the content in the name of a file."""
_PIECE: Final = 1024 * 1024


class GeoPlace(NamedTuple):
    """What a database says about an address. `network` is the part of the Internet that it says it of."""

    network: str
    country: str | None
    asn: int | None


class PlaceDatabase:
    """One file. `of` has what entries of rules match by."""

    __slots__ = ("_hosts", "_path", "_reader")

    def __init__(self, path: Path) -> None:
        """Raises `ListDamaged` for a file that is none or was cut, and `OSError`. `verify` checks its content."""
        self._path = path
        self._hosts: dict[ListHost, AddressesOfPlace] = {}
        try:
            self._reader: Any = maxminddb.open_database(os.fspath(path))
        except (maxminddb.InvalidDatabaseError, ValueError, TypeError, KeyError) as error:
            raise ListDamaged("is no MaxMind database") from error

    def verify(self) -> None:
        """Read the whole file once. Raises `ListDamaged` when it is not as it was written. Usable in a thread."""
        digest = hashlib.sha256()
        with self._path.open("rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
        if f"-{digest.hexdigest()[:DIGITS]}" not in self._path.name:
            raise ListDamaged("has damaged content")

    def find(self, address: Address) -> GeoPlace | None:
        """What it says about an address."""
        record, length = self._record(address)
        if record is None:
            return None
        return GeoPlace(_network(address, length), country_of(record), asn_of(record))

    def of(self, host: ListHost) -> AddressesOfPlace | None:
        """What an entry matches; None for one that names no place."""
        found = self._hosts.get(host)
        if found is None and host.attribute:
            found = self._hosts[host] = AddressesOfPlace(self, host)
        return found

    def network_if(self, address: Address, attribute: str, value: str | int) -> str | None:
        """The network that has this address, if the address is in this place."""
        record, length = self._record(address)
        if record is None or (country_of if attribute == COUNTRY else asn_of)(record) != value:
            return None
        return _network(address, length)

    def _record(self, address: Address) -> tuple[Mapping[str, Any] | None, int]:
        try:
            record, length = self._reader.get_with_prefix_len(address)
        except ValueError:  # an IPv6 address, and it has IPv4 alone
            return None, 0
        return (record, length) if isinstance(record, dict) else (None, 0)

    def __repr__(self) -> str:
        return f"<PlaceDatabase {self._path.name}>"


class AddressesOfPlace:
    """The addresses of one country or autonomous system."""

    __slots__ = ("_attribute", "_database", "_value")

    def __init__(self, database: PlaceDatabase, host: ListHost) -> None:
        self._database = database
        self._attribute = host.attribute
        self._value: str | int = host.value if host.attribute == COUNTRY else int(host.value)

    def by_name(self, _name: str) -> str | None:
        """None: names are in no place."""
        return None

    def by_address(self, address: Address) -> str | None:
        """The network of the database that has this address, if it is in this place."""
        return self._database.network_if(address, self._attribute, self._value)


def country_of(record: Mapping[str, Any]) -> str | None:
    """The code of the country (ISO 3166-1), as the databases of MaxMind, DB-IP and IPinfo have it."""
    found = record.get("country")
    found = found.get("iso_code") if isinstance(found, dict) else record.get("country_code", found)
    return found.upper() if isinstance(found, str) and len(found) == 2 else None


def asn_of(record: Mapping[str, Any]) -> int | None:
    """The number of the autonomous system, as the same databases have it."""
    found = record.get("autonomous_system_number", record.get("asn"))
    if isinstance(found, str):
        digits = found.upper().removeprefix("AS")
        return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 10 else None
    return found if isinstance(found, int) else None


def _network(address: Address, length: int) -> str:
    number = int(address)
    if isinstance(address, IPv4Address):
        shift = 32 - min(max(length, 0), 32)
        return str(IPv4Network((number >> shift << shift, 32 - shift)))
    shift = 128 - length
    return str(IPv6Network((number >> shift << shift, length)))
