"""The client side of a handshake with an upstream: bytes in, bytes out, and whose fault a failure is. Before it comes
the PROXY protocol header, for an upstream that wants the client's address.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from actors.forwarding.protocols.failures import UPSTREAM_REFUSES_US, Failure
from actors.net.proxy_protocol import Ends, build_v1, build_v2


class Blame(Enum):
    """Whose fault a failure is, and what follows."""

    UPSTREAM = "the upstream's: mark it down, try the next"
    UNCLEAR = "unclear: try the next"
    TARGET = "the target's: that is the response"
    UNFIT = "of neither: the upstream can't reach targets of this kind: try the next"


class UpstreamFailed(Exception):
    """An upstream has failed.

    `failure` is for the client, without a word about the upstream's address; `cause` is for the operator. `status` is
    that of its response to CONNECT, 0 without one; `retry_after` is what it asks for, in seconds. `reported`: it says
    itself that the target is at fault.
    """

    def __init__(
        self,
        blame: Blame,
        failure: Failure,
        cause: str,
        status: int = 0,
        retry_after: float = 0.0,
        reported: bool = False,
    ) -> None:
        super().__init__(cause)
        self.blame = blame
        self.failure = failure
        self.cause = cause
        self.status = status
        self.retry_after = retry_after
        self.reported = reported


class HandshakeStep(NamedTuple):
    """The outcome of received bytes: how many were used (at least one), what to send, and whether the handshake is
    done.

    Feed those that were not used again, at once; after `done` they belong to the tunnel.
    """

    used: int
    send: bytes = b""
    done: bool = False


class Handshake(Protocol):
    """One handshake on a connection that is established."""

    @property
    def target_sent(self) -> bool:
        """True once the upstream has the target: from then on it waits for others, and may take its time."""

    def begin(self) -> bytes:
        """The first bytes to send."""

    def feed(self, data: bytes) -> HandshakeStep:
        """Take bytes of the upstream, at least one. Raises `UpstreamFailed`."""


def unusable(cause: str, kind: str = "http_protocol_error") -> UpstreamFailed:
    """The upstream is at fault: it breaks the protocol, or its connection."""
    return UpstreamFailed(Blame.UPSTREAM, Failure(502, kind, "the upstream proxy can't be used"), cause)


def wrong_credentials(cause: str, status: int = 0, retry_after: float = 0.0) -> UpstreamFailed:
    """The upstream rejects our credentials."""
    return UpstreamFailed(Blame.UPSTREAM, UPSTREAM_REFUSES_US, cause, status, retry_after)


_OF_OUR_OWN = {
    "v1": b"PROXY UNKNOWN\r\n",
    "v2": b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",  # LOCAL: there is no client behind it
}


def preface_for(version: str | None, ends: Ends | None) -> bytes:
    """The header in this version, empty for None; without `ends` the one for connections of the proxy itself."""
    if version is None:
        return b""
    if ends is None:
        return _OF_OUR_OWN[version]
    return build_v1(*ends) if version == "v1" else build_v2(*ends)
