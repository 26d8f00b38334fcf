"""Entries of the audit trail."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from tests.kit.api_stage import Api


def recorded(api: Api) -> bytes:
    """All that audit trail and history have in the file."""
    with closing(sqlite3.connect(api.data.fleet)) as database:
        entries = [content.encode() for (content,) in database.execute("SELECT content FROM audit")]
        bodies = [body for pair in database.execute("SELECT before, after FROM revision_changes") for body in pair]
    return b"".join([*entries, *(each for each in bodies if each is not None)])


def rows(api: Api, **query: Any) -> list[dict[str, Any]]:
    """The trail as an administrator reads it, newest first."""
    response = api.get("/audit", api.token(), params=query)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json["data"]["audit"]
    return found
