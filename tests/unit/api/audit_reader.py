"""Entries of the audit trail."""

from __future__ import annotations

from typing import Any

from tests.kit.api_stage import Api


def rows(api: Api, **query: Any) -> list[dict[str, Any]]:
    """The trail as an administrator reads it, newest first."""
    response = api.get("/audit", api.token(), params=query)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json["data"]["audit"]
    return found
