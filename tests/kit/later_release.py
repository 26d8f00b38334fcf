"""A later release: the present program and two more steps of the data (`python -m tests.kit.later_release serve …`).

Its proxies carry their tags sorted and a mark, its audit trail has a table more.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from api.store import migrations
from api.store.migration import Step
from api.store.migrations import change_documents


def _sort_tags(folder: Path) -> None:
    def change(body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "tags": [*sorted(body["tags"]), "tomorrow"]}

    change_documents(folder, "proxies", change)


def _note_the_day(folder: Path) -> None:
    database = sqlite3.connect(folder / "audit" / "audit.sqlite")
    try:
        database.execute("CREATE TABLE day (name TEXT)")
        database.execute("INSERT INTO day SELECT count(*) FROM audit")
        database.commit()
    finally:
        database.close()


STEPS = (
    *migrations.STEPS,
    Step("the tags of proxies are sorted", ("store",), _sort_tags),
    Step("the audit trail knows the day", ("audit", "store"), _note_the_day),
)

if __name__ == "__main__":
    import supervisor

    migrations.STEPS = STEPS
    migrations.DATA_FORMAT = len(STEPS) + 1
    supervisor.main()
