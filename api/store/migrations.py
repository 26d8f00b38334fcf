"""The steps that bring data of earlier releases to the present format, in order; the first leads from format 1 to 2.

A step is added, never altered, when a release stores something that the release before could not read; together with a
sample of that release's data (`scripts/make-sample-data`), on which `tests/unit/api/store/test_samples.py` starts this
program.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from api.store.commit_journal import complete
from api.store.migration import Step, newest_format
from api.store.storage import rewrite

STEPS: tuple[Step, ...] = ()
"""None: 0.1.0 is the first release, and its data are format 1."""

DATA_FORMAT = newest_format(STEPS)


def change_documents(folder: Path, collection: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """For steps: give every document of a collection another content; `folder` is what `apply` gets.

    Revisions stay, deleted documents too. What an older program was killed in the middle of is finished first. Raises
    `StoreError`, `OSError`, and what `change` raises.
    """

    def changed(entries: dict[str, Any]) -> dict[str, Any]:
        return {
            identifier: entry if entry["body"] is None else {**entry, "body": change(entry["body"])}
            for identifier, entry in entries.items()
        }

    complete(folder / "store")
    rewrite(folder / "store" / f"{collection}.json", changed)
