"""What an operation of the API is.

`access` says who may try: anybody (`NONE`), whoever is signed in (`ANY`), a bearer token (`BEARER`), a person with a
bearer token or HTTP Basic but no key (`PERSON`); or it is the permission that is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel

from api.http.body import MAX_BODY
from api.http.body_limits import SMALL
from api.http.call import Call, Reply
from api.http.query_schema import Parameter

NONE, ANY, BEARER, PERSON = "(none)", "(any)", "(bearer)", "(person)"

V1 = "/api/v1"
PROXY = f"{V1}/proxies/{{proxy_id}}"
NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. `summary` is its title, `description` two sentences about it in Markdown.

    `model` is what its body must be; with `optional_body` it may be left out.

    `query` is what it reads of the query string, `matches` whether it heeds If-Match. `produces` is the media type of
    its answer; what isn't `enveloped` is a document by itself. `may_be_unwell` ones also answer 503, in the same form;
    those that `redirects` answer 302 with the same, unless JSON is accepted by name.
    An operation that `asks_elsewhere` answers 502 when the service that it asks does not answer as it should.
    What `names_resource` in its query answers 404 when there is no such thing.
    `by_token` ones are opened by `metrics.prometheus_token`, too, and `open_by` names the key of `security` that opens
    them to everybody. Those with a `passphrase` read one from a header. A body has at most `largest_body` bytes.

    `exempt` operations are for machines that watch: no rate limit. `own` ones need no permission for the caller's own
    account; their handler says what of it may be changed. `role` may do it without having the permission.

    A key that is restricted to some proxies may use operations with a proxy in their path, and `scoped` ones, whose
    handler leaves out all other proxies. Everything else is 403.
    """

    method: str
    path: str
    access: str
    id: str
    summary: str
    handler: Callable[[Call], Reply]
    model: type[BaseModel] | None = None
    read_only: frozenset[str] = NOTHING
    description: str = ""
    optional_body: bool = False
    exempt: bool = False
    own: bool = False
    role: str | None = None
    status: int = 200
    query: tuple[Parameter, ...] = ()
    matches: bool = False
    produces: str = "application/json"
    enveloped: bool = True
    may_be_unwell: bool = False
    names_resource: bool = False
    by_token: bool = False
    open_by: str | None = None
    redirects: bool = False
    passphrase: bool = False
    largest_body: int = MAX_BODY
    scoped: bool = False
    asks_elsewhere: bool = False

    @property
    def within_scope(self) -> bool:
        """Whether a key that is restricted to some proxies may do it, as far as it is about them."""
        return self.scoped or "{proxy_id}" in self.path or self.access == NONE

    @property
    def permission(self) -> str | None:
        """The permission that is needed, if it is one."""
        return None if self.access.startswith("(") else self.access

    @property
    def max_body(self) -> int:
        """Bytes that a body has at most; where no credentials are needed, as many as are read without any."""
        return min(SMALL, self.largest_body) if self.access == NONE else self.largest_body

    @property
    def repeatable(self) -> bool:
        """Does it heed `Idempotency-Key`? Every POST of a known caller, but not what makes or ends tokens."""
        return self.method == "POST" and self.access not in (NONE, BEARER)
