"""The description of the API: operations and models as OpenAPI 3.1 (JSON Schema 2020-12), the failures that operations
have in common (the envelope, and one response for each status of the error table), and a page to read and try it.

The page is swagger-ui (Apache-2.0), as it is distributed; its version is in `api/openapi/page/VERSION`. It loads
nothing from other hosts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from api.call import Call, RawBody, Reply
from api.engine.operation import NONE, V1, Operation, get, resource
from api.engine.responses import model_of
from api.errors import NotFound
from api.http import session_cookie
from api.http.body import NDJSON
from api.http.query import Parameter
from api.openapi.examples import example_of
from config import VERSION
from config.model import fields
from config.model.events import EVENT_DATA
from config.model.fields import NULL

CODES: dict[int, tuple[str, tuple[str, ...]]] = {
    400: ("The request is not valid; `details` name the field and what is allowed", ("INVALID_REQUEST",)),
    401: ("Credentials are missing or not valid", ("UNAUTHORIZED", "INVALID_API_KEY", "TOKEN_EXPIRED")),
    403: ("The caller may not do this", ("FORBIDDEN", "INSUFFICIENT_PERMISSIONS")),
    404: ("There is no such resource", ("NOT_FOUND",)),
    406: ("The response is not available in an accepted media type", ("INVALID_REQUEST",)),
    409: (
        "This installation is no node of a fleet, or a node of it has a release without this",
        ("NOT_A_FLEET", "FLEET_LEVEL"),
    ),
    412: ("The resource has changed since the ETag in If-Match", ("INVALID_REQUEST",)),
    413: ("The body is larger than 1 MiB (8 MiB for an import)", ("INVALID_REQUEST",)),
    415: ("The body is not application/json", ("INVALID_REQUEST",)),
    421: (
        "An edge node of a fleet has no management API; `details` has the addresses of nodes that have it",
        ("NO_MANAGEMENT_API",),
    ),
    429: ("Too many requests; `Retry-After` is the number of seconds to wait", ("RATE_LIMITED",)),
    431: ("The head of the request is too large", ("INVALID_REQUEST",)),
    502: ("An external service does not respond as expected; try again", ("EXTERNAL_SERVICE_ERROR",)),
    503: (
        "The process behind this operation is starting, or a node of a fleet can't use its database or is behind the "
        "revision of the request; `Retry-After` is the number of seconds to wait",
        ("UNAVAILABLE", "DATABASE_UNAVAILABLE", "OUTCOME_UNKNOWN", "BEHIND"),
    ),
    500: ("The request failed; the log has the cause under the id of the request", ("INTERNAL_ERROR",)),
}
"""Status → its meaning and its codes."""

_DETAILS: dict[int, dict[str, Any]] = {
    403: {"required_permission": "proxy.write"},
    404: {},
    409: {},
    401: {},
    421: {"full_nodes": ["10.0.0.7:8080"]},
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


def error_responses() -> dict[str, Any]:
    """The components `responses`, by `name_of` the status."""
    return {name_of(status): _response(status) for status in CODES}


def name_of(status: int) -> str:
    """The component that describes this failure."""
    return f"Failure{status}"


def errors_of(operation: Operation) -> dict[str, Any]:
    """The failures that an operation may respond with."""
    return {str(status): {"$ref": f"#/components/responses/{name_of(status)}"} for status in _statuses(operation)}


def _statuses(operation: Operation) -> list[int]:
    statuses = {400, 406, 413, 431, 500, *operation.errors}
    if not operation.may_be_503:
        statuses.add(503)
    if not operation.unlimited:
        statuses |= {403, 429}  # any client may be rejected by its address
        if not operation.prometheus_token:
            statuses.add(421)
    if operation.access != "(none)" or operation.body is not None:
        statuses.add(401)  # a failed sign-in is 401, too
    if "{" in operation.path:
        statuses.add(404)
    if operation.if_match:
        statuses.add(412)
    if operation.method != "GET":
        statuses.add(409)  # where nodes have different releases
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


JSON = "application/json"
_PARAMETER = re.compile(r"\{([a-z_]+)\}")
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "From `POST /auth/login`"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "From `POST /api-keys`"},
    "basic": {"type": "http", "scheme": "basic", "description": "User name and password"},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": session_cookie.SECURE_NAME,
        "description": f'From `POST /auth/login` with `"session": "cookie"`; without TLS it is `{session_cookie.NAME}`',
    },
    "account": {"type": "http", "scheme": "bearer", "description": "From `POST /me/login`"},
}
_ANY_CREDENTIAL: list[dict[str, list[str]]] = [{"bearer": []}, {"apiKey": []}, {"basic": []}]
_CREDENTIALS: dict[str, list[dict[str, list[str]]]] = {
    "(none)": [],
    "(bearer)": [{"bearer": []}],
    "(person)": [{"bearer": []}, {"basic": []}],
    "(holder)": [{"account": []}],
}
_IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "description": "Execute the request only if the resource has this ETag; else the response is 412",
    "schema": {"type": "string"},
}
_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A request repeated with the same key within 24 hours is executed once and has the same response",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}
_IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "description": "Respond with 304 and no body if this is still the ETag",
    "schema": {"type": "string"},
}
_PASSPHRASE = {
    "name": "X-Passphrase",
    "in": "header",
    "description": "The passphrase that the secrets of the document are sealed with; UTF-8",
    "schema": {"type": "string", "minLength": 12, "maxLength": 1024},
}
_REQUEST_ID = {"X-Request-Id": {"description": "The request's id, as in the log", "schema": {"type": "string"}}}
_ETAG = {"ETag": {"description": "For If-Match, or If-None-Match", "schema": {"type": "string"}}}


def build(operations: Iterable[Operation]) -> dict[str, Any]:
    """The whole document. Raises `KeyError` for an operation whose body has no example."""
    table = tuple(operations)
    schemas = Schemas(
        (each.body for each in table if each.body is not None),
        (*(model_of(each.response) for each in table if each.response is not None), *EVENT_DATA.values()),
    )
    paths: dict[str, dict[str, Any]] = {}
    for operation in table:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Proxyfleet",
            "version": VERSION,
            "description": "Management of forward proxies: listeners, users, keys, settings, webhooks, metrics, logs.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(_tag(each) for each in table)],
        "paths": paths,
        "webhooks": {kind: {"post": _event(kind, schemas)} for kind in EVENT_DATA},
        "components": {"schemas": schemas.all, "responses": error_responses(), "securitySchemes": _SCHEMES},
        "security": _ANY_CREDENTIAL,
    }


def _event(kind: str, schemas: Schemas) -> dict[str, Any]:
    """The request to webhooks that are subscribed to this event."""
    payload = {
        "type": "object",
        "required": ["id", "type", "timestamp", "data"],
        "properties": {
            "id": {"type": "string", "description": "The same at every attempt"},
            "type": {"const": kind},
            "timestamp": {"type": "string", "format": "date-time"},
            "data": schemas.reference(EVENT_DATA[kind]),
        },
    }
    return {
        "summary": f"The event {kind}",
        "requestBody": {"required": True, "content": {JSON: {"schema": payload}}},
        "responses": {"2XX": {"description": "The event was received"}},
    }


def _operation(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "description": operation.description,
        "tags": [_tag(operation)],
        "parameters": [*_in_path(operation), *_in_query(operation), *_in_headers(operation)],
        "responses": {**_successes(operation, schemas), **errors_of(operation)},
        "security": _security(operation),
    }
    if operation.permission:
        described["description"] += f"\n\nRequired permission: `{operation.permission}`."
        described["x-permission"] = operation.permission
    if operation.body is not None:
        content = {"schema": schemas.reference(operation.body), "example": fields.example_of(operation.body)}
        contents: dict[str, Any] = {JSON: content}
        if operation.lines:
            contents[NDJSON] = {"schema": {"type": "string", "description": "A JSON object in each line"}}
        described["requestBody"] = {"required": not operation.optional_body, "content": contents}
    return described


def _security(operation: Operation) -> list[dict[str, list[str]]]:
    accepted = _CREDENTIALS.get(operation.access, _ANY_CREDENTIAL)
    return [*accepted, {"session": []}] if operation.session_cookie and accepted else accepted


def _in_headers(operation: Operation) -> list[dict[str, Any]]:
    wanted = (
        (_IF_MATCH, operation.if_match),
        (_IF_NONE_MATCH, operation.conditional),
        (_IDEMPOTENCY_KEY, operation.idempotency_key),
        (_PASSPHRASE, operation.passphrase),
    )
    return [header for header, honoured in wanted if honoured]


def _tag(operation: Operation) -> str:
    first = operation.path.removeprefix("/api/v1").strip("/").split("/")[0]
    return "health" if first in ("livez", "readyz", "status") else first


def _in_path(operation: Operation) -> list[dict[str, Any]]:
    schema = {"type": "string", "minLength": 1, "maxLength": 128}
    names = _PARAMETER.findall(operation.path)
    return [{"name": name, "in": "path", "required": True, "schema": schema} for name in names]


def _in_query(operation: Operation) -> list[dict[str, Any]]:
    declared = operation.query.parameters if operation.query is not None else {}
    return [_query_parameter(name, each) for name, each in declared.items()]


def _query_parameter(name: str, parameter: Parameter) -> dict[str, Any]:
    """`examples` of the schema (JSON Schema 2020-12, 9.5): the documentation page would send an `example`."""
    return {
        "name": name,
        "in": "query",
        "description": parameter.description,
        "required": False,
        "schema": {**parameter.schema, "examples": [parameter.example]},
    }


def _successes(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    responses = {str(operation.status): _success(operation, schemas)}
    if operation.conditional:
        responses["304"] = {"description": "The response is the same as the one with this ETag"}
    if operation.may_be_503:
        responses["503"] = {**_success(operation, schemas), "description": "The service is unhealthy"}
    if operation.redirects:
        location = {"Location": {"description": "The target of the redirect", "schema": {"type": "string"}}}
        success = responses[str(operation.status)]
        responses["302"] = {**success, "headers": {**success["headers"], **location}, "description": "A redirect"}
    return responses


def _success(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    if operation.response is None:
        schema = {"type": "object"} if operation.produces == JSON else {"type": "string"}
        return {"description": operation.summary, "content": {operation.produces: {"schema": schema}}}
    envelope = {
        "type": "object",
        "properties": {"success": {"const": True}, "data": schemas.reference(model_of(operation.response))},
        "required": ["success", "data"],
    }
    example = {"success": True, "data": example_of(operation.response)}
    return {
        "description": operation.summary,
        "headers": {**_REQUEST_ID, **(_ETAG if operation.if_match or operation.conditional else {})},
        "content": {JSON: {"schema": envelope, "example": example}, **_second_type(operation)},
    }


def _second_type(operation: Operation) -> dict[str, Any]:
    return {operation.also_produces: {"schema": {"type": "string"}}} if operation.also_produces else {}


_TEMPLATE = "#/components/schemas/{model}"

Mode = Literal["validation", "serialization"]


class _BodySchema(GenerateJsonSchema):
    """None stands for "not given" in the models of bodies, so only `NULLABLE` fields may be null or default to it."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        described = super().default_schema(schema)
        if described.get("default", NULL) is None and NULL not in described.get("anyOf", ()):
            del described["default"]
        return described


class Schemas:
    """Every schema that the document needs."""

    def __init__(self, bodies: Iterable[type[BaseModel]], responses: Iterable[type[BaseModel]]) -> None:
        self._references: dict[type[BaseModel], dict[str, Any]] = {}
        self.all: dict[str, Any] = {}
        self._add(bodies, "validation", _BodySchema)
        for schema in self._add(responses, "serialization", GenerateJsonSchema).values():
            schema.pop("additionalProperties", None)  # later versions may respond with more members

    def reference(self, model: type[BaseModel]) -> dict[str, Any]:
        """The `$ref` of a model."""
        return dict(self._references[model])

    def _add(
        self, models: Iterable[type[BaseModel]], mode: Mode, generator: type[GenerateJsonSchema]
    ) -> dict[str, Any]:
        wanted = sorted(set(models), key=lambda model: model.__name__)
        references, whole = models_json_schema(
            [(each, mode) for each in wanted], ref_template=_TEMPLATE, schema_generator=generator
        )
        made: dict[str, Any] = whole.get("$defs", {})
        for schema in made.values():
            schema.pop("examples", None)  # it stands with the operation
        clash = self.all.keys() & made.keys()
        if clash:
            raise ValueError(f"a body and a response have the same name: {', '.join(sorted(clash))}")
        self._references |= {model: references[model, mode] for model in wanted}
        self.all |= made
        return made


_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "start.js": "text/javascript; charset=utf-8",
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
}
_ONLY_FROM_HERE = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""swagger-ui sets styles of its own in the page; scripts come from here alone."""
_PAGE_HEADERS = {
    "Content-Security-Policy": _ONLY_FROM_HERE,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


def describe(table: Iterable[Operation]) -> tuple[Operation, ...]:
    """The operations that serve the description of `table` and of themselves."""

    @cache
    def content() -> bytes:
        return json.dumps(build((*table, *rows)), ensure_ascii=False, separators=(",", ":")).encode()

    def openapi(_call: Call) -> Reply:
        """Get the OpenAPI document.

        Returns this API as an OpenAPI 3.1 document, without the usual envelope. It needs no credentials.
        """
        return Reply({}, document=RawBody(content(), "application/json"))

    rows = resource(V1, read=NONE)(
        get("/openapi.json", "getOpenapi", openapi),
        get("/docs", "getDocs", page, produces="text/html"),
        get("/docs/{file}", "getDocsFile", page_file, produces="*/*"),
    )
    return rows


def page(_call: Call) -> Reply:
    """Show the documentation page.

    Shows the operations of this API in the browser and sends requests to them. The page loads nothing from other hosts.
    """
    return _file("index.html")


def page_file(call: Call) -> Reply:
    """Get a file of the documentation page.

    Returns a script or style sheet that the documentation page loads. It needs no credentials.
    """
    name = call.params["file"]
    if name not in _TYPES:
        raise NotFound("The file")
    return _file(name)


def _file(name: str) -> Reply:
    return Reply({}, headers=_PAGE_HEADERS, document=RawBody(_content(name), _TYPES[name]))


@cache
def _content(name: str) -> bytes:
    return (files("api.openapi") / "page" / name).read_bytes()
