"""Errors of the domain: exceptions made of data, without HTTP.

Services raise them; `api.http.error_table` has the one table that translates them to responses.

===================  ===============================================================================================
`Invalid`            a field of what was asked for is wrong; `InvalidMany`: several are
`NotFound`           there is no such resource
`NotAFleet`          it is for nodes of a fleet, and this installation stands alone
`StaleRevision`      the resource is not at the revision that the caller insists on
`Denied`             a rule forbids it: scope, address, kind of credential; `MissingPermission` names a permission
`Unauthenticated`    the credentials are missing, wrong or expired
`TooBusy`            a limit is reached; it may be tried again after some seconds
`Behind`             this node of a fleet does not serve the revision yet that the caller insists on
`NoManagementHere`   this is an edge node of a fleet; another node is to be asked
`NotReady`           a process that it depends on is starting; it may be tried again in a moment
`OperationFailed`    it was tried and failed for a reason inside of the product
`PeerUnavailable`    another process or service does not reply as expected
===================  ===============================================================================================

Errors of the configuration store are in `api.store.interface`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

IDENTITY_PROVIDER = "identity_provider"
"""The peer for signing in with an external account; the others are named as on the bus
(`actors.bus.messages.common`)."""


class DomainError(Exception):
    """A request that is not carried out; the text states the reason."""


class InvalidMany(DomainError):
    """Several fields are wrong: `problems` has the path and the error of each, at least one."""

    def __init__(self, problems: Sequence[tuple[str | None, str]]) -> None:
        super().__init__("; ".join(f"{field}: {error}" if field else error for field, error in problems))
        self.problems = tuple(problems)


class Invalid(InvalidMany):
    """`field` is wrong; None means the request as a whole."""

    def __init__(self, field: str | None, error: str) -> None:
        super().__init__([(field, error)])
        self.field = field
        self.error = error


class NotFound(DomainError):
    """`kind` names the resource with its article: `The proxy`."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"{kind} was not found")


class NotAFleet(DomainError):
    """It is for nodes of a fleet, and this installation stands alone."""

    def __init__(self) -> None:
        super().__init__("This installation is no node of a fleet; proxyfleet cluster init makes one")


class StaleRevision(DomainError):
    """The resource is at revision `actual`."""

    def __init__(self, actual: int) -> None:
        super().__init__(f'the ETag is "{actual}" now')
        self.actual = actual


class Denied(DomainError):
    """A rule forbids it, regardless of the permissions of the caller."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class MissingPermission(DomainError):
    """The caller lacks `permission`; `by_key` when the credential is an API key."""

    def __init__(self, permission: str, by_key: bool) -> None:
        super().__init__(f"The permission {permission} is required")
        self.permission = permission
        self.by_key = by_key


class Unauthenticated(DomainError):
    """The caller is not authenticated. `code` is the reason for programs, `details` has data for them."""

    def __init__(
        self,
        text: str = "Valid credentials are required",
        code: str = "UNAUTHORIZED",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(text)
        self.code = code
        self.details = dict(details or {})


class TooBusy(DomainError):
    """A limit is reached; the caller may try again after `retry_after` seconds."""

    def __init__(self, retry_after: int, text: str = "Too many requests") -> None:
        super().__init__(text)
        self.retry_after = retry_after


class NoManagementHere(DomainError):
    """This is an edge node, which has no management API; `addresses` are those of the full nodes."""

    def __init__(self, addresses: Sequence[str]) -> None:
        super().__init__("This is an edge node of a fleet; its full nodes have the management API")
        self.addresses = tuple(addresses)


class NotReady(DomainError):
    """A process that it depends on is starting; the caller may try again in a moment."""


class Behind(NotReady):
    """This node of a fleet does not serve the commit `number` yet."""

    def __init__(self, number: int) -> None:
        super().__init__(f"This node does not have revision {number} yet; another one may")
        self.number = number


class OperationFailed(DomainError):
    """It was tried and failed; the text is for the client."""


class PeerUnavailable(DomainError):
    """`peer` (its name on the bus, or `IDENTITY_PROVIDER`) does not reply as expected; `detail` is for the log."""

    def __init__(self, peer: str, detail: object) -> None:
        super().__init__(f"{peer}: {detail}")
        self.peer = peer
        self.detail = str(detail)
