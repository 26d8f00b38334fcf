"""What a node knows of the others by their heartbeats."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest

from actors.cluster.database import Database
from api.cluster.following.heartbeat import Heartbeat
from api.cluster.following.presence import Presences
from config import VERSION
from config.text.formatting import timestamp_text
from tests.kit.postgresql import needs_postgresql
from tests.kit.tables import table
from tests.unit.api.cluster.nodes import fleet, proxy

pytestmark = needs_postgresql


def test_all_nodes_are_read_at_once_with_how_far_they_are_behind_and_what_they_report() -> None:
    with fleet() as ours, closing(Database(ours.dsn)) as database:
        node = ours.node("a")
        node.change(proxy())
        for name, at in (("a", node.number), ("b", node.number - 1)):
            beats = Heartbeat(ours.database, name, f"boot of {name}", lambda at=at: (at, None))  # type: ignore[misc]
            beats.reports.append(lambda: {"proxies": {"prx_1": {"state": "failed", "error": None}}})
            beats.beat_now()
        ours.execute("UPDATE proxyfleet.heartbeats SET at = at - interval '20 s' WHERE node = 'b'")
        found = Presences(database).read()
        assert {name: (each.revision, each.version) for name, each in found.items()} == {
            "a": (node.number, VERSION),
            "b": (node.number - 1, VERSION),
        }
        assert found["a"].behind == 0 < found["b"].behind < 10
        assert found["a"].silent < 10 < 20 <= found["b"].silent < 30
        assert found["a"].problems["proxies"] == {"prx_1": {"state": "failed", "error": None}}


@table(
    "problems",
    [
        {"proxies": 5},
        {"proxies": {"prx_1": None}},
        {"failed": [{"since": 1e400}]},
        {"failed": [{"since": 1e18}]},
        {"failed": [{"since": 1.0}]},
        {"pending": {"sign_ins": "MANY DIGITS"}},
        {"pending": {"sign_ins": -1}},
        {"database": {"round_trip_ms": 1e400}},
        {"pending": [1]},
        {"database": "x"},
        {"database": None},
        {"settings": {"a": {}}},
        [],
        None,
    ],
)
def test_a_stolen_edge_that_reports_anything_is_read_as_one_that_reports_nothing(problems: Any) -> None:
    with fleet() as ours, closing(Database(ours.dsn)) as database:
        beat = {"boot": "b", "up_for": 1e300, "version": "1", "level": 1, "commit": 0, "clock_offset": "NaN"}
        text = json.dumps({**beat, "settings": {}, "problems": problems})
        text = text.replace("Infinity", "1e400").replace('"MANY DIGITS"', "9" * 5000)
        with database.session() as session:
            session.transaction("SELECT proxyfleet.heartbeat('a', %s)", [text])
        found = Presences(database).read()["a"]
    assert (found.problems, found.clock_offset) == ({}, 0)
    assert timestamp_text(found.started_at)


def test_in_an_outage_what_was_known_stays_and_grows_older() -> None:
    with fleet() as ours, closing(Database(ours.dsn)) as database:
        Heartbeat(ours.database, "a", "boot", lambda: (0, None)).beat_now()
        presences = Presences(database)
        known: Any = presences.read()["a"]
        database.close()
        again = presences.read(fresh=True)["a"]
        assert (known.is_current, again.is_current) == (True, False)
        assert (again.seen_at, again.revision) == (pytest.approx(known.seen_at, abs=5), known.revision)
        assert known.silent < again.silent < known.silent + 5, "it was silent when it was read, and the database since"
        assert presences.read() == {"a": again}, "read again within a second"


def test_what_was_read_long_before_an_outage_is_as_old_as_the_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    with fleet() as ours, closing(Database(ours.dsn)) as database:
        Heartbeat(ours.database, "a", "boot", lambda: (0, None)).beat_now()
        presences = Presences(database)
        known = presences.read()["a"]
        database.close()
        monkeypatch.setattr(Database, "time", lambda _: known.seen_at + 600)
        monkeypatch.setattr(Database, "silent_for", 20.0)
        again = presences.read(fresh=True)["a"]
    assert again.silent == pytest.approx(known.silent + 20)
    assert again.seen_at == pytest.approx(known.seen_at + 600 - again.silent)
