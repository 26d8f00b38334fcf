"""What a session asks its driver to do: the only output of a protocol.

The driver executes the commands in order. `Authorize`, `Open`, `Listen` and `Associate` have replies: the driver calls
`authorized`, `opened` or `failed` of the session, at once or later. The others have none.

The secret of a credential is known by its form alone: `pfc_` and 40 letters and digits.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority

NO_PARAMS: Final[Mapping[str, str]] = MappingProxyType({})

Again = Callable[[int], bool]
"""Whether a request may be sent to another upstream after an error with this status of the upstream itself, or, with 0,
after the end of its connection without a response. Where it says so the request is sent again."""


class Value(ABC):
    """A command of every request. It is equal to another of its class with the same values.

    These are no named tuples: compiled, those are made by the interpreter, which takes ten times as long.
    """

    __slots__ = ()

    @abstractmethod
    def values(self) -> tuple[Any, ...]:
        """All of them, in the order of `__init__`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and type(self) is type(other) and self.values() == other.values()

    def __hash__(self) -> int:
        return hash(self.values())

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.values()!r}"


class ToClient(Value):
    """Send these bytes to the client."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def values(self) -> tuple[Any, ...]:
        """See `Value`."""
        return (self.data,)


class ToOrigin(Value):
    """Send these bytes to the origin."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def values(self) -> tuple[Any, ...]:
        """See `Value`."""
        return (self.data,)


class Authorize(NamedTuple):
    """Check these credentials. The reply is `authorized(user)`, with None for the user when they are wrong, or
    `unchecked(failure)`.

    `user` is None when there are none; `password` is None in a protocol that has none. `target` is that of the
    request, None while there is no request yet.
    """

    user: str | None
    password: bytes | None
    target: Authority | None = None


class Open(Value):
    """Get a connection to `target`. A `fresh` one is made for this use, another may come from the pool.

    The reply is `opened(reused)` or `failed(failure)`; with `with_address`, `opened` gets the proxy's own address of
    the connection. `forward`: it is for a request that an upstream proxy may get in absolute-form, and `via` is
    the `Via` of the request, if it has one.
    """

    __slots__ = ("forward", "fresh", "target", "via", "with_address")

    def __init__(
        self,
        target: Authority,
        fresh: bool,
        with_address: bool = False,
        forward: bool = False,
        via: bytes | None = None,
    ) -> None:
        self.target = target
        self.fresh = fresh
        self.with_address = with_address
        self.forward = forward
        self.via = via

    def values(self) -> tuple[Any, ...]:
        """See `Value`."""
        return (self.target, self.fresh, self.with_address, self.forward, self.via)


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


class LeaveOrigin(Value):
    """Release the origin connection: into the pool when it is `reusable`, else close it.

    `authenticated`: it is, or is about to be, and serves this client connection alone from now on.
    """

    __slots__ = ("authenticated", "reusable")

    def __init__(self, reusable: bool, authenticated: bool = False) -> None:
        self.reusable = reusable
        self.authenticated = authenticated

    def values(self) -> tuple[Any, ...]:
        """See `Value`."""
        return (self.reusable, self.authenticated)


class UpstreamRefused(NamedTuple):
    """The upstream proxy does not accept this proxy's credentials: do without it for a while."""


class UpstreamResponded(NamedTuple):
    """The upstream proxy itself seems to respond with this error, or, with the status 0, ends its connection without
    one. `of_target`: it says that the target is at fault.
    """

    status: int
    of_target: bool = False


class RelayToClient(NamedTuple):
    """Move bytes from origin to client: `length`, or all until the end when it is None; then call
    `response_relayed`."""

    length: int | None


class RelayToOrigin(NamedTuple):
    """Move `length` bytes from client to origin, then call `request_relayed`."""

    length: int


class Report(Value):
    """One exchange has ended. Times are of the clock that the protocol was given; `responded` is 0 when there was no
    response.

    `reason` is an error type of RFC 9209, or empty. `detail` is the sentence for the record, `rule` what of the
    configuration refused it. With status 407 `user` is the name that was tried. The driver fills in `upstream` and the
    name of its `pool`, `request_id`, the id of the record where it is known before, `credential`, the id of the one
    that was used, `source_address`, the one that it left from, where the configuration gives one, `parameters`, those
    of the user name as the record has them, `params`, what rules may ask for of them,
    `country` and `asn`, where the address of the origin is, and what the client's handshake in a tunnel says:
    `tls_name`, the protocols that it offers (`alpn`, with commas) and the highest version of TLS.
    """

    __slots__ = (
        "alpn",
        "asn",
        "bytes_in",
        "bytes_out",
        "country",
        "credential",
        "detail",
        "method",
        "parameters",
        "params",
        "pool",
        "reason",
        "request_id",
        "responded",
        "rule",
        "source_address",
        "started",
        "status",
        "tls_name",
        "tls_version",
        "upstream",
        "url",
        "user",
    )

    def __init__(
        self,
        method: bytes,
        url: str,
        status: int,
        reason: str,
        user: str,
        started: float,
        responded: float,
        bytes_in: int,
        bytes_out: int,
        upstream: str = "",
        detail: str = "",
        rule: str = "",
        request_id: str = "",
        credential: str = "",
        source_address: str = "",
        parameters: str = "",
        pool: str = "",
        params: Mapping[str, str] = NO_PARAMS,
        country: str = "",
        asn: str = "",
        tls_name: str = "",
        alpn: str = "",
        tls_version: str = "",
    ) -> None:
        self.method = method
        self.url = url
        self.status = status
        self.reason = reason
        self.user = user
        self.started = started
        self.responded = responded
        self.bytes_in = bytes_in
        self.bytes_out = bytes_out
        self.upstream = upstream
        self.detail = detail
        self.rule = rule
        self.request_id = request_id
        self.credential = credential
        self.source_address = source_address
        self.parameters = parameters
        self.pool = pool
        self.params = params
        self.country = country
        self.asn = asn
        self.tls_name = tls_name
        self.alpn = alpn
        self.tls_version = tls_version

    def values(self) -> tuple[Any, ...]:
        """See `Value`."""
        return (
            self.method,
            self.url,
            self.status,
            self.reason,
            self.user,
            self.started,
            self.responded,
            self.bytes_in,
            self.bytes_out,
            self.upstream,
            self.detail,
            self.rule,
            self.request_id,
            self.credential,
            self.source_address,
            self.parameters,
            self.pool,
            self.params,
            self.country,
            self.asn,
            self.tls_name,
            self.alpn,
            self.tls_version,
        )

    def because(self, failure: Failure) -> Report:
        """Take the detail and the entry of the failure; returns this report."""
        self.detail, self.rule = failure.recorded or failure.sentence, failure.entry
        return self

    def copy(self) -> Report:
        """Another one with the same values."""
        return Report(*self.values())


class Tunnel(Value):
    """Join both sides byte for byte; the session has ended.

    `report` is to be completed with the bytes of the tunnel and reported at its end. `early` is what the client has
    sent for the origin already; the report has counted it.
    """

    __slots__ = ("early", "report")

    def __init__(self, report: Report, early: bytes = b"") -> None:
        self.report = report
        self.early = early

    def values(self) -> tuple[Any, ...]:
        """See `Value`."""
        return (self.report, self.early)


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


class CloseClient(Value):
    """End the client's connection: when all is sent and, unless `abort`, so that the client can read it all."""

    __slots__ = ("abort",)

    def __init__(self, abort: bool = False) -> None:
        self.abort = abort

    def values(self) -> tuple[Any, ...]:
        """See `Value`."""
        return (self.abort,)


Command = (
    ToClient
    | ToOrigin
    | Authorize
    | Open
    | Listen
    | Associate
    | LeaveOrigin
    | UpstreamRefused
    | UpstreamResponded
    | RelayToClient
    | RelayToOrigin
    | Tunnel
    | RelayDatagrams
    | Report
    | Speak
    | CloseClient
)


PREFIX = b"pfc_"
_SECRET = re.compile(rb"pfc_[0-9A-Za-z]{40}")
_PREFIX_LENGTH = 11
"""Characters that the product keeps and shows, by which people recognize a secret."""


def is_secret(value: bytes) -> bool:
    """Whether it has the form of a secret."""
    return value.startswith(PREFIX) and _SECRET.fullmatch(value) is not None


def masked(user: str) -> str:
    """A user name as it may be recorded: of a secret that came in its place the beginning."""
    return f"{user[:_PREFIX_LENGTH]}…" if user.startswith("pfc_") and len(user) > _PREFIX_LENGTH else user
