"""What a session asks its driver to do: the only output of a protocol.

The driver executes the commands in order. `Authorize`, `Open`, `Listen` and `Associate` have replies: the driver calls
`authorized`, `opened` or `failed` of the session, at once or later. The others have none.
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
    """Check these credentials. The reply is `authorized(user)`, with None for the user when they are wrong, or
    `unchecked(failure)`.

    `user` is None when there are none; `password` is None in a protocol that has none. `target` is that of the
    request, None while there is no request yet.
    """

    user: str | None
    password: bytes | None
    target: Authority | None = None


class Open(NamedTuple):
    """Get a connection to `target`. A `fresh` one is made for this use, another may come from the pool.

    The reply is `opened(reused)` or `failed(failure)`; with `with_address`, `opened` gets the proxy's own address of
    the connection. `forward`: it is for a request that an upstream proxy may get in absolute-form, and `via` is
    the `Via` of the request, if it has one.
    """

    target: Authority
    fresh: bool
    with_address: bool = False
    forward: bool = False
    via: bytes | None = None


class Listen(NamedTuple):
    """Accept one connection from `target`, or from any peer when it is the unspecified address.

    The reply is `opened` with the address that listens, and again `opened` with the peer's address once it is
    there; or with `failed(failure)` instead of either.
    """

    target: Authority


class Associate(NamedTuple):
    """Make a socket for the client's datagrams.

    The reply is `opened` with the address of the socket, or `failed(failure)`.
    """


class LeaveOrigin(NamedTuple):
    """Release the origin connection: into the pool when it is `reusable`, else close it.

    `authenticated`: it is, or is about to be, and serves this client connection alone from now on.
    """

    reusable: bool
    authenticated: bool = False


class UpstreamRefused(NamedTuple):
    """The upstream proxy does not accept this proxy's credentials: do without it for a while."""


class RelayToClient(NamedTuple):
    """Move bytes from origin to client: `length`, or all until the end when it is None; then call
    `response_relayed`."""

    length: int | None


class RelayToOrigin(NamedTuple):
    """Move `length` bytes from client to origin, then call `request_relayed`."""

    length: int


class Report(NamedTuple):
    """One exchange has ended. Times are of the clock that the protocol was given; `responded` is 0 when there was no
    response.

    `reason` is an error type of RFC 9209, or empty; `upstream` is filled in by the driver, and so are `request_id`, the
    id of the record where it is known before, and `credential`, the id of the one that was used. `detail` is the
    sentence for the record, `rule` what of the configuration refused it. With status 407 `user` is the name that was
    tried.
    """

    method: bytes
    url: str
    status: int
    reason: str
    user: str
    started: float
    responded: float
    bytes_in: int
    bytes_out: int
    upstream: str = ""
    detail: str = ""
    rule: str = ""
    request_id: str = ""
    credential: str = ""

    def because(self, failure: Failure) -> Report:
        """The same, with the detail and the entry of the failure."""
        return self._replace(detail=failure.recorded or failure.detail, rule=failure.entry)


class Tunnel(NamedTuple):
    """Join both sides byte for byte; the session has ended.

    `report` is to be completed with the bytes of the tunnel and reported at its end.
    """

    report: Report


class RelayDatagrams(NamedTuple):
    """Relay datagrams until the client's connection ends; the session has ended.

    `client` is the source that the client has announced; address and port may be 0. `report` is to be completed
    as with `Tunnel`.
    """

    client: Authority
    report: Report


class Speak(NamedTuple):
    """Go on with a new session of `protocol`, which reads `data` first; the session has ended.

    `started` is when the client came, by the clock of the inputs. `last`: keep-alive was disabled.
    """

    protocol: str
    data: bytes
    started: float
    last: bool


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
    | UpstreamRefused
    | RelayToClient
    | RelayToOrigin
    | Tunnel
    | RelayDatagrams
    | Report
    | Speak
    | CloseClient
)
