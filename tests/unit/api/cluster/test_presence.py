"""What a node knows of the others by their heartbeats."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from actors.cluster.database import Database
from api.cluster.heartbeat import Heartbeat
from api.cluster.presence import Presences
from config import VERSION
from tests.kit.postgresql import needs_postgresql
from tests.unit.api.cluster.nodes import fleet, proxy

pytestmark = needs_postgresql


def test_all_nodes_are_read_at_once_with_how_far_they_are_behind_and_what_they_report() -> None:
    with fleet() as ours, closing(Database(ours.dsn)) as database:
        node = ours.node("a")
        node.change(proxy())
        for name, at in (("a", node.number), ("b", node.number - 1)):
            beats = Heartbeat(ours.database, name, f"boot of {name}", lambda at=at: (at, None))  # type: ignore[misc]
            beats.reports.append(lambda: {"proxies": {"prx_1": {"state": "failed"}}})
            beats.beat_now()
        ours.execute("UPDATE proxyfleet.heartbeats SET at = at - interval '20 s' WHERE node = 'b'")
        found = Presences(database).read()
        assert {name: (each.revision, each.version) for name, each in found.items()} == {
            "a": (node.number, VERSION),
            "b": (node.number - 1, VERSION),
        }
        assert found["a"].behind == 0 < found["b"].behind < 10
        assert found["a"].silent < 10 < 20 <= found["b"].silent < 30
        assert found["a"].problems["proxies"] == {"prx_1": {"state": "failed"}}


def test_in_an_outage_what_was_known_stays_and_grows_older() -> None:
    with fleet() as ours, closing(Database(ours.dsn)) as database:
        Heartbeat(ours.database, "a", "boot", lambda: (0, None)).beat_now()
        presences = Presences(database)
        known: Any = presences.read()["a"]
        database.close()
        again = presences.read(fresh=True)["a"]
        assert (again.seen_at, again.revision) == (known.seen_at, known.revision)
        assert again.silent >= known.silent
        assert presences.read() == {"a": again}, "read again within a second"
