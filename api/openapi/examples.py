"""Examples for the description of the API: one body for each operation that takes one, one value for each form.

An answer's example is made from its form, with `VALUES` for what a field is called; so it can't be of an older form.
"""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

PROXY_ID = "prx_0123456789abcdef"
_CREATE = {
    "name": "office",
    "host": "127.0.0.1",
    "port": 3128,
    "protocol": "http",
    "auth": {"enabled": True, "username": "alice", "password": "correct horse"},
    "settings": {"timeout": 30, "keep_alive": True, "max_connections": 1000},
    "headers": {"via": "pseudonym"},
    "tags": ["office"],
}
_UPDATE = {"settings": {"timeout": 60}, "headers": {"via": "off"}, "tags": ["office", "berlin"]}
_SETTINGS = {"logging": {"level": "info"}, "proxy": {"default_timeout": 30}}
_ACCOUNT_UPDATE = {"enabled": False, "limits": {"connections": 10}}
_WEBHOOK = {
    "name": "alerts",
    "url": "https://hooks.example.com/proxyfleet",
    "events": ["proxy.*", "high_error_rate"],
    "headers": {"Authorization": "Bearer 0123456789abcdef"},
    "enabled": True,
}
_WEBHOOK_UPDATE = {"events": ["*"], "enabled": True}
_USER_UPDATE = {"email": "bob@example.com"}

BODIES: dict[str, dict[str, Any]] = {
    "login": {"username": "admin", "password": "correct horse battery"},
    "refreshToken": {"refresh_token": "rt_0123456789abcdef"},
    "finishOAuth2": {"code": "SplxlOBeZQQYbYS6WxSbIA", "state": "Sxd6Gf0-xJ6Yb2wzkC9b0i_qGdY0eY2c7mWlL1pVv2s"},
    "rotateSigningKey": {"revoke_previous": False},
    "rotateApiKey": {"grace": 3600},
    "createApiKey": {"name": "deploy", "permissions": ["proxy.read"], "expires_at": "2030-01-01T00:00:00Z"},
    "createProxy": _CREATE,
    "replaceProxy": _UPDATE,
    "updateProxy": _UPDATE,
    "testProxy": {"url": "https://example.com/", "timeout": 10},
    "explainAccess": {"client_ip": "192.0.2.7", "target": "https://example.com/", "user": "alice"},
    "createAccount": {
        "username": "alice",
        "password": "correct horse",
        "limits": {"bandwidth_out": 1_000_000},
        "quota": {"bytes": 10_000_000_000, "period": "month"},
        "expires_at": "2030-01-01T00:00:00Z",
    },
    "replaceAccount": _ACCOUNT_UPDATE,
    "updateAccount": _ACCOUNT_UPDATE,
    "createUser": {
        "username": "bob",
        "email": "bob@example.com",
        "password": "correct horse battery",
        "role": "operator",
    },
    "replaceSettings": _SETTINGS,
    "updateSettings": _SETTINGS,
    "createWebhook": _WEBHOOK,
    "replaceWebhook": _WEBHOOK_UPDATE,
    "updateWebhook": _WEBHOOK_UPDATE,
    "importConfig": {
        "kind": "proxyfleet.config",
        "version": 1,
        "proxies": [{**_CREATE, "status": "active"}],
        "users": [{"username": "bob", "role": "operator", "password": "correct horse battery"}],
        "settings": _SETTINGS,
    },
    "replaceUser": _USER_UPDATE,
    "updateUser": _USER_UPDATE,
}
"""Bodies that are accepted, by operation."""

VALUES: dict[str, Any] = {
    "access_token": "eyJhbGciOiJIUzI1NiJ9.e30.c2lnbmF0dXJl",
    "address": "198.51.100.1",
    "age": 12.5,
    "authorization_url": "https://accounts.example.com/authorize?response_type=code&client_id=proxyfleet&state=Sxd6Gf0",
    "bytes_in": 5120,
    "bytes_out": 1048576,
    "client": "192.0.2.7",
    "client_ip": "192.0.2.7",
    "connections": 1,
    "duration": 120,
    "email": "bob@example.com",
    "events": ["proxy.*", "high_error_rate"],
    "expires_in": 3600,
    "external_ip": "198.51.100.1",
    "parent": None,
    "headers": {"Authorization": "Bearer 0123456789abcdef"},
    "host": "127.0.0.1",
    "id": PROXY_ID,
    "key": "pf_" + "0" * 40,
    "key_id": "key_0123456789abcdef",
    "load_average": [0.5, 0.4, 0.3],
    "max_connections": 1000,
    "message": "Done",
    "method": "GET",
    "after": {"status": "inactive"},
    "before": {"status": "active"},
    "hash": "0" * 64,
    "name": "office",
    "oauth_provider": "google",
    "page": 1,
    "pages": 1,
    "per_page": 50,
    "permissions": ["proxy.read"],
    "pid": 4711,
    "port": 3128,
    "prefix": "pf_01234567",
    "proxy_id": PROXY_ID,
    "proxy_name": "office",
    "refresh_token": "rt_0123456789abcdef",
    "response_time": 42,
    "role": "operator",
    "status_code": 200,
    "tags": ["office"],
    "target": "example.com:443",
    "target_url": "http://example.com/",
    "timeout": 30,
    "total": 1,
    "uptime": "2d 4h 31m",
    "uptime_seconds": 189060,
    "usage": "41.5%",
    "user": "alice",
    "user_id": "usr_0123456789abcdef",
    "username": "bob",
    "version": "1.0.0",
}
"""What a field of that name may hold, wherever its type lets it."""

_PLAIN: dict[Any, Any] = {str: "text", int: 1, float: 1.5, bool: True, type(None): None, Any: "anything"}


def example_of(form: Any, name: str = "") -> Any:
    """A value of a form, or of any type that forms are made of."""
    if isinstance(form, type) and issubclass(form, BaseModel):
        return {key: _of_field(field, key) for key, field in form.model_fields.items()}
    origin, arguments = get_origin(form), get_args(form)
    if origin is Annotated:
        return example_of(arguments[0], name)
    if origin is Literal:
        return arguments[0]
    if origin in (Union, types.UnionType):
        return example_of(next(each for each in arguments if each is not type(None)), name)
    return _of_type(form, origin, arguments, name)


def _of_field(field: Any, name: str) -> Any:
    extra = field.json_schema_extra
    if isinstance(extra, dict) and extra.get("format") == "date-time":
        return "2026-01-31T12:00:00Z"
    if name.endswith("_at") or name in ("last_login", "last_used", "last_request", "timestamp", "since"):
        return "2026-01-31T12:00:00Z"
    return example_of(field.annotation, name)


def _of_type(form: Any, origin: Any, arguments: tuple[Any, ...], name: str) -> Any:
    value = VALUES.get(name)
    if origin is list:
        return value if isinstance(value, list) else [example_of(arguments[0], name)]
    if origin is dict:
        return value if isinstance(value, dict) else {name or "name": example_of(arguments[1])}
    if form is not Any and value is not None and isinstance(value, (int, float) if form is float else form):
        return value
    return _PLAIN[form]
