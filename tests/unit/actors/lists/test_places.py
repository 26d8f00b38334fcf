"""Databases of places: what they say about an address, and which files are taken for one."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import random
import tarfile
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from actors.lists.compiled import ListDamaged, ListError
from actors.lists.databases import check_database, store_database
from actors.lists.files import opened
from actors.lists.places import PlaceDatabase, asn_of, country_of
from actors.lists.streams import bounded, unzipped
from config.net.entries import ListHost
from tests.kit.place_databases import MARKER, country, database, system
from tests.kit.tables import table

WORLD = {
    "192.0.2.0/24": country("DE"),
    "192.0.2.128/25": country("FR"),
    "2001:db8::/32": {**country("DE"), **system(64500)},
    "198.51.100.0/24": system(4294967295),
}


def stored(content: bytes, folder: Path, before: int = 0) -> PlaceDatabase:
    name, _entries = store_database(iter([content]), folder, "list_1", before)
    found = opened(folder / name, "geo")
    assert isinstance(found, PlaceDatabase)
    return found


def pieces(content: bytes, size: int) -> Iterator[bytes]:
    return (content[start : start + size] for start in range(0, len(content), size))


@pytest.mark.parametrize("record_size", [24, 28, 32])
def test_an_address_is_where_the_most_specific_network_is(tmp_path: Path, record_size: int) -> None:
    found = stored(database(WORLD, record_size), tmp_path)
    for text, expected in (
        ("192.0.2.1", ("192.0.2.0/25", "DE", None)),
        ("192.0.2.200", ("192.0.2.128/25", "FR", None)),
        ("2001:db8::1", ("2001:db8::/32", "DE", 64500)),
        ("198.51.100.7", ("198.51.100.0/24", None, 4294967295)),
        ("203.0.113.1", None),
        ("2001:db9::1", None),
    ):
        assert found.find(ip_address(text)) == expected


def test_an_entry_matches_the_addresses_of_its_place_and_no_name(tmp_path: Path) -> None:
    found = stored(database(WORLD), tmp_path)
    germany, network = found.of(ListHost("world", "country", "DE")), found.of(ListHost("world", "asn", "64500"))
    assert germany is not None
    assert network is not None
    assert germany.by_address(ip_address("192.0.2.1")) == "192.0.2.0/25"
    assert germany.by_address(ip_address("192.0.2.200")) is None
    assert germany.by_address(ip_address("203.0.113.1")) is None
    assert network.by_address(ip_address("2001:db8::1")) == "2001:db8::/32"
    assert network.by_address(ip_address("192.0.2.1")) is None
    assert germany.by_name("germany.example") is None
    assert found.of(ListHost("world")) is None


def test_a_database_of_ipv4_knows_no_ipv6_address(tmp_path: Path) -> None:
    found = stored(database({"192.0.2.0/24": country("DE")}, ip_version=4), tmp_path)
    assert found.find(ip_address("192.0.2.9")) == ("192.0.2.0/24", "DE", None)
    assert found.find(ip_address("2001:db8::1")) is None


@table(
    ("record", "place"),
    [
        ({"country": {"iso_code": "de"}}, ("DE", None)),
        ({"country": "DE", "asn": "AS64500"}, ("DE", 64500)),
        ({"country": "Germany", "country_code": "DE", "asn": 64500}, ("DE", 64500)),
        ({"country": "Germany", "asn": "AS"}, (None, None)),
        ({"country": {}, "asn": "ASX"}, (None, None)),
        ({"registered_country": {"iso_code": "DE"}}, (None, None)),
    ],
)
def test_the_fields_of_several_publishers(record: dict[str, Any], place: tuple[str | None, int | None]) -> None:
    assert (country_of(record), asn_of(record)) == place


def archive(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        for each, data in (("GeoLite2/COPYRIGHT.txt", b"text"), (name, content)):
            about = tarfile.TarInfo(each)
            about.size = len(data)
            made.addfile(about, io.BytesIO(data))
    return file.getvalue()


@pytest.mark.parametrize("size", [1, 100, 10**6])
def test_a_database_in_an_archive(tmp_path: Path, size: int) -> None:
    content = database(WORLD)
    packed = gzip.compress(archive("GeoLite2/GeoLite2.mmdb", content))
    name, entries = store_database(unzipped(pieces(packed, size), 10**6), tmp_path, "list_1", 0)
    assert ((tmp_path / name).read_bytes(), entries) == (content, 4)


def spoiled(content: bytes) -> dict[str, bytes]:
    """Files that are no database, with the reason."""
    start = content.index(MARKER)
    return {
        "cut": content[: start + 5],
        "half of the metadata": content[: start + 30],
        "no tree": content[start:],
        "a page": b"<html>" * 1000,
        "empty": b"",
        "an archive without one": archive("a.txt", b"a"),
        "half an archive": archive("a.mmdb", content)[:1800],
        "a record beyond its end": b"\xff\xff\xff" + content[3:],
        "a record between tree and data": content[:3] + (len(content[:start]) // 6).to_bytes(3, "big") + content[6:],
        "data that are no map": database({"192.0.2.0/24": {}}).replace(b"\xe0" + MARKER, b"\x40" + MARKER),
        "other data": database({"192.0.2.0/24": {"city": "Berlin"}}),
        "text in place of a number": content.replace(b"record_size\xa1\x18", b"record_size\x41\x18"),
    }


@table("what", list(spoiled(database(WORLD))))
def test_what_is_no_database_of_places_leaves_no_file(tmp_path: Path, what: str) -> None:
    with pytest.raises(ListError):
        store_database(iter([spoiled(database(WORLD))[what]]), tmp_path, "list_1", 0)
    assert list(tmp_path.iterdir()) == []


def test_no_changed_byte_makes_a_lookup_fail_later(tmp_path: Path) -> None:
    """Whatever is accepted can be asked for any address."""
    content, numbers = database(WORLD), random.Random(7)
    accepted = 0
    for _ in range(400):
        changed = bytearray(content)
        changed[numbers.randrange(len(changed))] = numbers.randrange(256)
        try:
            found = stored(bytes(changed), tmp_path)
        except ListError:
            continue
        accepted += 1
        for text in ("192.0.2.1", "192.0.2.200", "198.51.100.7", "2001:db8::1", "::1", "203.0.113.1"):
            found.find(ip_address(text))
    assert 0 < accepted < 400


def test_half_of_the_places_are_enough(tmp_path: Path) -> None:
    assert stored(database(WORLD), tmp_path, before=8)
    with pytest.raises(ListError, match="it has 4 entries now, 9 before"):
        stored(database(WORLD), tmp_path, before=9)


def test_an_empty_database_is_one(tmp_path: Path) -> None:
    assert stored(database({}), tmp_path).find(ip_address("192.0.2.1")) is None


def test_what_a_killed_fetch_has_left_is_in_nobodys_way(tmp_path: Path) -> None:
    with pytest.raises(ListError):
        store_database(bounded(iter([b"x" * 100]), 10, "it"), tmp_path, "list_1", 0)
    (tmp_path / ".list_1-0.list").write_bytes(b"half")
    assert stored(database(WORLD), tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_damaged_file_is_not_used(tmp_path: Path) -> None:
    content = database(WORLD)
    name, _ = store_database(iter([content]), tmp_path, "list_1", 0)
    assert hashlib.sha256(content).hexdigest()[:24] in name
    path = tmp_path / name
    path.write_bytes(content.replace(b"DE", b"XX"))
    with pytest.raises(ListDamaged, match="damaged content"):
        opened(path, "geo")
    path.write_bytes(content[:50])
    with pytest.raises(ListDamaged, match="no MaxMind database"):
        opened(path, "geo")
    os.unlink(path)
    with pytest.raises(FileNotFoundError):
        opened(path, "geo")


def test_a_file_of_another_kind_is_none(tmp_path: Path) -> None:
    name, _ = store_database(iter([database(WORLD)]), tmp_path, "list_1", 0)
    with pytest.raises(ListDamaged):
        opened(tmp_path / name, "networks")
    assert check_database(tmp_path / name) == 4
