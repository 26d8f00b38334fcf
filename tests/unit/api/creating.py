"""Proxies created by way of the API."""

from __future__ import annotations

from typing import Any

from tests.kit.api_stage import PROXY, Api


def create(api: Api, headers: dict[str, str], **fields: Any) -> dict[str, Any]:
    made = api.post("/proxies", {**PROXY, **fields}, headers)
    assert made.status_code == 201, made.text
    proxy: dict[str, Any] = made.json["data"]["proxy"]
    return proxy


def delete_all(api: Api, headers: dict[str, str]) -> None:
    for each in api.store.find("proxies"):
        assert api.request("DELETE", f"/proxies/{each.body['id']}", headers).status_code == 200
