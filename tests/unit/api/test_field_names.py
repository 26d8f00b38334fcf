"""How refusals name what is wrong: one spelling of paths in all bodies, in errors of every layer."""

from __future__ import annotations

from typing import Any

from tests.kit.api_stage import PROXY, Api, error_of
from tests.kit.tables import table

UPSTREAM = {"protocol": "http", "host": "127.0.0.1", "port": 1}

WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "a type, found in the body": ("/proxies", {**PROXY, "tags": ["a", 7]}, "tags[1]"),
    "a field of an entry": (
        "/proxies",
        {**PROXY, "accounts": [{"username": "a", "password": 7}]},
        "accounts[0].password",
    ),
    "a null in an entry": ("/proxies", {**PROXY, "accounts": [{"username": None}]}, "accounts[0].username"),
    "an unknown field of an entry": ("/proxies", {**PROXY, "upstreams": [{**UPSTREAM, "x": 1}]}, "upstreams[0].x"),
    "what is missing in an entry": ("/proxies", {**PROXY, "accounts": [{"username": "a"}]}, "accounts[0].password"),
    "two entries together": ("/proxies", {**PROXY, "upstreams": [UPSTREAM, UPSTREAM]}, "upstreams[1]"),
    "an entry with a grammar": (
        "/proxies",
        {**PROXY, "access": {"deny_destinations": ["a b"]}},
        "access.deny_destinations[0]",
    ),
    "a network of a scope": (
        "/api-keys",
        {"name": "k", "scope": {"ip_whitelist": ["::/0", "x"]}},
        "scope.ip_whitelist[1]",
    ),
    "an event": ("/webhooks", {"name": "w", "url": "http://127.0.0.1/", "events": [7]}, "events[0]"),
}


@table(("path", "body", "field"), WRONG.values(), ids=WRONG)
def test_an_entry_of_a_list_is_named_by_its_index_in_brackets(
    api: Api, path: str, body: dict[str, Any], field: str
) -> None:
    status, code, details = error_of(api.post(path, body, api.token()))
    assert (status, code, details["field"]) == (400, "INVALID_REQUEST", field)
