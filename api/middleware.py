"""The steps before and after every request to the management API.

Before, in this order: its id and its client's address are determined; clients that may not reach the API at all are
rejected (`security.ip_whitelist`, `security.https_only`); its caller is authenticated; the caller's rate is counted.
After, it is logged (`security.request_logging`): method, path without query, status, duration, caller, address and id.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import falcon

from actors.net.client_key import client_key
from api.audit.audit_context import Origin, serving
from api.container import Services
from api.errors import Denied, NoManagementHere, TooBusy, Unauthenticated
from api.http import session_cookie
from api.http.body import BODY_GATE, BodyGate
from api.http.request_site import SAFE, client_address, is_cross_site, is_secure, is_within, request_id
from api.http.revision_wait import RevisionWait, revision_of
from api.security.tokens import BadToken
from api.ui.page import is_dashboard

requests_log = logging.getLogger("api.requests")


class RequestMiddleware:
    """Falcon's middleware. `exempt` are the paths for monitoring: no limits, no guards, no log.

    An edge node of a fleet responds to `of_edges` alone.
    """

    def __init__(self, services: Services, exempt: frozenset[str], of_edges: frozenset[str]) -> None:
        self._services = services
        self._exempt = exempt
        self._of_edges = of_edges
        self._await_revision = RevisionWait()

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Authenticate the request, check whether its client may reach the API, and count it."""
        context = req.context
        context.began = time.monotonic()
        context.request_id = request_id(req.get_header("X-Request-Id"))
        resp.set_header("X-Request-Id", context.request_id)
        trusted = self._services.settings.server.trusted_proxies
        context.address = client_address(req.remote_addr, req.get_header("X-Forwarded-For"), trusted)
        context.caller, context.holder, context.refusal, context.waited = None, None, None, 0.0
        context.origin = Origin("anonymous", address=context.address, request_id=context.request_id)
        serving(context.origin)
        if req.path not in self._exempt:
            full_nodes = self._services.node.management_at()
            if full_nodes is not None and req.path not in self._of_edges:
                raise NoManagementHere(full_nodes)
            self._admit(req, resp)

    def process_resource(self, req: falcon.Request, _resp: Any, resource: object, _params: Any) -> None:
        """Respond 405 to an unknown method, as to one that isn't possible here; Falcon would respond 400."""
        if resource is not None and req.method not in falcon.COMBINED_METHODS:
            allowed = [name.removeprefix("on_").upper() for name in dir(resource) if name.startswith("on_")]
            raise falcon.HTTPMethodNotAllowed([*allowed, "OPTIONS"])

    def process_response(self, req: falcon.Request, resp: falcon.Response, *_: Any) -> None:
        """Forbid clients to guess the media type of a body, to store it and to embed it elsewhere; log the request."""
        resp.set_header("X-Content-Type-Options", "nosniff")
        _keep_private(resp)
        stale = self._services.node.cut_off_for()
        if stale is not None:
            resp.set_header("X-Config-Stale", f"{stale:.0f}")
        serving(None)
        gate: BodyGate | None = req.env.get(BODY_GATE)
        if gate is not None and gate.opened:
            return  # the application is called again when the body is complete
        if self._services.settings.security.request_logging and req.path not in self._exempt:
            level = logging.DEBUG if _is_poll(req, resp) else logging.INFO
            if requests_log.isEnabledFor(level):
                _log(req, resp, level)

    def _admit(self, req: falcon.Request, resp: falcon.Response) -> None:
        address = client_key(req.context.address)
        limited = self._services.rates.enabled and not is_dashboard(req.path)  # files from memory cost nothing
        refusal = self._refusal(req)
        if refusal is not None:
            if limited:
                self._count(address, req, resp)
            raise refusal
        if limited and self._services.rates.exhausted(address) and _costs_a_hash(req):
            self._count(address, req, resp)
        self._identify(req)
        if limited:
            caller = req.context.caller
            if caller is None:
                holder, owner = req.context.holder, self._owner_of_session(req)
                anonymous = address if holder is None else holder.identity
                self._count(owner or anonymous, req, resp, interactive=owner is not None)
            else:
                self._count(caller.identity, req, resp, caller.interactive, caller.user.id if caller.key else None)

    def _refusal(self, req: falcon.Request) -> Denied | None:
        """The reason why this client may not reach the API at all; None when it may."""
        security, trusted = self._services.settings.security, self._services.settings.server.trusted_proxies
        if security.ip_whitelist and not is_within(req.context.address, security.ip_whitelist):
            return Denied("the address of the client is not in security.ip_whitelist")
        forwarded = req.get_header("X-Forwarded-Proto")
        if security.https_only and not is_secure(req.env["wsgi.url_scheme"], req.remote_addr, forwarded, trusted):
            return Denied("security.https_only: the request did not come by TLS")
        return None

    def _identify(self, req: falcon.Request) -> None:
        key, authorization = req.get_header("X-API-Key"), req.get_header("Authorization")
        if key is None and authorization is None:
            return
        number, node = revision_of(req), self._services.node
        if number is not None and node.node_id is not None:
            req.context.waited = self._await_revision(number, node.wait_for)
        try:
            holder = self._services.self_service.holder_of(authorization) if key is None else None
            if holder is not None:
                req.context.holder = req.context.origin.holder = holder
                req.context.refusal = Denied("the token of an account holder opens /api/v1/me and nothing else")
                return
            caller = self._services.authenticator.caller(key, authorization, req.context.address)
        except (Unauthenticated, Denied, TooBusy) as error:
            req.context.refusal = error  # for operations that require a caller
        else:
            if caller.method == "basic" and req.method not in SAFE and _is_cross_site(req):
                req.context.refusal = Denied("a page of another origin can't use the credentials of a browser")
                return
            req.context.caller = req.context.origin.caller = caller
            if caller.claims is not None:
                self._services.sessions.used(caller.claims.family, req.context.address)

    def _owner_of_session(self, req: falcon.Request) -> str | None:
        """The id of the user whose session refreshes or ends by its cookie: it counts in the windows of sessions."""
        if req.path not in session_cookie.USES:
            return None
        trusted = self._services.settings.server.trusted_proxies
        forwarded = req.get_header("X-Forwarded-Proto")
        secure = is_secure(req.env["wsgi.url_scheme"], req.remote_addr, forwarded, trusted)
        token = session_cookie.token_in(req.get_header("Cookie"), secure)
        try:
            return None if token is None else self._services.tokens.owner(token)[1]
        except BadToken:
            return None

    def _count(
        self,
        caller: str,
        req: falcon.Request,
        resp: falcon.Response,
        interactive: bool = False,
        owner: str | None = None,
    ) -> None:
        gate: BodyGate | None = req.env.get(BODY_GATE)
        if gate is not None and gate.rate_headers is not None:  # it was counted before its body was read
            resp.set_headers(gate.rate_headers)
            return
        verdict = self._services.rates.hit(caller, interactive, owner)
        resp.set_headers(verdict.headers)
        if gate is not None:
            gate.rate_headers = verdict.headers
        if verdict.retry_after:
            raise TooBusy(verdict.retry_after)


def _keep_private(resp: falcon.Response) -> None:
    """No cache keeps what was for one caller, unless the response says otherwise; no page elsewhere can embed it, as a
    browser may remember credentials of HTTP Basic."""
    if resp.get_header("Cache-Control") is None:
        resp.set_header("Cache-Control", "no-store")
    resp.set_header("Cross-Origin-Resource-Policy", "same-origin")


def _is_cross_site(req: falcon.Request) -> bool:
    return is_cross_site(req.get_header("Sec-Fetch-Site"), req.get_header("Origin"), req.get_header("Host"))


def _costs_a_hash(req: falcon.Request) -> bool:
    """HTTP Basic may cost a bcrypt, so the rate of its address is checked first."""
    return req.get_header("X-API-Key") is None and (req.get_header("Authorization") or "")[:6].lower() == "basic "


def _is_poll(req: falcon.Request, resp: falcon.Response) -> bool:
    """Whether an interactive tool has read something: tools do that every few seconds."""
    caller = req.context.caller
    interactive = is_dashboard(req.path) or (caller is not None and caller.interactive)
    return interactive and req.method in SAFE and str(resp.status) < "4"


def _log(req: falcon.Request, resp: falcon.Response, level: int) -> None:
    context = req.context
    caller, holder = context.caller, context.holder
    username = caller.user.username if caller else holder.username if holder else None
    fields = {
        "request_id": context.request_id,
        "method": req.method,
        "path": req.path.encode("unicode_escape").decode("ascii"),
        "status": int(str(resp.status)[:3]),
        "duration_ms": round((time.monotonic() - context.began) * 1000, 1),
        "client_ip": context.address,
        "user": username,
        "credential": caller.method if caller else "account_token" if holder else None,
    }
    who = "anonymous" if username is None else f"for {username} ({fields['credential']})"
    message = "%(method)s %(path)s %(status)s in %(duration_ms)s ms " + who.replace("%", "%%")
    requests_log.log(level, message + " at %(client_ip)s, %(request_id)s", fields, extra={"fields": fields})
