"""What an operation of the API is, and the constructors of its row in the table.

`access` is the required credential: none (`NONE`), any (`ANY`), a bearer token (`BEARER`), a bearer token or HTTP Basic
but no API key (`PERSON`), the token of an account holder (`HOLDER`); or it is the required permission.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from inspect import getdoc
from typing import Any, Literal

from pydantic import BaseModel

from api.call import Call, Reply
from api.engine.responses import ResponseModel
from api.http.body import MAX_BODY, SMALL
from api.http.query import Query
from api.security.permissions import BEYOND_SCOPE

NONE, ANY, BEARER, PERSON, HOLDER = "(none)", "(any)", "(bearer)", "(person)", "(holder)"

V1 = "/api/v1"
PROXY = f"{V1}/proxies/{{proxy_id}}"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    The docstring of its `handler` is its description in the API's documentation: the first line is its summary, the
    rest two sentences in Markdown. `response` is the model of the data in the envelope; an operation without one
    responds with a bare document of the media type `produces`. `body` is the model of the request's body; with
    `optional_body` it may be left out. `query` declares the parameters that it reads of the query string.
    """

    method: str
    path: str
    id: str
    handler: Callable[[Call], Reply]
    response: type[ResponseModel] | None = None
    access: str = ""
    body: type[BaseModel] | None = None
    read_only: frozenset[str] = frozenset()
    """Fields of the response that a body must not contain."""
    optional_body: bool = False
    lines: bool = False
    """The body may also be NDJSON (`api.http.body`), of `Lines` in place of the model."""
    largest_body: int = MAX_BODY
    """Bytes."""
    query: type[Query] | None = None
    if_match: bool = False
    """It honours `If-Match` and responds with an `ETag`."""
    passphrase: bool = False
    """It reads `X-Passphrase`."""
    status: int = 200
    errors: tuple[int, ...] = ()
    """Statuses of errors beside those that follow from the other fields: 404 where the query names a resource, 502
    where the operation depends on a service elsewhere."""
    streams: bool = False
    """Its body is made while it is sent, so it has no ETag and is not compressed."""
    may_be_503: bool = False
    """It may respond with 503 and the same data: the service is unhealthy."""
    redirects: bool = False
    """It responds with 302 and the same data, unless the client accepts JSON by name."""
    produces: str = "application/json"
    also_produces: str = ""
    """A second media type, which the handler selects."""
    unlimited: bool = False
    """For monitoring: no rate limit, no address rule, no request log."""
    allows_self: bool = False
    """It needs no permission for the caller's own account; the handler decides which fields may be changed."""
    role: str | None = None
    """A role that may do it without the permission."""
    prometheus_token: bool = False
    """It also accepts `metrics.prometheus_token`."""
    public_if: str | None = None
    """The key of `security` that makes it public."""
    scoped: bool = False
    """Its handler omits proxies that are not in the scope of the caller's key."""
    reads: str = ""
    """The collection of shared objects that it reads: a key with a scope of proxies may do it for those that it names,
    and its handler refuses or omits the others."""
    account_scoped: bool = False
    """A key with a scope of accounts may do it for these accounts, if it has `proxy.write`."""
    session_cookie: bool = False
    """It reads or sets the cookie of a session, which is its credential if it needs a bearer token otherwise."""
    audit: str | Literal[False] | None = None
    """The action in the audit trail of a POST or DELETE that changed no document; None: the operation's id, False: such
    a request is not recorded."""

    @property
    def summary(self) -> str:
        """Its title: the first line of the docstring."""
        return self._documentation.partition("\n")[0].removesuffix(".")

    @property
    def description(self) -> str:
        """Sentences about it, in Markdown."""
        text = " ".join(self._documentation.partition("\n")[2].split())
        return f"{text} PUT and PATCH do the same." if self.method == "PUT" else text

    @property
    def _documentation(self) -> str:
        return getdoc(self.handler) or ""

    @property
    def within_scope(self) -> bool:
        """Whether a key with a scope of proxies may do it for these proxies."""
        return self.scoped or "{proxy_id}" in self.path or self.access == NONE

    @property
    def beyond_scope(self) -> bool:
        """Whether no key with a scope of any kind may do it."""
        return self.permission in BEYOND_SCOPE

    @property
    def permission(self) -> str | None:
        """The required permission, if `access` is one."""
        return None if self.access.startswith("(") else self.access

    @property
    def conditional(self) -> bool:
        """Whether it responds with an ETag by its content, and with 304 to a request whose `If-None-Match` has it: a
        GET of anything but secrets."""
        return self.method == "GET" and not (self.streams or self.passphrase or self.session_cookie)

    @property
    def compresses(self) -> bool:
        """Whether long responses are compressed for clients that accept it; not beside credentials of people, whose
        length would say something about them."""
        return self.conditional and self.access not in (BEARER, PERSON)

    @property
    def max_body(self) -> int:
        """Bytes of a body at most; without credentials, only as many as are read before authentication."""
        return min(SMALL, self.largest_body) if self.access == NONE else self.largest_body

    @property
    def idempotency_key(self) -> bool:
        """Whether it honours `Idempotency-Key`: every POST with a caller, except those that issue or revoke tokens."""
        return self.method == "POST" and self.access not in (NONE, BEARER)


get = partial(Operation, "GET")
post = partial(Operation, "POST")
create = partial(Operation, "POST", status=201)
delete = partial(Operation, "DELETE")


def update(path: str, ids: tuple[str, str], *given: Any, **fields: Any) -> tuple[Operation, Operation]:
    """PUT and PATCH, which do the same; `ids` are of the two."""
    return Operation("PUT", path, ids[0], *given, **fields), Operation("PATCH", path, ids[1], *given, **fields)


def resource(path: str, *, read: str = "", write: str = "", delete: str = "") -> Callable[..., tuple[Operation, ...]]:
    """Completes the rows of a resource: their paths begin with `path`; GET needs `read`, DELETE needs `delete` or else
    `write`, the other methods `write`, unless a row has an `access` of its own."""
    needed = {"GET": read, "DELETE": delete or write}

    def complete(row: Operation) -> Operation:
        access = row.access or needed.get(row.method, write)
        if not access:
            raise ValueError(f"{row.id} has no access")
        return replace(row, path=path + row.path, access=access)

    return lambda *rows: tuple(map(complete, rows))
