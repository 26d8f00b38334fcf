"""Every kind of caller against every operation: who gets in, and with which code others are turned away.

What is expected is written down here from the contract, and not taken from the table of operations. Requests name
resources that don't exist and have no body, so a caller with access gets 2xx, 400, 404 or the like, and no 401 or 403.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from falcon.testing import Result

from api.api_settings import ApiSettings
from api.app import OPERATIONS
from api.operations import Operation
from api.store import Write
from config.model.fleet_accounts import FleetAccount
from config.settings.settings import AccountSettings
from tests.kit.api_stage import INTRANET, PASSWORD, QUIET, Api, error_of
from tests.kit.tables import table

OPEN, ANYBODY, TOKEN, PERSON = "open to all", "any credential", "a bearer token", "a person"
HOLDER = "the holder of an account"
SESSION = "the cookie of a session"
V1 = "/api/v1"

REQUIRED: dict[str, dict[str, str]] = {
    "/health": {"GET": OPEN},
    "/livez": {"GET": OPEN},
    "/readyz": {"GET": OPEN},
    "/health/ready": {"GET": OPEN},
    "/metrics": {"GET": "metrics.read"},
    "/proxy.pac": {"GET": "proxy.read"},
    f"{V1}/health": {"GET": ANYBODY},
    f"{V1}/overview": {"GET": ANYBODY},
    f"{V1}/flow": {"GET": "proxy.read"},
    f"{V1}/search": {"GET": ANYBODY},
    f"{V1}/policies/*/rules": {"POST": "proxy.write"},
    f"{V1}/proxies/batch": {"POST": "proxy.write"},
    f"{V1}/certificates": {"POST": "proxy.write"},
    f"{V1}/status": {"GET": "metrics.read"},
    f"{V1}/auth/login": {"POST": OPEN},
    f"{V1}/auth/methods": {"GET": OPEN},
    f"{V1}/auth/refresh": {"POST": SESSION},
    f"{V1}/auth/sessions": {"GET": PERSON},
    f"{V1}/auth/sessions/*": {"DELETE": PERSON},
    f"{V1}/auth/validate": {"POST": TOKEN},
    f"{V1}/auth/logout": {"POST": TOKEN},
    f"{V1}/auth/first-password/keep": {"POST": TOKEN},
    f"{V1}/auth/signing-key/rotate": {"POST": "admin"},
    f"{V1}/auth/test": {"GET": ANYBODY},
    f"{V1}/version": {"GET": ANYBODY},
    f"{V1}/auth/oauth2/authorize": {"GET": OPEN},
    f"{V1}/auth/oauth2/callback": {"GET": OPEN, "POST": OPEN},
    f"{V1}/api-keys": {"GET": PERSON, "POST": PERSON},
    f"{V1}/api-keys/*": {"DELETE": PERSON},
    f"{V1}/api-keys/*/rotate": {"POST": PERSON},
    f"{V1}/nodes": {"GET": "settings.read"},
    f"{V1}/nodes/*": {
        "GET": "settings.read",
        "PUT": "settings.write",
        "PATCH": "settings.write",
        "DELETE": "admin",
    },
    f"{V1}/nodes/*/drain": {"POST": "settings.write"},
    f"{V1}/nodes/*/resume": {"POST": "settings.write"},
    f"{V1}/nodes/tokens": {"GET": "admin", "POST": "admin"},
    f"{V1}/nodes/tokens/*": {"DELETE": "admin"},
    f"{V1}/proxies": {"GET": "proxy.read", "POST": "proxy.write"},
    f"{V1}/proxies/*": {"GET": "proxy.read", "PUT": "proxy.write", "PATCH": "proxy.write", "DELETE": "proxy.delete"},
    f"{V1}/proxies/tags": {"POST": "proxy.write"},
    f"{V1}/proxies/*/start": {"POST": "proxy.write"},
    f"{V1}/proxies/*/stop": {"POST": "proxy.write"},
    f"{V1}/proxies/*/restart": {"POST": "proxy.write"},
    f"{V1}/proxies/*/test": {"POST": "proxy.write"},
    f"{V1}/proxies/*/explain": {"POST": "proxy.read"},
    f"{V1}/proxies/*/snippets": {"GET": "proxy.read"},
    f"{V1}/proxies/*/upstreams": {"GET": "proxy.read"},
    f"{V1}/dns/cache": {"GET": "settings.read", "DELETE": "proxy.write"},
    f"{V1}/connections": {"GET": "proxy.read", "DELETE": "proxy.write"},
    f"{V1}/proxies/*/connections": {"GET": "proxy.read", "DELETE": "proxy.write"},
    f"{V1}/proxies/*/connections/*": {"DELETE": "proxy.write"},
    f"{V1}/proxies/*/accounts": {"GET": "proxy.read", "POST": "proxy.write"},
    f"{V1}/proxies/*/accounts/*": {
        "GET": "proxy.read",
        "PUT": "proxy.write",
        "PATCH": "proxy.write",
        "DELETE": "proxy.write",
    },
    f"{V1}/proxies/*/accounts/*/reset-usage": {"POST": "proxy.write"},
    f"{V1}/accounts": {"GET": "proxy.read", "POST": "proxy.write"},
    f"{V1}/accounts/*": {"GET": "proxy.read", "PUT": "proxy.write", "PATCH": "proxy.write", "DELETE": "proxy.delete"},
    f"{V1}/accounts/*/reset-usage": {"POST": "proxy.write"},
    f"{V1}/plans": {"GET": "proxy.read", "POST": "proxy.write"},
    f"{V1}/plans/*": {"GET": "proxy.read", "PUT": "proxy.write", "PATCH": "proxy.write", "DELETE": "proxy.delete"},
    f"{V1}/lists": {"GET": "proxy.read", "POST": "proxy.write"},
    f"{V1}/lists/*": {"GET": "proxy.read", "PUT": "proxy.write", "PATCH": "proxy.write", "DELETE": "proxy.delete"},
    f"{V1}/pools": {"GET": "proxy.read", "POST": "proxy.write"},
    f"{V1}/pools/*": {"GET": "proxy.read", "PUT": "proxy.write", "PATCH": "proxy.write", "DELETE": "proxy.delete"},
    f"{V1}/policies": {"GET": "proxy.read", "POST": "proxy.write"},
    f"{V1}/policies/*": {"GET": "proxy.read", "PUT": "proxy.write", "PATCH": "proxy.write", "DELETE": "proxy.delete"},
    f"{V1}/lists/*/check": {"GET": "proxy.read"},
    f"{V1}/lists/*/refresh": {"POST": "proxy.write"},
    f"{V1}/pools/*/refresh": {"POST": "proxy.write"},
    f"{V1}/pools/*/check": {"POST": "proxy.write"},
    f"{V1}/pools/*/upstreams/*/report": {"POST": "proxy.write"},
    f"{V1}/me/login": {"POST": OPEN},
    f"{V1}/me/resume": {"POST": SESSION},
    f"{V1}/me/logout": {"POST": HOLDER},
    f"{V1}/me": {"GET": HOLDER, "PATCH": HOLDER},
    f"{V1}/me/usage": {"GET": HOLDER},
    f"{V1}/me/connections": {"GET": HOLDER},
    f"{V1}/me/credentials": {"GET": HOLDER, "POST": HOLDER},
    f"{V1}/me/credentials/*": {"DELETE": HOLDER},
    f"{V1}/me/snippets": {"GET": HOLDER},
    f"{V1}/accounts/batch": {"POST": "proxy.write"},
    f"{V1}/accounts/import": {"POST": "proxy.write"},
    f"{V1}/accounts/*/credentials": {"GET": "proxy.read", "POST": "proxy.write"},
    f"{V1}/accounts/*/credentials/*": {"GET": "proxy.read", "DELETE": "proxy.write"},
    f"{V1}/accounts/*/credentials/*/refusals": {"GET": "metrics.read"},
    f"{V1}/accounts/*/snippets": {"GET": "proxy.read"},
    f"{V1}/users": {"GET": "users.read", "POST": "users.write"},
    f"{V1}/users/*": {"GET": "users.read", "PUT": "users.write", "PATCH": "users.write", "DELETE": "users.delete"},
    f"{V1}/users/*/sessions": {"GET": "admin"},
    f"{V1}/users/*/sessions/*": {"DELETE": "admin"},
    f"{V1}/logs": {"GET": "metrics.read"},
    f"{V1}/logs/tail": {"GET": "metrics.read"},
    f"{V1}/logs/histogram": {"GET": "metrics.read"},
    f"{V1}/logs/values": {"GET": "metrics.read"},
    f"{V1}/logs/facets": {"GET": "metrics.read"},
    f"{V1}/logs/export": {"GET": "metrics.read"},
    f"{V1}/metrics": {"GET": "metrics.read"},
    f"{V1}/metrics/realtime": {"GET": "metrics.read"},
    f"{V1}/usage": {"GET": "metrics.read"},
    f"{V1}/settings": {"GET": "settings.read", "PUT": "settings.write", "PATCH": "settings.write"},
    f"{V1}/settings/sources": {"GET": "settings.read"},
    f"{V1}/settings/*": {"DELETE": "settings.write"},
    f"{V1}/webhooks": {"GET": "settings.read", "POST": "settings.write"},
    f"{V1}/webhooks/*": {
        "GET": "settings.read",
        "PUT": "settings.write",
        "PATCH": "settings.write",
        "DELETE": "settings.write",
    },
    f"{V1}/webhooks/*/test": {"POST": "settings.write"},
    f"{V1}/webhooks/*/rotate-secret": {"POST": "settings.write"},
    f"{V1}/webhooks/*/deliveries": {"GET": "settings.read"},
    f"{V1}/webhooks/*/deliveries/*/redeliver": {"POST": "settings.write"},
    f"{V1}/audit": {"GET": "admin"},
    f"{V1}/audit/verify": {"GET": "admin"},
    f"{V1}/roles": {"GET": "users.read"},
    f"{V1}/revisions": {"GET": "admin"},
    f"{V1}/revisions/*": {"GET": "admin"},
    f"{V1}/revisions/*...*": {"GET": "admin"},
    f"{V1}/revisions/*/objects/*": {"GET": "admin"},
    f"{V1}/revisions/*/restore": {"POST": "admin"},
    f"{V1}/revisions/*/undo": {"POST": "admin"},
    f"{V1}/lost-changes/*/reapply": {"POST": "admin"},
    f"{V1}/config/export": {"GET": "admin"},
    f"{V1}/config/import": {"POST": "admin"},
    f"{V1}/openapi.json": {"GET": OPEN},
    f"{V1}/docs": {"GET": OPEN},
    f"{V1}/docs/*": {"GET": OPEN},
}
"""Path and method → what the contract asks for."""

EVERYTHING = frozenset(
    (
        *("proxy.read", "proxy.write", "proxy.delete", "metrics.read", "users.read", "users.write", "users.delete"),
        *("settings.read", "settings.write", "admin"),
    )
)
ROLES = {
    "administrator": EVERYTHING,
    "operator": frozenset(("proxy.read", "proxy.write", "proxy.delete", "metrics.read", "settings.read")),
    "user": frozenset(("proxy.read", "metrics.read")),
    "auditor": frozenset(("proxy.read", "metrics.read", "users.read", "settings.read")),
}
AUDITORS_ALSO = (
    f"{V1}/audit",
    f"{V1}/audit/verify",
    *(f"{V1}/revisions{each}" for each in ("", "/*", "/*...*", "/*/objects/*")),
)
ABOUT_THEIR_PROXIES = {
    ("proxy.read", f"{V1}/proxies"),
    ("proxy.read", "/proxy.pac"),
    ("proxy.read", f"{V1}/connections"),
    ("proxy.read", f"{V1}/flow"),
    ("proxy.write", f"{V1}/connections"),
    *(("metrics.read", f"{V1}/{path}") for path in ("logs", "logs/tail", "logs/export", "metrics", "metrics/realtime")),
    *(("metrics.read", f"{V1}/logs/{name}") for name in ("histogram", "values", "facets")),
    ("metrics.read", f"{V1}/usage"),
    ("metrics.read", "/metrics"),
    (ANYBODY, f"{V1}/health"),
    (ANYBODY, f"{V1}/overview"),
    (ANYBODY, f"{V1}/search"),
    (ANYBODY, f"{V1}/auth/test"),
    (ANYBODY, f"{V1}/version"),
}
"""What a key of some proxies may ask beside those proxies themselves, which these requests don't name."""
OF_ACCOUNTS = frozenset(
    (
        f"{V1}/accounts/{{account_id}}/credentials",
        f"{V1}/accounts/{{account_id}}/credentials/{{credential_id}}",
        f"{V1}/accounts/{{account_id}}/credentials/{{credential_id}}/refusals",
        f"{V1}/accounts/{{account_id}}/snippets",
    )
)
"""All that a key of some accounts may ask, for these accounts."""
BEYOND_SCOPES = frozenset(("users.write", "users.delete", "settings.write", "admin"))

Refusal = tuple[int, str] | None
"""Status and code; None: gets in."""


@dataclass(frozen=True)
class Kind:
    """A kind of caller: how one comes to be, and what becomes of a request that needs `required` at `path`."""

    headers: Callable[[Api], dict[str, str]]
    fate: Callable[[str, str], Refusal]


def person(has: frozenset[str], may_audit: bool = False, bearer: bool = True) -> Callable[[str, str], Refusal]:
    def fate(required: str, path: str) -> Refusal:
        if required == HOLDER:
            return 403, "FORBIDDEN"
        if required == TOKEN:
            return None if bearer else (401, "UNAUTHORIZED")
        if required in (ANYBODY, PERSON) or required in has or (may_audit and starred(path) in AUDITORS_ALSO):
            return None
        return 403, "FORBIDDEN"

    return fate


def key(has: frozenset[str], scoped: bool = False, proxies: bool = False) -> Callable[[str, str], Refusal]:
    def fate(required: str, path: str) -> Refusal:
        if required == HOLDER:
            return 403, "FORBIDDEN"
        if required == TOKEN:
            return 401, "UNAUTHORIZED"
        if required == PERSON:
            return 403, "FORBIDDEN"
        if required != ANYBODY and required not in has:
            return 403, "INSUFFICIENT_PERMISSIONS"
        beyond = scoped and required in BEYOND_SCOPES
        not_theirs = proxies and (required, path) not in ABOUT_THEIR_PROXIES
        return (403, "FORBIDDEN") if beyond or not_theirs else None

    return fate


def key_of_accounts(has: frozenset[str], theirs: bool = True) -> Callable[[str, str], Refusal]:
    def fate(required: str, path: str) -> Refusal:
        if required == TOKEN:
            return 401, "UNAUTHORIZED"
        if path in OF_ACCOUNTS:
            return None if theirs else (403, "FORBIDDEN")
        lacking = required not in (ANYBODY, PERSON, HOLDER) and required not in has
        return 403, "INSUFFICIENT_PERMISSIONS" if lacking else "FORBIDDEN"

    return fate


def always(status: int, code: str) -> Callable[[str, str], Refusal]:
    return lambda _required, _path: (status, code)


# --- how callers come to be ---------------------------------------------------------------------------------------


def user(**fields: Any) -> Callable[[Api], dict[str, str]]:
    def make(api: Api) -> dict[str, str]:
        api.add_user("someuser", **fields)
        return api.token("someuser")

    return make


def api_key(**fields: Any) -> Callable[[Api], dict[str, str]]:
    return lambda api: api.key(**fields)


def basic(api: Api) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"admin:{PASSWORD}".encode()).decode()}


def expired_token(api: Api) -> dict[str, str]:
    tokens = api.services.tokens
    clock, tokens._clock = tokens._clock, lambda: 1_700_000_000.0
    try:
        return api.token()
    finally:
        tokens._clock = clock


def revoked_token(api: Api) -> dict[str, str]:
    headers = api.token()
    assert api.post("/auth/logout", headers=headers).status_code == 200
    return headers


def revoked_key(api: Api) -> dict[str, str]:
    headers, admin = api.key(), api.token()
    identifier = api.get("/api-keys", admin).json["data"]["api_keys"][0]["id"]
    assert api.request("DELETE", f"/api-keys/{identifier}", admin).status_code == 200
    return headers


def expired_key(api: Api) -> dict[str, str]:
    headers = api.key()
    (document,) = api.store.find("api_keys")
    api.store.put("api_keys", {**document.body, "expires_at": 1_700_000_000.0})
    return headers


def account_key(account_id: str, **fields: Any) -> Callable[[Api], dict[str, str]]:
    """Of an account that is deleted since."""

    def make(api: Api) -> dict[str, str]:
        record = FleetAccount(id=account_id, username="someone", created_at=0.0, updated_at=0.0)
        api.engine.commit([Write("accounts", record.id, record.model_dump(mode="json"))])
        headers = api.key(scope={"accounts": [account_id]}, **fields)
        api.engine.commit([Write("accounts", account_id, None)])
        return headers

    return make


def key_of_a_demoted_owner(api: Api) -> dict[str, str]:
    owner = api.add_user("owner", role="administrator")
    headers = api.key("owner", permissions=["*"])
    assert api.patch(f"/users/{owner.id}", {"role": "user"}, api.token()).status_code == 200
    return headers


def token_of_no_one(change: str) -> Callable[[Api], dict[str, str]]:
    """Of an administrator who is disabled or deleted since."""

    def make(api: Api) -> dict[str, str]:
        user = api.add_user("someuser", role="administrator")
        headers, path = api.token("someuser"), f"/users/{user.id}"
        admin = api.token()
        done = (
            api.patch(path, {"status": "disabled"}, admin)
            if change == "disabled"
            else api.request("DELETE", path, admin)
        )
        assert done.status_code == 200
        return headers

    return make


def orphaned_key(api: Api) -> dict[str, str]:
    owner = api.add_user("owner", role="administrator")
    headers = api.key("owner")
    assert api.patch(f"/users/{owner.id}", {"status": "disabled"}, api.token()).status_code == 200
    return headers


KINDS: dict[str, Kind] = {
    **{name: Kind(user(role=name), person(has, name in ("administrator", "auditor"))) for name, has in ROLES.items()},
    **{
        f"only {name}": Kind(user(permissions=[name]), person(EVERYTHING if name == "admin" else frozenset((name,))))
        for name in sorted(EVERYTHING)
    },
    "nothing at all permitted": Kind(user(permissions=[]), person(frozenset())),
    "basic": Kind(basic, person(EVERYTHING, bearer=False)),
    "key": Kind(api_key(), key(EVERYTHING)),
    "key to read": Kind(api_key(permissions=["proxy.read"]), key(frozenset(("proxy.read",)))),
    "key of one proxy": Kind(api_key(scope={"proxies": ["prx_1"]}), key(EVERYTHING, scoped=True, proxies=True)),
    "key of one account": Kind(account_key("nothing"), key_of_accounts(EVERYTHING)),
    "key of one account that may only write": Kind(
        account_key("nothing", permissions=["proxy.write"]),
        key_of_accounts(frozenset(("proxy.write",))),
    ),
    "key of another account": Kind(account_key("acc_1"), key_of_accounts(EVERYTHING, theirs=False)),
    "key in its network": Kind(api_key(scope={"ip_whitelist": ["127.0.0.0/8"]}), key(EVERYTHING, scoped=True)),
    "key elsewhere": Kind(api_key(scope={"ip_whitelist": ["192.0.2.0/24"]}), always(403, "FORBIDDEN")),
    "expired token": Kind(expired_token, always(401, "TOKEN_EXPIRED")),
    "revoked token": Kind(revoked_token, always(401, "UNAUTHORIZED")),
    "forged token": Kind(lambda _: {"Authorization": "Bearer e30.e30.e30"}, always(401, "UNAUTHORIZED")),
    "key as a bearer": Kind(
        lambda api: {"Authorization": f"Bearer {api.key()['X-API-Key']}"}, always(401, "UNAUTHORIZED")
    ),
    "token of a disabled user": Kind(token_of_no_one("disabled"), always(401, "UNAUTHORIZED")),
    "token of a deleted user": Kind(token_of_no_one("deleted"), always(401, "UNAUTHORIZED")),
    "key of a demoted owner": Kind(key_of_a_demoted_owner, key(ROLES["user"])),
    "expired key": Kind(expired_key, always(401, "INVALID_API_KEY")),
    "revoked key": Kind(revoked_key, always(401, "INVALID_API_KEY")),
    "key of a disabled owner": Kind(orphaned_key, always(401, "INVALID_API_KEY")),
    "unknown": Kind(lambda _: {}, always(401, "UNAUTHORIZED")),
}


def starred(path: str) -> str:
    return re.sub(r"\{[a-z_]+\}", "*", path)


def required_by(operation: Operation) -> str:
    return REQUIRED[starred(operation.path)][operation.method]


def self_serving() -> Api:
    return Api(ApiSettings(security=QUIET, proxy=INTRANET, accounts=AccountSettings(self_service=True)))


@pytest.fixture
def callers() -> Iterator[Api]:
    with closing(self_serving()) as made:
        yield made


def test_the_contract_knows_every_operation() -> None:
    unknown = [each.id for each in OPERATIONS if each.method not in REQUIRED.get(starred(each.path), {})]
    assert unknown == []


def test_every_method_that_a_path_doesn_t_have_is_405_without_asking_who_it_is(callers: Api) -> None:
    for path in {each.path for each in OPERATIONS}:
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            if not any((each.path, each.method) == (path, method) for each in OPERATIONS):
                response = callers.client.simulate_request(method, re.sub(r"\{[a-z_]+\}", "nothing", path))
                assert error_of(response)[:2] == (405, "INVALID_REQUEST"), (method, path)


@table("kind", KINDS)
def test_a_caller_gets_into_what_is_theirs_and_into_nothing_else(kind: str) -> None:
    with closing(self_serving()) as api:
        assert refused_otherwise(api, KINDS[kind]) == []


def refused_otherwise(api: Api, caller: Kind) -> list[tuple[str, Refusal, Refusal]]:
    """Each operation that does not refuse the caller as the contract says, with what it does and what it should do."""
    headers = caller.headers(api)
    wrong = []
    for operation in sorted(OPERATIONS, key=lambda each: each.id == "logout"):  # which comes last, since it is the end
        required = required_by(operation)
        without_cookie = (401, "UNAUTHORIZED") if required == SESSION else None
        expected = without_cookie if required in (OPEN, SESSION) else caller.fate(required, operation.path)
        found = outcome(api.client.simulate_request(operation.method, path_of(operation), headers=headers))
        if found != expected:
            wrong.append((operation.id, found, expected))
    return wrong


def test_a_key_gets_into_the_proxy_of_its_scope_and_sees_no_other(callers: Api) -> None:
    admin = callers.token()
    made = [callers.post("/proxies", proxy, admin).json["data"]["proxy"]["id"] for proxy in proxies()]
    headers = callers.key(scope={"proxies": made[:1]})
    assert callers.get(f"/proxies/{made[0]}", headers).status_code == 200
    assert error_of(callers.get(f"/proxies/{made[1]}", headers))[:2] == (403, "FORBIDDEN")
    for operation in OPERATIONS:
        if "{proxy_id}" in operation.path and operation.method != "DELETE":
            path = re.sub(r"\{[a-z_]+\}", "nothing", operation.path.replace("{proxy_id}", made[0]))
            assert outcome(callers.client.simulate_request(operation.method, path, headers=headers)) is None, path
    assert [each["id"] for each in callers.get("/proxies", headers).json["data"]["proxies"]] == made[:1]


def proxies() -> list[dict[str, Any]]:
    return [{"name": f"p{number}", "port": 3128 + number, "protocol": "http"} for number in range(2)]


def path_of(operation: Operation) -> str:
    return re.sub(r"\{[a-z_]+\}", "nothing", operation.path)


def outcome(result: Result) -> Refusal:
    if result.status_code not in (401, 403):
        return None
    status, code, details = error_of(result)
    assert status != 403 or details.keys() & {"required_permission", "reason"}
    return status, code
