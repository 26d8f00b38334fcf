"""The argument and the result of a handler. Neither knows Falcon, so handlers are functions from data to data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from api.container import Services
from api.errors import Denied, Unauthenticated
from api.http import session_cookie
from api.http.request_site import NO_SITE, Site
from api.objects.named.pool_kind import POOLS
from api.objects.nodes.asked_nodes import AskedNodes
from api.security.caller import AccountHolder, Caller

_ETAG = re.compile(r'(?:W/)?"([0-9]{1,18})(?:-[0-9a-f]{1,64})?"', re.ASCII)
"""The revision alone, or with the tag of a content (`api.http.representation.form_of`), which `If-Match` ignores."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request, authenticated, authorized and validated.

    `query` is an instance of the operation's `Query` class, `body` one of its model.
    """

    services: Services
    query: Any
    params: dict[str, str]
    body: Any
    address: str
    request_id: str
    identified: Caller | None
    identified_holder: AccountHolder | None
    if_match_header: str | None
    headers: Mapping[str, str] = field(default_factory=dict)
    """All of them, names in lower case."""
    site: Site = NO_SITE
    """This API as the client sees it; only for operations with `session_cookie`."""
    asked: AskedNodes | None = None
    """See `nodes`."""

    @property
    def caller(self) -> Caller:
        """The caller; only for operations that require one. Raises `Unauthenticated`."""
        if self.identified is None:
            raise Unauthenticated
        return self.identified

    @property
    def holder(self) -> AccountHolder:
        """The holder of an account; only for operations of theirs. Raises `Unauthenticated`."""
        if self.identified_holder is None:
            raise Unauthenticated
        return self.identified_holder

    @property
    def identity(self) -> str:
        """Who sends the requests: the caller's or the holder's."""
        return self.holder.identity if self.identified is None else self.caller.identity

    @property
    def nodes(self) -> AskedNodes:
        """The nodes that are asked; only for operations whose query is an `AllNodes`."""
        assert self.asked is not None
        return self.asked

    @property
    def session_token(self) -> str | None:
        """The refresh token in the cookie of a session; only for operations with `session_cookie`.

        Raises `Denied` when the cookie may have been sent by a page of another origin.
        """
        cookies = self.headers.get("cookie")
        if not session_cookie.is_sent(cookies, self.site.secure):
            return None
        if self.is_cross_origin:
            raise Denied(session_cookie.CROSS_ORIGIN)
        return session_cookie.token_in(cookies, self.site.secure)

    @property
    def is_cross_origin(self) -> bool:
        """Whether a page of another origin may have sent this; only for operations with `session_cookie`."""
        return self.site.is_cross_origin(self.headers.get("sec-fetch-site"), self.headers.get("origin"))

    @property
    def proxy_ids(self) -> tuple[str, ...] | None:
        """The proxies that an operation with the query parameter `proxy_id` concerns; None for all."""
        wanted, scope = self.query.proxy_id, self.caller.scope
        if wanted is not None:
            return (wanted,)
        return None if scope is None else tuple(sorted(scope))

    @property
    def upstreams(self) -> frozenset[str] | None:
        """Names of the upstreams that the caller may see where traffic went; None: all.

        A key with a scope sees those of its proxies, and of the pools that the scope names.
        """
        scope, services = self.caller.narrowed, self.services
        if scope is None:
            return None
        proxies = [each.record for each in services.proxies.all() if each.record.id in (scope.proxies or ())]
        objects = services.shared_objects
        pools = [
            objects.complete(each).record for each in objects.all(POOLS) if each.record.name in (scope.pools or ())
        ]
        return frozenset(upstream.name for record in (*proxies, *pools) for upstream in record.upstreams)

    @property
    def if_match(self) -> int | None:
        """The revision in `If-Match`; None without one and for `*`; -1, always stale, for a foreign ETag."""
        header = self.if_match_header
        if header is None or header.strip() == "*":
            return None
        match = _ETAG.fullmatch(header.strip())
        return int(match[1]) if match else -1


class RequestHeaders(Mapping[str, str]):
    """The headers of a request by their names in lower case. Few operations read any, so they are read then."""

    def __init__(self, read: Callable[[], Mapping[str, str]]) -> None:
        self._read = read

    def __getitem__(self, name: str) -> str:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


class RawBody(NamedTuple):
    """A body without envelope: complete, or in pieces that are read as the client receives them."""

    content: bytes | Iterable[bytes]
    media_type: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A success: `data` for the envelope. `revision` becomes the ETag. `cookies` are of `Set-Cookie`.

    A `document` is the body itself.
    """

    data: dict[str, Any]
    status: int = 200
    revision: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    cookies: tuple[str, ...] = ()
    document: RawBody | None = None

    def plain(self) -> dict[str, Any]:
        """As JSON-like data; only of an enveloped response."""
        return {"data": self.data, "status": self.status, "revision": self.revision, "headers": self.headers}

    @classmethod
    def of_plain(cls, plain: dict[str, Any]) -> Reply:
        """The opposite of `plain`."""
        return cls(plain["data"], plain["status"], plain["revision"], plain["headers"])
