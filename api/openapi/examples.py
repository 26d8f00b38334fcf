"""Examples of responses for the description of the API.

An example is made from the model of the response, with `VALUES` by the name of a field, so it always has its fields.
Bodies of requests have theirs in their models (`config.model.fields.example`).
"""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from api.engine.responses import ResponseModel, model_of

PROXY_ID = "prx_0123456789abcdef"

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
"""A value for fields of that name whose type accepts it."""

_PLAIN: dict[Any, Any] = {str: "text", int: 1, float: 1.5, bool: True, type(None): None, Any: "anything"}


def example_of(kind: Any, name: str = "") -> Any:
    """A value of a model, or of the type of a field."""
    if isinstance(kind, type) and issubclass(kind, ResponseModel):
        kind = model_of(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {field.alias or key: _of_field(field, key) for key, field in kind.model_fields.items()}
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return example_of(arguments[0], name)
    if origin is Literal:
        return arguments[0]
    if origin in (Union, types.UnionType):
        return example_of(next(each for each in arguments if each is not type(None)), name)
    return _of_type(kind, origin, arguments, name)


def _of_field(field: Any, name: str) -> Any:
    extra = field.json_schema_extra
    if isinstance(extra, dict) and extra.get("format") == "date-time":
        return "2026-01-31T12:00:00Z"
    if name.endswith("_at") or name in ("last_login", "last_used", "last_request", "timestamp", "since"):
        return "2026-01-31T12:00:00Z"
    return example_of(field.annotation, name)


def _of_type(kind: Any, origin: Any, arguments: tuple[Any, ...], name: str) -> Any:
    value = VALUES.get(name)
    if origin is list:
        return value if isinstance(value, list) else [example_of(arguments[0], name)]
    if origin is dict:
        return value if isinstance(value, dict) else {name or "name": example_of(arguments[1])}
    if kind is not Any and value is not None and isinstance(value, (int, float) if kind is float else kind):
        return value
    return _PLAIN[kind]
