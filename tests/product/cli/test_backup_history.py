"""The history of the configuration in backups: it is restored with the stores, and fits to them."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from api.engine.commit import open_engine
from config.files.paths import DataDir
from tests.product.cli.sites import Site


def revisions(data: DataDir) -> list[tuple[int, str]]:
    """Numbers and operations."""
    with closing(sqlite3.connect(data.fleet)) as database:
        sql = "SELECT number, author ->> '$.operation' FROM revisions ORDER BY number"
        return database.execute(sql).fetchall()


def change(data: DataDir, text: str) -> None:
    """One revision: the description of a proxy."""
    with open_engine(data, "command_line", "a-change") as engine:
        (found,) = (each for each in engine.find("proxies") if each.body["name"] == "plain")
        engine.put("proxies", {**found.body, "description": text})


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
