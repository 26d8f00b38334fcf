"""The one table of errors: what each is in HTTP."""

from __future__ import annotations

from actors.bus.messages.common import LOGS, METRICS, SUPERVISOR, WEBHOOKS, forwarding_name
from api import errors
from api.errors import (
    IDENTITY_PROVIDER,
    Behind,
    Denied,
    DomainError,
    Invalid,
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
from api.http.error_table import ApiError, translated
from api.store import LedgerError, NotStored, OutcomeUnknown, RevisionConflict
from tests.kit.tables import table

CHALLENGE = {"WWW-Authenticate": 'Bearer realm="proxyfleet", Basic realm="proxyfleet", charset="UTF-8"'}
SOON = {"Retry-After": "1"}
CASES = [
    (Invalid("port", "is in use"), 400, "INVALID_REQUEST", {"field": "port", "error": "is in use"}, {}),
    (Invalid(None, "is bad"), 400, "INVALID_REQUEST", {"field": None, "error": "is bad"}, {}),
    (
        InvalidMany([("a", "is b"), ("c", "is d")]),
        400,
        "INVALID_REQUEST",
        {"field": "a", "error": "is b", "errors": [{"field": "a", "error": "is b"}, {"field": "c", "error": "is d"}]},
        {},
    ),
    (Unauthenticated(), 401, "UNAUTHORIZED", {}, CHALLENGE),
    (Unauthenticated("late", "TOKEN_EXPIRED", {"at": 1}), 401, "TOKEN_EXPIRED", {"at": 1}, CHALLENGE),
    (Denied("no"), 403, "FORBIDDEN", {"reason": "no"}, {}),
    (MissingPermission("admin", by_key=False), 403, "FORBIDDEN", {"required_permission": "admin"}, {}),
    (MissingPermission("admin", by_key=True), 403, "INSUFFICIENT_PERMISSIONS", {"required_permission": "admin"}, {}),
    (NotFound("The proxy"), 404, "NOT_FOUND", {}, {}),
    (StaleRevision(7), 412, "INVALID_REQUEST", {"field": "If-Match", "error": 'the ETag is "7" now'}, {}),
    (NoManagementHere(["10.0.0.7"]), 421, "NO_MANAGEMENT_API", {"full_nodes": ["10.0.0.7"]}, {}),
    (NotAFleet(), 409, "NOT_A_FLEET", {}, {}),
    (TooBusy(3), 429, "RATE_LIMITED", {"retry_after": 3}, {"Retry-After": "3"}),
    (Behind(7), 503, "BEHIND", {"revision": 7}, SOON),
    (NotReady("starting"), 503, "UNAVAILABLE", {}, SOON),
    (PeerUnavailable(SUPERVISOR, "x"), 500, "INTERNAL_ERROR", {"request_id": "req_1"}, {}),
    (PeerUnavailable(METRICS, "x"), 503, "UNAVAILABLE", {}, SOON),
    (PeerUnavailable(WEBHOOKS, "x"), 503, "UNAVAILABLE", {}, SOON),
    (PeerUnavailable(LOGS, "x"), 503, "UNAVAILABLE", {}, SOON),
    (PeerUnavailable(forwarding_name("prx_1"), "x"), 503, "UNAVAILABLE", {}, SOON),
    (
        PeerUnavailable(IDENTITY_PROVIDER, "x"),
        502,
        "EXTERNAL_SERVICE_ERROR",
        {"service": "identity_provider"},
        {},
    ),
    (
        RevisionConflict("proxies", "prx_1", 1, 2),
        412,
        "INVALID_REQUEST",
        {"field": "If-Match", "error": "the resource was changed at this moment; it is at 2 now"},
        {},
    ),
    (OperationFailed("The log can't be read"), 500, "INTERNAL_ERROR", {"request_id": "req_1"}, {}),
    (LedgerError("db: gone"), 503, "DATABASE_UNAVAILABLE", {"reason": "db: gone"}, {"Retry-After": "5"}),
    (OutcomeUnknown(), 503, "OUTCOME_UNKNOWN", {}, {"Retry-After": "5"}),
    (NotStored("proxies", "prx_1"), 500, "INTERNAL_ERROR", {"request_id": "req_1"}, {}),
]


@table(("error", "status", "code", "details", "headers"), CASES, ids=lambda value: repr(value)[:40])
def test_each_error_has_its_response(
    error: Exception, status: int, code: str, details: object, headers: dict[str, str]
) -> None:
    response = translated(error, "req_1")
    assert response is not None
    assert (response.status, response.code, response.details, response.headers) == (status, code, details, headers)


def test_every_error_of_the_domain_has_a_row() -> None:
    kinds = {each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, DomainError)}
    assert kinds - {type(error) for error, *_ in CASES} == {DomainError}


def test_an_unforeseen_error_has_no_row_and_an_error_of_http_is_itself() -> None:
    refused = ApiError(406, "INVALID_REQUEST", "no")
    assert translated(refused, "req_1") is refused
    assert translated(ValueError("bug"), "req_1") is None


def test_what_a_peer_said_is_for_the_log_alone() -> None:
    response = translated(PeerUnavailable(METRICS, "Unreachable(secret)"), "req_1")
    assert response is not None
    assert "secret" not in str(response.envelope())
