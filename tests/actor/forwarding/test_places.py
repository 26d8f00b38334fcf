"""Records say where an address is that a request went to, while rules use a database of places."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.bus.messages.specs import AccessSpec, ListRef
from actors.forwarding.fleet_objects import FleetObjects
from actors.lists.databases import store_database
from config.files.paths import DataDir
from tests.actor.forwarding.http_client import connect, get, read_response, tunnel
from tests.kit.forwarding_rig import Rig
from tests.kit.place_databases import country, database, system
from tests.kit.scripted_origins import Origin, counted, echoes, responds

ELSEWHERE = AccessSpec(deny_destinations=("geo:world:country=FR", "geo:systems:asn=1"))


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig() as rig:
        yield rig


@pytest.fixture
def refs(rig: Rig) -> tuple[ListRef, ...]:
    """Two databases: one of countries, the other of autonomous systems."""
    folder = DataDir(Path(rig.folder)).lists
    made = {"world": {"127.0.0.0/8": country("DE")}, "systems": {"127.0.0.0/16": system(64500)}}
    found = []
    for number, (name, records) in enumerate(made.items()):
        identifier = f"list_{number}"
        file, _entries = store_database(iter([database(records)]), folder, identifier, 0)
        found.append(ListRef(identifier, name, 1, "geo", file))
    return tuple(found)


def test_records_have_country_and_autonomous_system_of_the_target(rig: Rig, refs: tuple[ListRef, ...]) -> None:
    rig.configure(FleetObjects(lists=refs), access=ELSEWHERE)
    with Origin(responds(counted(b"yes"))) as origin, connect(rig) as client:
        client.sendall(get(origin))
        assert read_response(client)[1] == b"yes"
        record = rig.record(target_url=f"http://{origin.authority}/")
        assert (record["country"], record["asn"]) == ("DE", "64500")
    with Origin(echoes) as origin:
        tunnel(rig, origin).close()
        record = rig.record(method="CONNECT")
        assert (record["country"], record["asn"]) == ("DE", "64500")


def test_without_a_database_in_use_they_are_empty(rig: Rig) -> None:
    with Origin(responds(counted(b"yes"))) as origin:
        rig.configure(FleetObjects(), access=AccessSpec())
        with connect(rig) as client:
            client.sendall(get(origin, "/none"))
            assert read_response(client)[1] == b"yes"
        record = rig.record(target_url=f"http://{origin.authority}/none")
        assert (record["country"], record["asn"]) == ("", "")
