"""The failures that operations have in common: the envelope, and one response for each status of the error table."""

from __future__ import annotations

from typing import Any

from api.engine.operation import Operation

CODES: dict[int, tuple[str, tuple[str, ...]]] = {
    400: ("The request is not valid; `details` name the field and what is allowed", ("INVALID_REQUEST",)),
    401: ("Credentials are missing or not valid", ("UNAUTHORIZED", "INVALID_API_KEY", "TOKEN_EXPIRED")),
    403: ("The caller may not do this", ("FORBIDDEN", "INSUFFICIENT_PERMISSIONS")),
    404: ("There is no such resource", ("NOT_FOUND",)),
    406: ("The response is not available in an accepted media type", ("INVALID_REQUEST",)),
    412: ("The resource has changed since the ETag in If-Match", ("INVALID_REQUEST",)),
    413: ("The body is larger than 1 MiB (8 MiB for an import)", ("INVALID_REQUEST",)),
    415: ("The body is not application/json", ("INVALID_REQUEST",)),
    429: ("Too many requests; `Retry-After` is the number of seconds to wait", ("RATE_LIMITED",)),
    431: ("The head of the request is too large", ("INVALID_REQUEST",)),
    502: ("An external service does not respond as expected; try again", ("EXTERNAL_SERVICE_ERROR",)),
    503: (
        "The process behind this operation is starting; `Retry-After` is the number of seconds to wait",
        ("UNAVAILABLE",),
    ),
    500: ("The request failed; the log has the cause under the id of the request", ("INTERNAL_ERROR",)),
}
"""Status → its meaning and its codes."""

_DETAILS: dict[int, dict[str, Any]] = {
    403: {"required_permission": "proxy.write"},
    404: {},
    401: {},
    429: {"retry_after": 30},
    500: {"request_id": "0f8fad5b-d9cb-469f-a165-70867728950e"},
    502: {"service": "identity_provider"},
    503: {},
}
_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"schema": {"type": "string"}}},
    429: {"Retry-After": {"description": "Seconds", "schema": {"type": "integer"}}},
    503: {"Retry-After": {"description": "Seconds", "schema": {"type": "integer"}}},
}


def responses() -> dict[str, Any]:
    """The components `responses`, by `name_of` the status."""
    return {name_of(status): _response(status) for status in CODES}


def name_of(status: int) -> str:
    """The component that describes this failure."""
    return f"Failure{status}"


def of(operation: Operation) -> dict[str, Any]:
    """The failures that an operation may respond with."""
    return {str(status): {"$ref": f"#/components/responses/{name_of(status)}"} for status in _statuses(operation)}


def _statuses(operation: Operation) -> list[int]:
    statuses = {400, 406, 413, 431, 500, *operation.errors}
    if not operation.may_be_503:
        statuses.add(503)
    if not operation.unlimited:
        statuses |= {403, 429}  # any client may be rejected by its address
    if operation.access != "(none)" or operation.body is not None:
        statuses.add(401)  # a failed sign-in is 401, too
    if "{" in operation.path:
        statuses.add(404)
    if operation.if_match:
        statuses.add(412)
    if operation.body is not None:
        statuses.add(415)
    return sorted(statuses)


def _response(status: int) -> dict[str, Any]:
    description, codes = CODES[status]
    properties = {
        "code": {"type": "string", "enum": list(codes)},
        "message": {"type": "string"},
        "details": {"type": ["object", "string"]},
    }
    error = {"type": "object", "properties": properties, "required": ["code", "message", "details"]}
    schema = {
        "type": "object",
        "properties": {"success": {"const": False}, "error": error},
        "required": ["success", "error"],
    }
    details = _DETAILS.get(status, {"field": "port", "error": "must be a whole number from 1 to 65535"})
    example = {"success": False, "error": {"code": codes[0], "message": description, "details": details}}
    response: dict[str, Any] = {
        "description": description,
        "content": {"application/json": {"schema": schema, "example": example}},
    }
    if status in _HEADERS:
        response["headers"] = _HEADERS[status]
    return response
