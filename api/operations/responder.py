"""One operation as a responder of Falcon: from the request to a `Call`, from the `Reply` to the response.

In this order: authentication, permission, scope, validation, existence (401 before 403 before 400 before 404).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import falcon
from pydantic_core import to_json

from actors.net.client_key import client_key
from api.audit.context import origin
from api.call import Call, Document, Reply, RequestHeaders
from api.container import Services
from api.engine.operation import Operation
from api.errors import Denied, MissingPermission, StaleRevision
from api.http.body import Lines, has_lines, read_body, read_lines, read_model
from api.http.client import NO_SITE, SAFE, Site
from api.http.errors import invalid, translated
from api.http.idempotency import HEADER
from api.http.representation import IDENTITY, form_of, is_known
from api.operations.authorization import authorize

REPLAYED = {"Idempotency-Replayed": "true"}


class Responder:
    """Called by Falcon with a request, the response to fill in and the parameters of the path."""

    def __init__(self, services: Services, operation: Operation) -> None:
        self._services = services
        self._operation = operation

    def __call__(self, req: falcon.Request, resp: falcon.Response, **params: str) -> None:
        """Raises the errors of `api.http.errors.TABLE`."""
        req.context.origin.operation = self._operation.id
        try:
            call = self._call(req, params)
            reply = self._reply(call, req)
        except (Denied, MissingPermission) as error:
            self._note_refusal(error, req, params)
            raise
        if req.method in SAFE and reply.revision is not None and call.if_match not in (None, reply.revision):
            raise StaleRevision(reply.revision)  # operations that change something have compared it before
        self._respond(req, resp, reply)

    def _respond(self, req: falcon.Request, resp: falcon.Response, reply: Reply) -> None:
        resp.status = reply.status
        resp.set_headers(reply.headers)
        for cookie in reply.cookies:
            resp.append_header("Set-Cookie", cookie)
        envelope = {"success": True, "data": reply.data}
        content, media_type = reply.document or Document(to_json(envelope), falcon.MEDIA_JSON)
        if isinstance(content, bytes) and self._operation.conditional and reply.status == 200:
            self._represent(req, resp, content, media_type, reply.revision)
            return
        if reply.revision is not None:
            resp.set_header("ETag", f'"{reply.revision}"')
        resp.content_type = media_type
        if isinstance(content, bytes):
            resp.data = content
        else:
            resp.stream = content

    def _represent(
        self, req: falcon.Request, resp: falcon.Response, content: bytes, media_type: str, revision: int | None
    ) -> None:
        """Send the content in the form that the client prefers, unless it has that already."""
        may_pack = self._operation.compresses
        if may_pack:
            resp.append_header("Vary", "Accept-Encoding")
        form = form_of(content, revision, req.get_header("Accept-Encoding") if may_pack else None)
        resp.set_header("ETag", form.etag)
        if is_known(req.get_header("If-None-Match"), form.etag):
            resp.status = falcon.HTTP_304
            return
        if form.encoding != IDENTITY:
            resp.set_header("Content-Encoding", form.encoding)
        resp.content_type, resp.data = media_type, form.made()

    def _call(self, req: falcon.Request, params: dict[str, str]) -> Call:
        operation = self._operation
        caller = authorize(self._services, operation, req, params)
        media_type = "*/*" if operation.redirects else operation.produces
        accepted = req.client_accepts(media_type) or (
            operation.also_produces and req.client_accepts(operation.also_produces)
        )
        if "*" not in media_type and not accepted:
            raise invalid("Accept", f"the response is {media_type}", 406)
        return Call(
            services=self._services,
            params=params,
            body=self._body(req),
            query=operation.query(req.params) if operation.query is not None else None,
            address=req.context.address,
            request_id=req.context.request_id,
            identified=caller,
            identified_holder=req.context.holder,
            if_match_header=req.get_header("If-Match"),
            headers=RequestHeaders(lambda: req.headers_lower),
            site=self._site(req) if operation.session_cookie else NO_SITE,
        )

    def _site(self, req: falcon.Request) -> Site:
        trusted = self._services.settings.server.trusted_proxies
        return Site.of(req.env["wsgi.url_scheme"], req.remote_addr, req.headers_lower, trusted)

    def _body(self, req: falcon.Request) -> Any:
        operation = self._operation
        if operation.lines and has_lines(req):
            return read_lines(req)
        if operation.body is not None:
            return read_model(req, operation.body, operation.read_only, operation.optional_body, operation.max_body)
        read_body(req, operation.max_body)  # unused, but the next request of the connection follows it
        return None

    def _reply(self, call: Call, req: falcon.Request) -> Reply:
        """The reply of the handler, or the one to the first request with the same `Idempotency-Key`."""
        key = req.get_header(HEADER)
        if key is None or not self._operation.idempotency_key:
            return self._handle(call)
        request = [self._operation.id, call.params, req.params, _comparable(call.body)]
        reply = self._services.idempotency.once(call.identity, key, request, lambda: self._handle(call))
        if isinstance(reply, Reply):
            return reply
        first = Reply.of_plain(reply)
        return replace(first, headers={**first.headers, **REPLAYED})

    def _handle(self, call: Call) -> Reply:
        """Actions that change no document get an audit entry here; the store wrote those of changed documents."""
        operation = self._operation
        reply = operation.handler(call)
        acts = operation.method in ("POST", "DELETE") and operation.audit is not False
        if acts and not origin().rows and reply.data.get("changed") is not False:
            resource = self._services.store.resource_named(call.params)
            self._services.audit.append(operation.audit or operation.id, resource)
        return reply

    def _note_refusal(self, error: Denied | MissingPermission, req: falcon.Request, params: dict[str, str]) -> None:
        caller, holder = req.context.caller, req.context.holder
        known = caller.user.id if caller else holder.identity if holder else None
        who = known or client_key(req.context.address)
        response = translated(error, req.context.request_id)
        details = response.details if response else {}
        self._services.refused_actions.record(who, self._services.store.resource_named(params), details)


def _comparable(body: Any) -> Any:
    """JSON-like data by which two bodies are compared."""
    if isinstance(body, Lines):
        return body.digest
    return body.model_dump(mode="json", exclude_unset=True) if body else None


def write_json(resp: falcon.Response, envelope: dict[str, Any]) -> None:
    """Set the body of the response."""
    resp.content_type = falcon.MEDIA_JSON
    resp.data = to_json(envelope)
