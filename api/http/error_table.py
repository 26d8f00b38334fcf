"""The error table of the API: what each error is in HTTP, and the envelope of a failure.

Every failure is raised: as an error of the domain (`api.errors`, `api.store`), which `TABLE` translates, or as an
`ApiError` for errors of HTTP itself. One handler (`api.app`) makes responses of all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from actors.bus.messages.common import LOGS, METRICS, SUPERVISOR, WEBHOOKS
from api.errors import (
    IDENTITY_PROVIDER,
    Behind,
    Denied,
    InvalidMany,
    MissingPermission,
    NoManagementHere,
    NotAFleet,
    NotFound,
    NotReady,
    OperationFailed,
    PeerUnavailable,
    StaleRevision,
    TooBusy,
    Unauthenticated,
)
from api.store.interface import FleetLevel, LedgerError, OutcomeUnknown, RevisionConflict, SignInEnded, StoreError
from config.model.fields import InvalidResource
from config.settings.runtime import ReadOnlySetting

INVALID_REQUEST = "INVALID_REQUEST"
BEARER = 'Bearer realm="proxyfleet"'
BASIC = 'Basic realm="proxyfleet", charset="UTF-8"'
"""The two challenges of a 401."""
NOT_VALID = "The request is not valid"


class ApiError(Exception):
    """A response with a failure envelope. `headers` go with it."""

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
        """The body of the response."""
        error = {"code": self.code, "message": self.message, "details": self.details}
        return {"success": False, "error": error}


def envelope_bytes(code: str, message: str, details: Any) -> bytes:
    """A failure envelope for responses from outside of the application."""
    return json.dumps(ApiError(0, code, message, details).envelope()).encode()


def invalid(field: str | None, error: str, status: int) -> ApiError:
    """A 4xx for one field or header; `field` None means the request as a whole. A plain 400 is `Invalid`."""
    return ApiError(status, INVALID_REQUEST, NOT_VALID, {"field": field, "error": error})


def internal(request_id: str, message: str = "The server could not do this") -> ApiError:
    """500, without internals but for the id of the request, by which the log entry is found."""
    return ApiError(500, "INTERNAL_ERROR", message, {"request_id": request_id})


def translated(error: Exception, request_id: str) -> ApiError | None:
    """The response to `error`; None without a row in `TABLE`."""
    if isinstance(error, ApiError):
        return error
    row = next((TABLE[kind] for kind in type(error).__mro__ if kind in TABLE), None)
    return None if row is None else row(error, request_id)


def _invalid_fields(error: InvalidMany, _request_id: str) -> ApiError:
    """The first problem up front, all of them when there are several."""
    field, text = error.problems[0]
    details: dict[str, Any] = {"field": field, "error": text}
    if len(error.problems) > 1:
        details["errors"] = [{"field": name, "error": text} for name, text in error.problems]
    return ApiError(400, INVALID_REQUEST, NOT_VALID, details)


def _missing_permission(error: MissingPermission, _request_id: str) -> ApiError:
    """Keys and users have codes of their own."""
    code = "INSUFFICIENT_PERMISSIONS" if error.by_key else "FORBIDDEN"
    return ApiError(403, code, str(error), {"required_permission": error.permission})


def _unauthenticated(error: Unauthenticated, _request_id: str) -> ApiError:
    """Both schemes are offered."""
    return ApiError(401, error.code, str(error), error.details, {"WWW-Authenticate": f"{BEARER}, {BASIC}"})


def _too_busy(error: TooBusy, _request_id: str) -> ApiError:
    headers = {"Retry-After": str(error.retry_after)}
    return ApiError(429, "RATE_LIMITED", str(error), {"retry_after": error.retry_after}, headers)


def _peer_unavailable(error: PeerUnavailable, request_id: str) -> ApiError:
    """A change that needs the supervisor can't be made: 500. The others start again within moments: 503."""
    if error.peer == SUPERVISOR:
        return internal(request_id, "The supervisor does not respond; try again in a moment")
    if error.peer == IDENTITY_PROVIDER:
        message = "The identity provider does not respond as expected; begin the sign-in again in a moment"
        return ApiError(502, "EXTERNAL_SERVICE_ERROR", message, {"service": IDENTITY_PROVIDER})
    if error.peer in _PEERS:
        return _unavailable(f"{_PEERS[error.peer]} does not respond; try again in a moment")
    return _unavailable("The proxy's process does not respond; its runtime says more")


_PEERS = {METRICS: "The metrics collector", WEBHOOKS: "The webhook sender", LOGS: "The log indexer"}


def _unavailable(message: str) -> ApiError:
    return ApiError(503, "UNAVAILABLE", message, {}, {"Retry-After": "1"})


_DATABASE = "The fleet's database can't be used now; nothing was changed, and all that can be read is there"
_UNKNOWN = "The fleet's database did not respond in time: the audit trail will say whether the change was made"

TABLE: dict[type[Exception], Callable[[Any, str], ApiError]] = {
    InvalidMany: _invalid_fields,
    InvalidResource: lambda error, _: invalid(error.field, error.error, 400),
    ReadOnlySetting: lambda error, _: invalid(error.field, error.error, 400),
    Unauthenticated: _unauthenticated,
    Denied: lambda error, _: ApiError(403, "FORBIDDEN", "This is not allowed", {"reason": error.reason}),
    MissingPermission: _missing_permission,
    NotFound: lambda error, _: ApiError(404, "NOT_FOUND", str(error), {}),
    NotAFleet: lambda error, _: ApiError(409, "NOT_A_FLEET", str(error), {}),
    StaleRevision: lambda error, _: invalid("If-Match", str(error), 412),
    RevisionConflict: lambda error, _: invalid(
        "If-Match", f"the resource was changed at this moment; it is at {error.actual} now", 412
    ),
    SignInEnded: lambda _error, request_id: _unauthenticated(Unauthenticated("The sign-in has ended"), request_id),
    NoManagementHere: lambda error, _: ApiError(
        421, "NO_MANAGEMENT_API", str(error), {"full_nodes": list(error.addresses)}
    ),
    TooBusy: _too_busy,
    StoreError: lambda _, request_id: internal(
        request_id, "The configuration could not be written; nothing was changed"
    ),
    LedgerError: lambda error, _: ApiError(
        503, "DATABASE_UNAVAILABLE", _DATABASE, {"reason": str(error)}, {"Retry-After": "5"}
    ),
    FleetLevel: lambda error, _: ApiError(
        409,
        "FLEET_LEVEL",
        str(error),
        {"level": error.level, "nodes": list(error.nodes), "fields": list(error.fields)},
    ),
    OutcomeUnknown: lambda _error, _: ApiError(503, "OUTCOME_UNKNOWN", _UNKNOWN, {}, {"Retry-After": "5"}),
    OperationFailed: lambda error, request_id: internal(request_id, str(error)),
    PeerUnavailable: _peer_unavailable,
    Behind: lambda error, _: ApiError(503, "BEHIND", str(error), {"revision": error.number}, {"Retry-After": "1"}),
    NotReady: lambda error, _: _unavailable(str(error)),
}
"""By the class of an error, or its nearest base: `(error, id of the request)` to the response."""
