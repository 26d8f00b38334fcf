"""What every client handshake with a parent is: bytes in, bytes out, and whose fault it is when it fails."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from actors.forwarding.protocols.failures import Failure


class Blame(Enum):
    """What a failure says about the parent, and so what is done."""

    PARENT = "it can't be used: mark it down, try the next"
    UNCLEAR = "it may be its fault: try the next"
    TARGET = "it works, the target doesn't: that is the answer"
    UNFIT = "it can't do this for anybody: try the next, and say nothing against it"


class ParentFailed(Exception):
    """A parent did not do what was asked.

    `failure` is what the client is told, without a word about the parent's address; `said` is for the operator.
    """

    def __init__(self, blame: Blame, failure: Failure, said: str) -> None:
        super().__init__(said)
        self.blame = blame
        self.failure = failure
        self.said = said


class Step(NamedTuple):
    """What became of bytes: so many were used, at least one; these are to be sent; and whether it is done.

    Those that were not used are to be given again, at once; after `done` they belong to the tunnel.
    """

    used: int
    send: bytes = b""
    done: bool = False


class Handshake(Protocol):
    """One handshake on a connection that is there."""

    @property
    def asked(self) -> bool:
        """Has the parent been told the target? From then on it waits for somebody else, and may take its time."""

    def begin(self) -> bytes:
        """What is sent first."""

    def feed(self, data: bytes) -> Step:
        """Bytes of the parent, not none. Raises `ParentFailed`."""


REFUSES_US = "proxy_configuration_error"
"""The error type of RFC 9209 for credentials that the parent doesn't take."""


def unusable(said: str, kind: str = "http_protocol_error") -> ParentFailed:
    """The parent doesn't speak as it should."""
    return ParentFailed(Blame.PARENT, Failure(502, kind, "the parent proxy can't be used"), said)


def wrong_credentials(said: str) -> ParentFailed:
    """The parent wants other credentials than ours: that is not for the client to mend."""
    failure = Failure(502, REFUSES_US, "the parent proxy does not accept this proxy's credentials")
    return ParentFailed(Blame.PARENT, failure, said)
