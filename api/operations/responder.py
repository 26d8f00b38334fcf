"""One operation as a responder of Falcon: from the request to a `Call`, from the `Reply` to the response.

In this order: authentication, permission, scope, validation, existence (401 before 403 before 400 before 404).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import falcon
from pydantic_core import to_json

from actors.net.client_key import client_key
from api.audit.audit_context import origin
from api.call import Call, RawBody, Reply, RequestHeaders
from api.concurrency_limit import REVISIONS_EACH, REVISIONS_MAX, ConcurrencyLimit
from api.container import Services
from api.engine.operation import BEARER, HOLDER, NONE, PERSON, Operation
from api.errors import Behind, Denied, Invalid, MissingPermission, StaleRevision, TooBusy, Unauthenticated
from api.http import revision_wait, session_cookie
from api.http.body import Lines, has_lines, read_body, read_lines, read_model
from api.http.error_table import invalid, translated
from api.http.idempotency import HEADER
from api.http.query import AllNodes
from api.http.representation import IDENTITY, form_of, is_known
from api.http.request_site import NO_SITE, SAFE, Site, is_secure
from api.http.revision_wait import REVISION, revision_of
from api.objects.nodes.asked_nodes import AskedNodes
from api.security.caller import Caller

_OF_USERS, _OF_STRANGERS = (
    ConcurrencyLimit(REVISIONS_MAX, REVISIONS_EACH, "waits for a revision", who) for who in ("user", "client")
)
REPLAYED = {"Idempotency-Replayed": "true"}


class Responder:
    """Called by Falcon with a request, the response to fill in and the parameters of the path."""

    def __init__(self, services: Services, operation: Operation) -> None:
        self._services = services
        self._operation = operation

    def __call__(self, req: falcon.Request, resp: falcon.Response, **params: str) -> None:
        """Raises the errors of `api.http.error_table.TABLE`."""
        req.context.origin.operation = self._operation.id
        try:
            call = self._call(req, params)
            self._await_revision(req)
            reply = self._reply(call, req)
        except (Denied, MissingPermission) as error:
            self._note_refusal(error, req, params)
            raise
        if req.method in SAFE and reply.revision is not None and call.if_match not in (None, reply.revision):
            raise StaleRevision(reply.revision)  # operations that change something have compared it before
        self._respond(req, resp, reply)

    def _await_revision(self, req: falcon.Request) -> None:
        node = self._services.node
        if req.get_header(REVISION) is None or node.node_id is None:
            return
        number = revision_of(req)
        if number is None:
            raise Invalid(REVISION, "must be the number that a response to a change had")
        if not (node.wait_for(number, 0.0) or self._waits_for(number, req)):
            raise Behind(number)

    def _waits_for(self, number: int, req: falcon.Request) -> bool:
        """Whether it is served in time. Each wait takes a thread, so what there is no room for does not wait."""
        known = _known(req)
        try:
            slot = (_OF_STRANGERS if known is None else _OF_USERS).acquire(known or client_key(req.context.address))
        except TooBusy:
            return False
        with slot:
            left = max(0.0, revision_wait.REVISION_WAIT - req.context.waited)
            return self._services.node.wait_for(number, left)

    def _respond(self, req: falcon.Request, resp: falcon.Response, reply: Reply) -> None:
        resp.status = reply.status
        resp.set_headers(reply.headers)
        for cookie in reply.cookies:
            resp.append_header("Set-Cookie", cookie)
        envelope = {"success": True, "data": reply.data}
        content, media_type = reply.document or RawBody(to_json(envelope), falcon.MEDIA_JSON)
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
        body = self._body(req)
        query = operation.query(req.params) if operation.query is not None else None
        return Call(
            services=self._services,
            params=params,
            body=body,
            query=query,
            asked=AskedNodes(self._services.nodes, query.node) if isinstance(query, AllNodes) else None,
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
        with self._services.store.loose.settled():
            reply = operation.handler(call)
        if call.asked is not None:
            reply = _with_missing(reply, call.asked)
        acts = operation.method in ("POST", "DELETE") and operation.audit is not False
        if acts and not origin().rows and reply.data.get("changed") is not False:
            resource = self._services.store.resource_named(call.params)
            self._services.audit.append(operation.audit or operation.id, resource)
        if self._services.node.node_id is None or not origin().commit:
            return reply
        return replace(reply, headers={**reply.headers, REVISION: str(origin().commit)})

    def _note_refusal(self, error: Denied | MissingPermission, req: falcon.Request, params: dict[str, str]) -> None:
        who = _known(req) or client_key(req.context.address)
        response = translated(error, req.context.request_id)
        details = response.details if response else {}
        self._services.refused_actions.record(who, self._services.store.resource_named(params), details)


def _known(req: falcon.Request) -> str | None:
    """Who sends it, if that is known."""
    caller, holder = req.context.caller, req.context.holder
    return caller.user.id if caller else holder.identity if holder else None


def _with_missing(reply: Reply, nodes: AskedNodes) -> Reply:
    """With the nodes of which nothing is in it, in a fleet of several."""
    if reply.document is None:
        return replace(reply, data={**reply.data, **nodes.meta()})
    missing = {"X-Missing-Nodes": ", ".join(sorted(nodes.missing))} if nodes.missing else {}
    return replace(reply, headers={**reply.headers, **missing})


def _comparable(body: Any) -> Any:
    """JSON-like data by which two bodies are compared."""
    if isinstance(body, Lines):
        return body.digest
    return body.model_dump(mode="json", exclude_unset=True) if body else None


def write_json(resp: falcon.Response, envelope: dict[str, Any]) -> None:
    """Set the body of the response."""
    resp.content_type = falcon.MEDIA_JSON
    resp.data = to_json(envelope)


def authorize(
    services: Services, operation: Operation, req: falcon.Request, params: Mapping[str, str]
) -> Caller | None:
    """The caller; None for an operation that is open to this request without one.

    Raises `Unauthenticated`, `Denied`, `MissingPermission`.
    """
    caller: Caller | None = req.context.caller
    if operation.prometheus_token and caller is None and _has_prometheus_token(services, req):
        return None
    if operation.public_if is not None and getattr(services.settings.security, operation.public_if):
        return caller
    if operation.access == NONE:
        return None
    if operation.session_cookie and caller is None and _has_session_cookie(services, req):
        return None
    if operation.access == HOLDER and (req.context.holder is not None or caller is not None):
        _check_holder(req)
        return None
    if caller is None:
        raise req.context.refusal or Unauthenticated()
    _check_permission(operation, caller, params)
    _check_scope(operation, caller, [params.get("proxy_id"), _proxy_in_query(operation, req)], params.get("account_id"))
    return caller


def _check_holder(req: falcon.Request) -> None:
    if req.context.holder is None:
        raise Denied("this is for holders of accounts, who sign in at /api/v1/me/login")


def _has_prometheus_token(services: Services, req: falcon.Request) -> bool:
    scheme, _, token = (req.get_header("Authorization") or "").partition(" ")
    return scheme.lower() == "bearer" and services.settings.is_prometheus_token(token.strip(" "))


def _has_session_cookie(services: Services, req: falcon.Request) -> bool:
    trusted = services.settings.server.trusted_proxies
    secure = is_secure(req.env["wsgi.url_scheme"], req.remote_addr, req.get_header("X-Forwarded-Proto"), trusted)
    return session_cookie.is_sent(req.get_header("Cookie"), secure)


def _check_permission(operation: Operation, caller: Caller, params: Mapping[str, str]) -> None:
    if operation.access == BEARER and caller.method != "bearer":
        raise Unauthenticated("A bearer token is required")
    if operation.access == PERSON and caller.key is not None:
        raise Denied("an API key can't do this; users can, by access token or HTTP Basic")
    wanted = operation.permission
    if operation.account_scoped and caller.account_scope is not None:
        wanted = "proxy.write"  # such a key needs no other permission, to list either
    allowed = wanted is None or caller.may(wanted)
    by_role = operation.role is not None and caller.acts_as(operation.role)
    is_self = operation.allows_self and caller.key is None and params.get("user_id") == caller.user.id
    if not (allowed or by_role or is_self):
        raise MissingPermission(wanted or operation.access, by_key=caller.key is not None)


def _check_scope(operation: Operation, caller: Caller, named: list[str | None], account_id: str | None) -> None:
    """`named` are the ids of the proxies in path and query, `account_id` is that of the account in the path."""
    if caller.key is not None and caller.key.scope is not None and operation.beyond_scope:
        raise Denied("a key with a scope can't do this: it would reach more than its scope")
    if caller.account_scope is not None:
        _check_account_scope(operation, caller.account_scope, account_id)
    if caller.scope is None:
        return
    if not operation.within_scope and not _reads_named(operation, caller):
        raise Denied("a key with a scope of proxies can only do what is about these proxies")
    if any(each is not None and each not in caller.scope for each in named):
        raise Denied("the proxy is not in the key's scope")


def _reads_named(operation: Operation, caller: Caller) -> bool:
    """Whether it reads objects of which the key's scope names some."""
    return bool(operation.reads and caller.narrowed is not None and caller.narrowed.named(operation.reads))


def _check_account_scope(operation: Operation, scope: frozenset[str], account_id: str | None) -> None:
    if not operation.account_scoped:
        raise Denied("a key with a scope of accounts can only do what is about credentials of these accounts")
    if account_id not in scope:
        raise Denied("the account is not in the key's scope")


def _proxy_in_query(operation: Operation, req: falcon.Request) -> str | None:
    given = req.params.get("proxy_id") if operation.query and "proxy_id" in operation.query.parameters else None
    return given if isinstance(given, str) else None  # a list is refused with the rest of the query
