"""Authorization of an operation: credentials, permission and scope, in this order (401 before 403)."""

from __future__ import annotations

from collections.abc import Mapping

import falcon

from api.container import Services
from api.engine.operation import BEARER, HOLDER, NONE, PERSON, Operation
from api.errors import Denied, MissingPermission, Unauthenticated
from api.http import session_cookie
from api.http.client import is_secure
from api.security.caller import Caller


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
