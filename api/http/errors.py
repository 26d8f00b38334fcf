"""The error table of the API: what may go wrong, as exceptions made of data, and their envelope.

Everything that the API refuses is an `ApiError`; it is turned into an answer in one place (`api.app`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from config.model.fields import field_path

INVALID_REQUEST = "INVALID_REQUEST"


class ApiError(Exception):
    """An answer with a failure envelope. `headers` go with it."""

    def __init__(
        self, status: int, code: str, message: str, details: Any = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.details = {} if details is None else details
        self.headers = headers or {}

    def envelope(self) -> dict[str, Any]:
        """The body of the answer."""
        error = {"code": self.code, "message": self.message, "details": self.details}
        return {"success": False, "error": error}


def envelope_bytes(code: str, message: str, details: Any) -> bytes:
    """A failure envelope for those who answer outside of the application."""
    return json.dumps(ApiError(0, code, message, details).envelope()).encode()


def invalid(field: str | None, error: str, status: int = 400) -> ApiError:
    """400 for one field; `field` None means the request as a whole."""
    return ApiError(status, INVALID_REQUEST, "The request is not valid", {"field": field, "error": error})


def invalid_fields(problems: Sequence[tuple[str, str]]) -> ApiError:
    """400 for several fields, the first of them up front."""
    field, error = problems[0]
    details: dict[str, Any] = {"field": field, "error": error}
    if len(problems) > 1:
        details["errors"] = [{"field": name, "error": text} for name, text in problems]
    return ApiError(400, INVALID_REQUEST, "The request is not valid", details)


def from_problems(problems: Sequence[Any], read_only: frozenset[str]) -> ApiError:
    """400 with what pydantic found: the entries of `ValidationError.errors()`."""
    return invalid_fields([_problem(each, read_only) for each in problems])


def unauthorized(message: str = "Valid credentials are required", code: str = "UNAUTHORIZED") -> ApiError:
    """401. Both schemes are offered."""
    challenge = 'Bearer realm="proxyfleet", Basic realm="proxyfleet", charset="UTF-8"'
    return ApiError(401, code, message, {}, {"WWW-Authenticate": challenge})


def forbidden(reason: str) -> ApiError:
    """403 for a rule: scope, address, kind of credential."""
    return ApiError(403, "FORBIDDEN", "This is not allowed", {"reason": reason})


def lacks_permission(permission: str, by_key: bool) -> ApiError:
    """403 that names the permission; keys and users have codes of their own."""
    code = "INSUFFICIENT_PERMISSIONS" if by_key else "FORBIDDEN"
    return ApiError(403, code, f"The permission {permission} is required", {"required_permission": permission})


def not_found(what: str) -> ApiError:
    """404 for a resource or a path."""
    return ApiError(404, "NOT_FOUND", f"{what} was not found", {})


def rate_limited(retry_after: int, message: str = "Too many requests") -> ApiError:
    """429 with `Retry-After`."""
    headers = {"Retry-After": str(retry_after)}
    return ApiError(429, "RATE_LIMITED", message, {"retry_after": retry_after}, headers)


def unavailable(message: str, retry_after: int = 1) -> ApiError:
    """503 with `Retry-After` (seconds): the process that is asked starts, or can't be asked just now."""
    return ApiError(503, "UNAVAILABLE", message, {}, {"Retry-After": str(retry_after)})


def external(service: str, message: str) -> ApiError:
    """502: a service elsewhere does not answer as it should; the caller may try again."""
    return ApiError(502, "EXTERNAL_SERVICE_ERROR", message, {"service": service})


def internal(request_id: str, message: str = "The server could not do this") -> ApiError:
    """500; nothing of the inside but the id of the request, by which the log is found."""
    return ApiError(500, "INTERNAL_ERROR", message, {"request_id": request_id})


def _problem(error: Any, read_only: frozenset[str]) -> tuple[str, str]:
    field = field_path(error["loc"])
    if error["type"] == "extra_forbidden":
        return field, "is read-only" if field in read_only else "is not a known field"
    if error["type"] == "null_field":
        return field_path((*error["loc"], str(error["ctx"]["field"]))), "must not be null"
    if error["type"] == "bad_entry":
        return f"{field}[{error['ctx']['index']}]", str(error["msg"])
    if error["type"] == "missing":
        return field, "is required"
    if error["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return field, "must be an object"
    if error["type"] == "literal_error":
        return field, f"must be one of {_choices(str(error['ctx']['expected']))}"
    text = str(error["msg"]).removeprefix("Value error, ")
    return field, text[:1].lower() + text[1:]


def _choices(expected: str) -> str:
    """pydantic's `'a', 'b' or 'c'`, as the other messages write it."""
    return expected.replace(" or ", ", ").replace("'", "")
