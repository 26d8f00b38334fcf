"""The history of the configuration in backups: it is restored with the stores, and fits to them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from api.audit.store import audited
from api.audit.trail import trail_file
from api.backup import snapshot
from api.store import open_store
from config.files.paths import DataDir
from tests.product.cli.sites import Site


def revisions(data: DataDir) -> list[tuple[int, str]]:
    """Numbers and operations."""
    with closing(sqlite3.connect(trail_file(data))) as database:
        sql = "SELECT number, author ->> '$.operation' FROM revisions ORDER BY number"
        return database.execute(sql).fetchall()


def change(data: DataDir, text: str) -> None:
    """One revision: the description of a proxy."""
    with closing(open_store(data)) as store, audited(data, store, "command_line", "a-change") as recorded:
        (found,) = (each for each in recorded.find("proxies") if each.body["name"] == "plain")
        recorded.put("proxies", {**found.body, "description": text})


def test_a_restored_history_goes_on_above_the_numbers_before(site: Site) -> None:
    change(site.data, "in the backup")
    before = revisions(site.data)
    assert [number for number, _ in before] == list(range(1, len(before) + 1))
    file = site.backup()
    for text in ("later", "later still"):
        change(site.data, text)
    assert site.restore(file, "--yes").status == 0
    assert revisions(site.data) == [*before, (len(before) + 3, "restore")]
    change(site.data, "after it")
    assert revisions(site.data)[-1] == (len(before) + 4, "a-change")


def test_a_change_between_the_copies_of_store_and_trail_is_no_revision_of_the_restored_state(
    site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, copy_accounts = revisions(site.data), snapshot._accounts

    def late(*given: Any) -> None:
        change(site.data, "too late")
        change(site.data, "and again")
        copy_accounts(*given)

    with monkeypatch.context() as patched:
        patched.setattr(snapshot, "_accounts", late)
        file = site.backup()
    assert len(revisions(site.data)) == len(before) + 2
    new = Site(folder, folder / "new")
    assert new.restore(file, "--yes").status == 0
    assert revisions(new.data) == [*before, (len(before) + 1, "restore")]
    with closing(open_store(new.data)) as store:
        assert {each.body["description"] for each in store.find("proxies")}.isdisjoint({"too late", "and again"})
