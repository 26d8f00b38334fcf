"""The states of a SOCKS session as a table that the sessions run on.

SOCKS5 begins with GREETING, SOCKS4 with REQUEST, and asks for no PASSWORD: its request names the user.
"""

from __future__ import annotations

from enum import StrEnum, auto
from typing import Final

from actors.forwarding.protocols.state_machine import transitions


class SocksPhase(StrEnum):
    """The phase of a session."""

    GREETING = auto()
    """SOCKS5: version and methods come next."""
    PASSWORD = auto()
    """SOCKS5: user name and password come next (RFC 1929)."""
    REQUEST = auto()
    """The request comes next, or is there and begins."""
    AUTHORIZE = auto()
    """The credentials are being checked."""
    OPEN = auto()
    """CONNECT: a connection to the target is being made."""
    LISTEN = auto()
    """BIND: a listening socket is being made; the first reply follows."""
    PEER = auto()
    """BIND: the peer has not connected yet; the second reply follows."""
    RELAY = auto()
    """UDP ASSOCIATE: a socket for datagrams is being made."""
    TUNNEL = auto()
    """The driver relays bytes or datagrams; the session has ended."""
    CLOSED = auto()
    """The session has ended with the client's connection."""


class SocksEvent(StrEnum):
    """What happens to a session: the inputs of its driver, and what it concludes from the bytes."""

    CLIENT_DATA = auto()
    """Bytes of the client: they are read, or buffered for the tunnel."""
    CLIENT_END = auto()
    """The client sends no more. It ends a handshake by `CLOSE`, and what waits for a third party by `ABORT`."""
    NO_CREDENTIALS = auto()
    """The greeting has ended, without authentication."""
    PASSWORD = auto()
    """The greeting has ended, with the method of RFC 1929."""
    CHECK = auto()
    """The credentials are there and are to be checked."""
    AUTHORIZED = auto()
    UNAUTHORIZED = auto()
    """The credentials are wrong: `CLOSE` follows."""
    CONNECT = auto()
    BIND = auto()
    UDP = auto()
    OPENED = auto()
    """The connection, the listening socket, its peer or the socket for datagrams is there."""
    FAILED = auto()
    """It can't be had: `CLOSE` follows."""
    TIMED_OUT = auto()
    """The deadline has passed: `CLOSE` follows."""
    CLOSE = auto()
    """The end of a session without a tunnel, after its last reply."""
    CLIENT_LOST = auto()
    ABORT = auto()
    """The end from outside."""
    ORIGIN_DATA = auto()
    ORIGIN_LOST = auto()
    REQUEST_RELAYED = auto()
    RESPONSE_RELAYED = auto()


GREETING: Final[SocksPhase] = SocksPhase.GREETING
PASSWORD: Final[SocksPhase] = SocksPhase.PASSWORD
REQUEST: Final[SocksPhase] = SocksPhase.REQUEST
AUTH: Final[SocksPhase] = SocksPhase.AUTHORIZE
OPEN: Final[SocksPhase] = SocksPhase.OPEN
LISTEN: Final[SocksPhase] = SocksPhase.LISTEN
PEER: Final[SocksPhase] = SocksPhase.PEER
RELAY: Final[SocksPhase] = SocksPhase.RELAY
TUNNEL: Final[SocksPhase] = SocksPhase.TUNNEL
CLOSED: Final[SocksPhase] = SocksPhase.CLOSED
__ = None
_NEVER = (None,) * len(SocksPhase)

# fmt: off
TRANSITIONS: Final = transitions(SocksPhase, {
    #                           GREETING  PASSWORD  REQUEST  AUTH     OPEN    LISTEN  PEER    RELAY   TUNNEL  CLOSED
    SocksEvent.CLIENT_DATA:    (GREETING, PASSWORD, REQUEST, AUTH,    OPEN,   LISTEN, PEER,   RELAY,  __,     __),
    SocksEvent.CLIENT_END:     (GREETING, PASSWORD, REQUEST, AUTH,    OPEN,   LISTEN, PEER,   RELAY,  __,     __),
    SocksEvent.NO_CREDENTIALS: (REQUEST,  __,       __,      __,      __,     __,     __,     __,     __,     __),
    SocksEvent.PASSWORD:       (PASSWORD, __,       __,      __,      __,     __,     __,     __,     __,     __),
    SocksEvent.CHECK:          (__,       AUTH,     AUTH,    __,      __,     __,     __,     __,     __,     __),
    SocksEvent.AUTHORIZED:     (__,       __,       __,      REQUEST, __,     __,     __,     __,     __,     __),
    SocksEvent.UNAUTHORIZED:   (__,       __,       __,      AUTH,    __,     __,     __,     __,     __,     __),
    SocksEvent.CONNECT:        (__,       __,       OPEN,    __,      __,     __,     __,     __,     __,     __),
    SocksEvent.BIND:           (__,       __,       LISTEN,  __,      __,     __,     __,     __,     __,     __),
    SocksEvent.UDP:            (__,       __,       RELAY,   __,      __,     __,     __,     __,     __,     __),
    SocksEvent.OPENED:         (__,       __,       __,      __,      TUNNEL, PEER,   TUNNEL, TUNNEL, __,     __),
    SocksEvent.FAILED:         (__,       __,       __,      __,      OPEN,   LISTEN, PEER,   RELAY,  __,     __),
    SocksEvent.TIMED_OUT:      (GREETING, PASSWORD, REQUEST, AUTH,    OPEN,   LISTEN, PEER,   RELAY,  __,     CLOSED),
    SocksEvent.CLOSE:          (CLOSED,   CLOSED,   CLOSED,  CLOSED,  CLOSED, CLOSED, CLOSED, CLOSED, __,     __),
    SocksEvent.CLIENT_LOST:    (CLOSED,   CLOSED,   CLOSED,  CLOSED,  CLOSED, CLOSED, CLOSED, CLOSED, __,     CLOSED),
    SocksEvent.ABORT:          (CLOSED,   CLOSED,   CLOSED,  CLOSED,  CLOSED, CLOSED, CLOSED, CLOSED, CLOSED, CLOSED),
    # Nothing passes through the session: `reads_origin` is never true, and no command asks for a relay.
    SocksEvent.ORIGIN_DATA: _NEVER,
    SocksEvent.ORIGIN_LOST: _NEVER,
    SocksEvent.REQUEST_RELAYED: _NEVER,
    SocksEvent.RESPONSE_RELAYED: _NEVER,
})
# fmt: on
"""Every event in every phase of a session. `__`: it can't happen there."""
