"""The WSGI application: the table of operations as Falcon routes, and what holds for every request.

In this order: what `api.middleware` does around every request; then, in the operation,
authentication, permission, scope, validation and existence (401 before 403 before 400 before 404).
"""

from __future__ import annotations

import errno
import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import falcon
from pydantic_core import to_json

from actors.net.client_key import client_key
from api.audit import origin, resource_named
from api.call import Call, Reply
from api.container import Services
from api.errors import (
    Denied,
    MissingPermission,
    NotFound,
    NotReady,
    StaleRevision,
    Unauthenticated,
)
from api.http.body import read_body, read_model
from api.http.body_limits import BodyAwaited
from api.http.environ import AFTER_RESPONSE
from api.http.errors import INVALID_REQUEST, ApiError, internal, invalid, translated
from api.http.idempotency import HEADER
from api.middleware import SAFE, RequestMiddleware
from api.openapi.routes import describe
from api.operations import BEARER, NONE, PERSON, TABLE, Operation
from api.resources.redirects import POINTERS, Pointer
from api.security.caller import Caller

log = logging.getLogger(__name__)

OPERATIONS = (*TABLE, *describe(TABLE))

SCARCE = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS))
"""What a process lacks, which is no mistake in a program."""
REPLAYED = {"Idempotency-Replayed": "true"}
UNLIMITED_PATHS = frozenset(operation.path for operation in OPERATIONS if operation.unlimited)


def create_app(services: Services) -> falcon.App[Any, Any]:
    """All of it: the routes of `api.operations`, the error table, ids, rates."""
    app: falcon.App[Any, Any] = falcon.App(middleware=[RequestMiddleware(services, UNLIMITED_PATHS)])
    app.req_options.auto_parse_qs_csv = False
    app.req_options.keep_blank_qs_values = True
    by_path: dict[str, list[Operation]] = defaultdict(list)
    for operation in OPERATIONS:
        by_path[operation.path].append(operation)
    for path, operations in by_path.items():
        app.add_route(path, _resource(services, operations))
    for path, target in POINTERS.items():
        app.add_route(path, Pointer(target))
    app.add_sink(_unknown_path, "/")
    _add_error_handlers(app)
    return app


# --- operations as Falcon resources -------------------------------------------------------------------------------


def _resource(services: Services, operations: list[Operation]) -> object:
    """An object with one `on_<method>` for each operation of a path; HEAD is what GET is, without the body."""
    responders = {f"on_{each.method.lower()}": _responder(services, each) for each in operations}
    if "on_get" in responders:
        responders["on_head"] = responders["on_get"]
    return type("Resource", (), {name: staticmethod(each) for name, each in responders.items()})()


def _responder(services: Services, operation: Operation) -> Any:
    def respond(req: falcon.Request, resp: falcon.Response, **params: str) -> None:
        req.context.origin.operation = operation.id
        try:
            carry_out(req, resp, params)
        except (Denied, MissingPermission) as error:
            caller = req.context.caller
            who = caller.user.id if caller else client_key(req.context.address)
            answer = translated(error, req.context.request_id)
            services.refused_actions.note(who, resource_named(services.store, params), answer.details if answer else {})
            raise

    def carry_out(req: falcon.Request, resp: falcon.Response, params: dict[str, str]) -> None:
        caller = _admitted(services, operation, req, params)
        _require_accepted(req, "*/*" if operation.redirects else operation.produces)
        call = Call(
            services=services,
            params=params,
            body=_body(operation, req),
            query=operation.query(req.params) if operation.query is not None else None,
            address=req.context.address,
            request_id=req.context.request_id,
            identified=caller,
            if_match_header=req.get_header("If-Match"),
            headers=req.headers_lower,
        )
        reply = _once(services, operation, call, req)
        if req.method in SAFE and reply.revision is not None and call.if_match not in (None, reply.revision):
            raise StaleRevision(reply.revision)  # what changes something looks before it does
        if reply.then is not None:
            req.env[AFTER_RESPONSE] = reply.then
        _answer(resp, reply)

    return respond


def _once(services: Services, operation: Operation, call: Call, req: falcon.Request) -> Reply:
    """Do it; or, when it was done for the same `Idempotency-Key`, say what was said then."""

    def do() -> Reply:
        reply = operation.handler(call)
        _put_on_record(services, operation, call.params, reply)
        return reply

    key = req.get_header(HEADER)
    if key is None or not operation.idempotency_key:
        return do()
    body = call.body.model_dump(mode="json", exclude_unset=True) if call.body else None
    request = [operation.id, call.params, req.params, body]
    following: list[Callable[[], None] | None] = [None]

    def plainly() -> dict[str, Any]:
        reply = do()
        following[0] = reply.then
        return reply.plain()

    answer, again = services.idempotency.once(call.caller.identity, key, request, plainly)
    reply = replace(Reply.of_plain(answer), then=following[0])
    return replace(reply, headers={**reply.headers, **REPLAYED}) if again else reply


def _admitted(services: Services, operation: Operation, req: falcon.Request, params: dict[str, str]) -> Caller | None:
    """The caller, if there is one or has to be one. Raises `Unauthenticated`, `Denied`, `MissingPermission`."""
    if _by_token(services, operation, req):
        return None
    if operation.public_if is not None and getattr(services.settings.security, operation.public_if):
        caller: Caller | None = req.context.caller
        return caller
    return _permitted(operation, req, params)


def _permitted(operation: Operation, req: falcon.Request, params: dict[str, str]) -> Caller | None:
    """The caller, if there has to be one. Raises `Unauthenticated`, `Denied`, `MissingPermission`."""
    if operation.access == NONE:
        return None
    caller: Caller | None = req.context.caller
    if caller is None:
        raise req.context.refusal or Unauthenticated()
    if operation.access == BEARER and caller.method != "bearer":
        raise Unauthenticated("A bearer token is required")
    if operation.access == PERSON and caller.key is not None:
        raise Denied("an API key can't make, list or revoke API keys")
    if operation.permission and not _may(operation, caller, params):
        raise MissingPermission(operation.access, by_key=caller.key is not None)
    if caller.key is not None and caller.key.scope is not None and operation.beyond_scope:
        raise Denied("a key with a scope can't do this: it would reach more than it has")
    if caller.scope is not None and not operation.within_scope:
        raise Denied("a key with a scope of proxies can only do what is about these proxies")
    named = [params.get("proxy_id"), req.params.get("proxy_id") if operation.names_proxy else None]
    if caller.scope is not None and any(isinstance(each, str) and each not in caller.scope for each in named):
        raise Denied("the proxy is not in the key's scope")
    return caller


def _by_token(services: Services, operation: Operation, req: falcon.Request) -> bool:
    """Whether `metrics.prometheus_token` opens this; a caller who is somebody needs no token."""
    scheme, _, token = (req.get_header("Authorization") or "").partition(" ")
    if not operation.prometheus_token or req.context.caller is not None or scheme.lower() != "bearer":
        return False
    return services.settings.is_prometheus_token(token.strip(" "))


def _put_on_record(services: Services, operation: Operation, params: dict[str, str], reply: Reply) -> None:
    """Actions that alter no document have a row, too; changes of documents had theirs before they were made."""
    acts = operation.method in ("POST", "DELETE") and operation.audit is not False
    if acts and not origin().rows and reply.data.get("changed") is not False:
        services.audit.append(operation.audit or operation.id, resource_named(services.store, params))


def _may(operation: Operation, caller: Caller, params: dict[str, str]) -> bool:
    allowed = operation.permission is None or caller.may(operation.permission)
    by_role = operation.role is not None and caller.acts_as(operation.role)
    return allowed or by_role or _is_own(operation, caller, params)


def _is_own(operation: Operation, caller: Caller, params: dict[str, str]) -> bool:
    """Whether this is about the caller's own account, in an operation where that is enough. A key isn't a person."""
    return operation.allows_self and caller.key is None and params.get("user_id") == caller.user.id


def _require_accepted(req: falcon.Request, media_type: str) -> None:
    if "*" not in media_type and not req.client_accepts(media_type):
        raise invalid("Accept", f"the answer is {media_type}", 406)


def _body(operation: Operation, req: falcon.Request) -> Any:
    if operation.body is not None:
        return read_model(req, operation.body, operation.read_only, operation.optional_body, operation.max_body)
    read_body(req, operation.max_body)  # unused, but the connection must come to the next request
    return None


def _answer(resp: falcon.Response, reply: Reply) -> None:
    if reply.revision is not None:
        resp.set_header("ETag", f'"{reply.revision}"')
    for name, value in reply.headers.items():
        resp.set_header(name, value)
    if reply.cookie is not None:
        resp.append_header("Set-Cookie", reply.cookie)
    if reply.document is None:
        _write(resp, reply.status, {"success": True, "data": reply.data})
    else:
        resp.status = reply.status
        content, resp.content_type = reply.document
        if isinstance(content, bytes):
            resp.data = content
        else:
            resp.stream = content


def _write(resp: falcon.Response, status: int, envelope: dict[str, Any]) -> None:
    resp.status = status
    resp.content_type = falcon.MEDIA_JSON
    resp.data = to_json(envelope)


def _unknown_path(req: falcon.Request, resp: falcon.Response, **_params: str) -> None:  # noqa: ARG001  # Falcon's names
    raise NotFound("The path")


# --- the error table ----------------------------------------------------------------------------------------------


def _add_error_handlers(app: falcon.App[Any, Any]) -> None:
    for kind in (Exception, falcon.HTTPError):  # Falcon has handlers of its own for both
        app.add_error_handler(kind, _on_error)
    app.add_error_handler(BodyAwaited, _on_body_awaited)


def _on_body_awaited(_req: Any, resp: falcon.Response, _error: BodyAwaited, _params: Any) -> None:
    """The server sends nothing of this: it reads the body and calls again."""
    resp.status = falcon.HTTP_204


def _on_error(req: falcon.Request, resp: falcon.Response, error: Exception, _params: Any) -> None:
    """The one handler: `api.http.errors.TABLE` says what each error is; what has no row is a bug."""
    known = _of_falcon(req, error) if isinstance(error, falcon.HTTPError) else translated(error, req.context.request_id)
    response = known or internal(req.context.request_id)
    if response.status >= 500 and not isinstance(error, NotReady):
        scarce = isinstance(error, OSError) and error.errno in SCARCE  # felt anywhere, so a traceback tells nothing
        bug = error if known is None and not scarce else None
        log.error("request %s: %s %s failed: %s", req.context.request_id, req.method, req.path, error, exc_info=bug)
    for name, value in response.headers.items():
        resp.set_header(name, value)
    _write(resp, response.status, response.envelope())


def _of_falcon(req: falcon.Request, error: falcon.HTTPError) -> ApiError:
    """Falcon's own: 405 above all, and 400 for what it can't parse itself."""
    status = int(str(error.status)[:3])
    code = {404: "NOT_FOUND"}.get(status, INVALID_REQUEST)
    text = error.description or error.title or "The request is not valid"
    if status == 405:
        text = f"{req.method} is not possible here; Allow names what is"
    headers = {name: value for name, value in dict(error.headers or {}).items() if name.lower() == "allow"}
    return ApiError(status, code, text, {"field": None, "error": text}, headers)
