"""Proxies and documents that name lists, pools and policies, and what is refused of them."""

from __future__ import annotations

from typing import Any

from falcon.testing import Result

from tests.kit.api_stage import Api, error_of

DOCUMENT = {"kind": "proxyfleet.config", "version": 1}


def proxy(api: Api, **fields: Any) -> Result:
    return api.post("/proxies", {"name": "office", "port": 3128, "protocol": "http", **fields}, api.token())


def problem(response: Result) -> tuple[str, str]:
    """The field at fault and the error of a refusal."""
    status, _, details = error_of(response)
    assert status == 400, response.text
    return details.get("field") or "", details["error"]


def imported(api: Api, query: str = "", **sections: Any) -> Result:
    return api.post("/config/import", {**DOCUMENT, **sections}, api.token(), query_string=query)


def fields_of(response: Result) -> list[str]:
    """The fields at fault."""
    status, _, details = error_of(response)
    assert status == 400, response.text
    return [each["field"] for each in details["errors"]] if "errors" in details else [details["field"]]
