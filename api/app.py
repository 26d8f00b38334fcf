"""The WSGI application: the table of operations as routes of Falcon, and one handler for all errors.

`api.middleware` is what happens around every request, `api.operations.responder` what happens in one.
"""

from __future__ import annotations

import errno
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import falcon

from actors.log_lines import ThrottledLog
from api.container import Services
from api.errors import NotFound, NotReady
from api.http.body import BodyAwaited
from api.http.error_table import BEARER, INVALID_REQUEST, ApiError, internal, translated
from api.http.request_site import is_by_script
from api.middleware import RequestMiddleware
from api.openapi.description import describe
from api.operations import TABLE
from api.operations.responder import Responder, write_json
from api.store import LedgerError
from api.ui.page import add_dashboard

log = logging.getLogger(__name__)

OPERATIONS = (*TABLE, *describe(TABLE))
UNLIMITED_PATHS = frozenset(each.path for each in OPERATIONS if each.unlimited)
PATHS_OF_EDGES = UNLIMITED_PATHS | {each.path for each in OPERATIONS if each.prometheus_token}
"""What an edge node of a fleet responds to."""
SCARCE = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS))
"""Errors of a process that is out of resources: no bugs."""


ANY_NAME = "{upstream}"
"""A parameter that may have slashes, encoded by the client: servers decode them before a route is chosen. An upstream
without a name of its own has its URL for one."""


def create_app(services: Services) -> falcon.App[Any, Any]:
    """The routes of all operations; HEAD is GET without the body."""
    app: falcon.App[Any, Any] = falcon.App(middleware=[RequestMiddleware(services, UNLIMITED_PATHS, PATHS_OF_EDGES)])
    app.req_options.auto_parse_qs_csv = False
    app.req_options.keep_blank_qs_values = True
    responders: dict[str, dict[str, Any]] = defaultdict(dict)
    for each in OPERATIONS:
        responders[each.path][f"on_{each.method.lower()}"] = Responder(services, each)
        if each.method == "GET":
            responders[each.path]["on_head"] = responders[each.path]["on_get"]
    for path, by_method in responders.items():
        app.add_route(path, type("Resource", (), {name: staticmethod(each) for name, each in by_method.items()})())
    for path, target in REDIRECTS.items():
        app.add_route(path, (RootRedirect if path == "/" else Redirect)(target))
    app.add_sink(_unknown_path, "/")
    for path, by_method in responders.items():
        if ANY_NAME in path:
            app.add_sink(_sink(by_method), _any_name(path))
    add_dashboard(app)
    outage = ThrottledLog(log, "changes are refused while the fleet's database can't be used")

    def on_error(req: falcon.Request, resp: falcon.Response, error: Exception, _params: Any) -> None:
        _on_error(req, resp, error, outage)

    for kind in (Exception, falcon.HTTPError):  # Falcon has handlers of its own for both
        app.add_error_handler(kind, on_error)
    app.add_error_handler(BodyAwaited, _on_body_awaited)
    return app


def _any_name(path: str) -> re.Pattern[str]:
    """Matches what Falcon's routes don't: paths with slashes in `ANY_NAME`."""
    parts = re.split(r"\{(\w+)\}", path)
    groups = (f"(?P<{name}>{'.+' if name in ANY_NAME else '[^/]+'})" for name in parts[1::2])
    return re.compile(
        "".join(text for pair in zip(map(re.escape, parts[::2]), [*groups, r"\Z"], strict=True) for text in pair)
    )


def _sink(by_method: Mapping[str, Callable[..., None]]) -> Callable[..., None]:
    """Does what the route does."""

    def respond(req: falcon.Request, resp: falcon.Response, **params: str) -> None:
        responder = by_method.get(f"on_{req.method.lower()}")
        if responder is None:
            raise falcon.HTTPMethodNotAllowed([each.removeprefix("on_").upper() for each in by_method])
        responder(req, resp, **params)

    return respond


def _unknown_path(req: falcon.Request, resp: falcon.Response, **_params: str) -> None:  # noqa: ARG001  # Falcon's names
    raise NotFound("The path")


def _on_body_awaited(_req: Any, resp: falcon.Response, _error: BodyAwaited, _params: Any) -> None:
    """Not sent: the server reads the body and calls the application again."""
    resp.status = falcon.HTTP_204


def _on_error(req: falcon.Request, resp: falcon.Response, error: Exception, outage: ThrottledLog) -> None:
    """The one handler: `api.http.error_table.TABLE` has the response to each error; an error without a row is a bug."""
    known = _of_falcon(req, error) if isinstance(error, falcon.HTTPError) else translated(error, req.context.request_id)
    response = known or internal(req.context.request_id)
    if isinstance(error, LedgerError):
        outage.error(error, logging.WARNING, key="")
    elif response.status >= 500 and not isinstance(error, NotReady):
        scarce = isinstance(error, OSError) and error.errno in SCARCE  # may occur anywhere, so a traceback is of no use
        bug = error if known is None and not scarce else None
        log.error("request %s: %s %s failed: %s", req.context.request_id, req.method, req.path, error, exc_info=bug)
    for name, value in response.headers.items():
        resp.set_header(name, value)
    if response.status == 401 and is_by_script(req.get_header("Sec-Fetch-Mode"), req.get_header("Origin")):
        resp.set_header("WWW-Authenticate", BEARER)
    resp.status = response.status
    write_json(resp, response.envelope())


def _of_falcon(req: falcon.Request, error: falcon.HTTPError) -> ApiError:
    """Falcon's own errors: mainly 405, and 400 for what it can't parse."""
    status = int(str(error.status)[:3])
    code = {404: "NOT_FOUND"}.get(status, INVALID_REQUEST)
    text = error.description or error.title or "The request is not valid"
    if status == 405:
        text = f"{req.method} is not possible here; Allow names what is"
    headers = {name: value for name, value in dict(error.headers or {}).items() if name.lower() == "allow"}
    return ApiError(status, code, text, {"field": None, "error": text}, headers)


DASHBOARD = "/ui/"
REDIRECTS = {
    "/": "/api/v1/docs",
    "/docs": "/api/v1/docs",
    "/openapi.json": "/api/v1/openapi.json",
}


class Redirect:
    """A Falcon resource: 302 to `path`, which is also in the body, in the envelope of all responses."""

    def __init__(self, path: str) -> None:
        self._path = path

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Redirect."""
        path = self._target(req, resp)
        resp.status = falcon.HTTP_302
        resp.set_header("Location", path)
        resp.media = {"success": True, "data": {"location": path}}

    on_head = on_get

    def _target(self, _req: falcon.Request, _resp: falcon.Response) -> str:
        return self._path


class RootRedirect(Redirect):
    """The one of `/`: to the dashboard for clients that accept HTML by name, as browsers do."""

    def _target(self, req: falcon.Request, resp: falcon.Response) -> str:
        resp.set_header("Vary", "Accept")
        kinds = {part.partition(";")[0].strip().lower() for part in req.accept.split(",")}
        return DASHBOARD if "text/html" in kinds else self._path
