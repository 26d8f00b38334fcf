"""What a protocol wants done: the only things that come out of one.

Whoever drives a protocol carries the commands out in order. `Authorize` and `Open` are questions: the driver calls
`authorized`, `opened` or `failed` of the protocol, at once or later. The others are orders.
"""

from __future__ import annotations

from typing import NamedTuple

from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority


class ToClient(NamedTuple):
    """Send these bytes to the client."""

    data: bytes


class ToOrigin(NamedTuple):
    """Send these bytes to the origin."""

    data: bytes


class Authorize(NamedTuple):
    """Are these credentials good? Answer with `authorized(user)`, the user None for no.

    `user` is None when there are none; `password` is None in a protocol that has none.
    """

    user: str | None
    password: bytes | None


class Open(NamedTuple):
    """Get a connection to `target`. A `fresh` one is made for this use, another may come from the pool.

    Answer with `opened(reused)` or `failed(failure)`; with `tell_address`, `opened` gets the proxy's own address of
    the connection. `forward`: it is for a request that a parent proxy may get in absolute-form, and `via` is the `Via`
    of the request, if it has one.
    """

    target: Authority
    fresh: bool
    tell_address: bool = False
    forward: bool = False
    via: bytes | None = None


class Listen(NamedTuple):
    """Let one connection come in from `target`, or from anybody when it is the unspecified address.

    Answer with `opened` and the address that listens, and again with `opened` and the peer's address once it is
    there; or with `failed(failure)` instead of either.
    """

    target: Authority


class Associate(NamedTuple):
    """Make a socket for the client's datagrams.

    Answer with `opened` and the address of the socket, or with `failed(failure)`.
    """


class LeaveOrigin(NamedTuple):
    """The origin connection is done with: into the pool when it is `reusable`, closed when not.

    `authenticated`: it is, or is about to be, and serves this client connection alone from now on.
    """

    reusable: bool
    authenticated: bool = False


class ParentRefused(NamedTuple):
    """The parent proxy does not accept this proxy's credentials: do without it for a while."""


class RelayToClient(NamedTuple):
    """Move bytes from origin to client: `length`, or all until the end when it is None; then call
    `response_relayed`."""

    length: int | None


class RelayToOrigin(NamedTuple):
    """Move `length` bytes from client to origin, then call `request_relayed`."""

    length: int


class Report(NamedTuple):
    """One exchange has ended. Times are of the clock that the protocol was given; `answered` is 0 when it never was.

    `reason` is an error type of RFC 9209, or empty; `parent` is filled in by the driver, and so is `request_id`, the
    id of the record where it is known before. `detail` is the sentence for the record, `rule` what of the configuration
    refused it. With status 407 `user` is the name that was tried.
    """

    method: bytes
    url: str
    status: int
    reason: str
    user: str
    started: float
    answered: float
    bytes_in: int
    bytes_out: int
    parent: str = ""
    detail: str = ""
    rule: str = ""
    request_id: str = ""

    def because(self, failure: Failure) -> Report:
        """The same, with what the failure says beside its status and its reason."""
        return self._replace(detail=failure.recorded or failure.detail, rule=failure.entry)


class Tunnel(NamedTuple):
    """From now on both sides are joined byte for byte, and the protocol has no more to say.

    `report` is to be completed with the bytes of the tunnel and reported at its end.
    """

    report: Report


class RelayDatagrams(NamedTuple):
    """From now on datagrams are relayed until the client's connection ends, and the protocol has no more to say.

    `client` is from where the client says that it will send; address and port may be 0. `report` is to be completed
    as with `Tunnel`.
    """

    client: Authority
    report: Report


class CloseClient(NamedTuple):
    """End the client's connection: when all is sent and, unless `abort`, so that the client can read it all."""

    abort: bool = False


Command = (
    ToClient
    | ToOrigin
    | Authorize
    | Open
    | Listen
    | Associate
    | LeaveOrigin
    | ParentRefused
    | RelayToClient
    | RelayToOrigin
    | Tunnel
    | RelayDatagrams
    | Report
    | CloseClient
)
