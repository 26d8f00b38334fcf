"""What `proxyfleet cluster …` says on a machine, without a fleet's database."""

from __future__ import annotations

import json

import pytest

from actors.bus.messages.cluster import FleetLeft
from api.history.lost_changes import LostChanges
from api.operator import cluster
from api.security import users
from api.store import open_store
from config.model.nodes import pending_text
from tests.kit.tables import table
from tests.product.cli.sites import Site

MOMENT = "2030-01-31T12:00:00.000Z"


def test_without_anything_lost_there_is_one_line_and_for_programs_an_empty_list(site: Site) -> None:
    lines = site.shell.good("cluster", "show-lost").out.splitlines()
    assert lines == ["Nothing was lost: the fleet's database has all that this node had."]
    assert json.loads(site.shell.good("cluster", "show-lost", "-o", "json").out) == []
    refused = site.shell("cluster", "show-lost", "2030")
    assert (refused.status, "'2030'" in refused.err) == (1, True)


def test_lost_commits_without_objects_are_no_empty_tables(site: Site) -> None:
    site.data.cluster.mkdir()
    LostChanges(MOMENT, "fleet", "fra1", 7, [8], []).save(site.data)
    assert site.shell.good("cluster", "show-lost").out.splitlines() == [
        f"Noticed at {MOMENT}: the database went back to commit 7, and lacks 1 commit with 0 objects.",
        "No revision of the configuration is among them.",
        "No object differs.",
    ]


def test_who_has_left_as_an_edge_node_reads_who_signs_in_and_where_the_password_is(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "leave_offline", lambda *_: FleetLeft({"credentials": 1, "usage_bytes": 7}))
    said = site.shell.good("cluster", "leave", "--force").out
    assert "The fleet did not get 1 credential, 7 bytes of usage: this machine alone has that." in said
    assert "admin" not in said
    store = open_store(site.data)
    for each in store.find(users.COLLECTION):
        store.delete(users.COLLECTION, each.id)
    store.close()
    said = site.shell.good("cluster", "leave", "--force").out
    assert "the next start makes the administrator `admin`, with the password of PROXYFLEET_ADMIN_PASSWORD" in said
    assert str(site.data.initial_password) in said


@table(
    ("pending", "text"),
    [
        ({}, ""),
        ({"sign_ins": 0, "credentials": 1, "audit": 1, "usage_bytes": 1, "usage_seconds": 9.0},
         "1 credential, 1 entry of the audit trail, 1 byte of usage"),
        ({"sign_ins": 2, "audit": 3}, "2 sign-ins, 3 entries of the audit trail"),
    ],
)  # fmt: skip
def test_what_waits_for_the_database_is_said_in_words(pending: dict[str, float], text: str) -> None:
    assert pending_text(pending) == text
