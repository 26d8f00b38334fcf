"""A client that holds every response against the API's own description: no field more or less, no status untold."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from falcon.testing import Result, TestClient

from api.app import OPERATIONS
from api.engine.responses import model_of
from api.openapi.description import build
from api.operations import Operation

_ROUTES = [
    (each.method, re.compile(re.sub(r"\\{[a-z_]+\\}", "[^/]+", re.escape(each.path))), each) for each in OPERATIONS
]


class DescribedClient(TestClient):
    """As Falcon's, but a response of the application has to be as it is described."""

    def simulate_request(self, *args: Any, **kwargs: Any) -> Result:
        result = super().simulate_request(*args, **kwargs)
        method, path = (args[0] if args else kwargs["method"]), (args[1] if len(args) > 1 else kwargs["path"])
        operation = operation_of(method, path.partition("?")[0])
        if operation is not None:
            check(operation, result)
        return result


def operation_of(method: str, path: str) -> Operation | None:
    """The operation that such a request is for. A static path wins over one with a parameter, whatever its methods,
    and so does a part of one."""
    found = [(_wholes(each.path), verb, each) for verb, route, each in _ROUTES if route.fullmatch(path)]
    fewest = min((count for count, _, _ in found), default=0)
    return next((each for count, verb, each in found if (count, verb) == (fewest, method)), None)


def _wholes(path: str) -> int:
    """The number of segments that are a parameter."""
    return sum(each.startswith("{") and each.count("{") == 1 for each in path.split("/"))


def check(operation: Operation, result: Result) -> None:
    """Raises `AssertionError` or pydantic's `ValidationError` where the response isn't as described."""
    described = document()["paths"][operation.path][operation.method.lower()]["responses"]
    assert str(result.status_code) in described, (
        f"{operation.id} responded {result.status_code}, which is not described"
    )
    if result.status_code == 304:
        assert not result.content
        return
    if operation.also_produces and result.headers["Content-Type"].startswith(operation.also_produces):
        return
    if operation.response is not None and result.json["success"]:
        model_of(operation.response).model_validate_json(_data(result), strict=True)
    elif operation.response is not None:
        assert result.json["error"].keys() == {"code", "message", "details"}


def _data(result: Result) -> bytes:
    return json.dumps(result.json["data"]).encode()


@cache
def document() -> dict[str, Any]:
    """The description."""
    return build(OPERATIONS)
