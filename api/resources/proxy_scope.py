"""The query parameter `proxy_id` and the scope of the credential: which proxies an answer is of."""

from __future__ import annotations

from api.errors import Denied
from api.http.call import Call


def meant_proxies(call: Call) -> tuple[str, ...] | None:
    """The ids of the proxies that are meant, whether or not there are such; None for all.

    To be called first: a scope is judged before the rest of a query. Raises `Denied`.
    """
    wanted, scope = call.query.text("proxy_id"), call.caller.scope
    if wanted is None:
        return None if scope is None else tuple(sorted(scope))
    if scope is not None and wanted not in scope:
        raise Denied("the proxy is not in the key's scope")
    return (wanted,)
