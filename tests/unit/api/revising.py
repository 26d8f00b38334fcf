"""Revisions of the configuration in tests of the API: read, restored and undone."""

from __future__ import annotations

from typing import Any

from tests.kit.api_stage import Api


def revisions(api: Api, **query: Any) -> list[dict[str, Any]]:
    response = api.get("/revisions", api.token(), params=query)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json["data"]["revisions"]
    return found


def newest(api: Api) -> int:
    found: int = revisions(api, limit=1)[0]["revision"]
    return found


def shown(api: Api, number: int | str) -> dict[str, Any]:
    response = api.get(f"/revisions/{number}", api.token())
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json["data"]
    return found


def restore(api: Api, number: int, query: str = "", **headers: str) -> Any:
    response = api.post(f"/revisions/{number}/restore", None, {**api.token(), **headers}, query_string=query)
    assert response.status_code == 200, response.text
    return response.json["data"]


def everything(api: Api) -> dict[str, Any]:
    """The export, which has no times; with passwords as they are stored."""
    data: dict[str, Any] = api.get("/config/export", api.token()).json["data"]
    hashes = {each.id: each.body["password_hash"] for each in api.services.account_store.find("accounts")}
    return {**data, "hashes": hashes, "ids": sorted(each.id for each in api.store.find("proxies"))}


def undo(api: Api, number: int, query: str = "") -> Any:
    """The response to an undo of one revision."""
    return api.post(f"/revisions/{number}/undo", None, api.token(), query_string=query)


def undone(api: Api, number: int, query: str = "") -> Any:
    """What an undo that must succeed has changed."""
    response = undo(api, number, query)
    assert response.status_code == 200, response.text
    return response.json["data"]
