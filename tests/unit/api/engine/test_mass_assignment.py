"""Fields that only the product sets are refused in every body, wherever they stand, and named."""

from __future__ import annotations

import re
from typing import Any

from api.app import OPERATIONS
from api.operations import HOLDER, NONE, Operation
from config.model import fields
from tests.kit.api_stage import Api, error_of
from tests.kit.tables import table
from tests.unit.api.holding import holder

PLANTED = (
    *("id", "user_id", "created_at", "updated_at", "last_login", "last_used", "revision"),
    *("role", "permissions", "status", "oauth", "email_claimed", "is_admin", "owner"),
    *("password_hash", "key_hash", "secret", "secret_sealed", "key", "prefix", "runtime", "stats", "usage"),
    *("__class__", "__proto__", "model_config"),
)
"""Names of fields in the store and in responses, and such as frameworks have stumbled over."""


def by_id(operation: Operation) -> str:
    return operation.id


def places(body: dict[str, Any], path: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Every object in a body, with the path of a field in it."""
    found = [(path, body)]
    for name, value in body.items():
        if isinstance(value, dict) and name not in (
            "headers",
            "labels",
            "metadata",
            "addresses",
        ):  # whose names are free
            found += places(value, f"{path}{name}.")
        for index, entry in enumerate(value if isinstance(value, list) else ()):
            found += places(entry, f"{path}{name}[{index}].") if isinstance(entry, dict) else []
    return found


@table("operation", [each for each in OPERATIONS if each.body is not None], ids=by_id)
def test_what_only_the_product_sets_is_refused_by_its_name(api: Api, operation: Operation) -> None:
    headers = (
        {} if operation.access == NONE else holder(api, operation.id) if operation.access == HOLDER else api.token()
    )
    path = re.sub(r"\{[a-z_]+\}", "nothing", operation.path)
    before = api.store.revision
    assert operation.body is not None
    body = fields.example_of(operation.body)
    for place, part in places(body):
        known = {*part, *(operation.body.model_fields if not place else ())}
        planted = dict.fromkeys([name for name in PLANTED if name not in known], "planted")
        part.update(planted)
        try:
            status, code, details = error_of(api.request(operation.method, path, headers, json=body))
        finally:
            for name in planted:
                del part[name]
        if code == "NOT_A_FLEET":  # one machine changes no nodes, whatever the body has
            return
        named = {each["field"] for each in details["errors"]}
        assert (status, code, {f"{place}{name}" for name in planted} - named) == (400, "INVALID_REQUEST", set())
    assert api.store.revision == before
