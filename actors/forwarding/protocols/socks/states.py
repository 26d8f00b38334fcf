"""The states of a SOCKS session as a table that the sessions run on.

SOCKS5 begins with GREETING, SOCKS4 with REQUEST, and asks for no PASSWORD: its request names the user.
"""

from __future__ import annotations

from enum import StrEnum, auto
from typing import Final

from actors.forwarding.protocols.state_machine import transitions


class Phase(StrEnum):
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


class Event(StrEnum):
    """What happens to a session: the inputs of its driver, and what it concludes from the bytes."""

    CLIENT_DATA = auto()
    """Bytes of the client: they are read, or held for the tunnel."""
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


GREETING: Final[Phase] = Phase.GREETING
PASSWORD: Final[Phase] = Phase.PASSWORD
REQUEST: Final[Phase] = Phase.REQUEST
AUTHORIZE: Final[Phase] = Phase.AUTHORIZE
OPEN: Final[Phase] = Phase.OPEN
LISTEN: Final[Phase] = Phase.LISTEN
PEER: Final[Phase] = Phase.PEER
RELAY: Final[Phase] = Phase.RELAY
TUNNEL: Final[Phase] = Phase.TUNNEL
CLOSED: Final[Phase] = Phase.CLOSED
__ = None
_NEVER = (None,) * len(Phase)

# fmt: off
TRANSITIONS: Final = transitions(Phase, {
    #                      GREETING  PASSWORD   REQUEST    AUTHORIZE  OPEN    LISTEN  PEER    RELAY   TUNNEL  CLOSED
    Event.CLIENT_DATA:    (GREETING, PASSWORD,  REQUEST,   AUTHORIZE, OPEN,   LISTEN, PEER,   RELAY,  __,     __),
    Event.CLIENT_END:     (GREETING, PASSWORD,  REQUEST,   AUTHORIZE, OPEN,   LISTEN, PEER,   RELAY,  __,     __),
    Event.NO_CREDENTIALS: (REQUEST,  __,        __,        __,        __,     __,     __,     __,     __,     __),
    Event.PASSWORD:       (PASSWORD, __,        __,        __,        __,     __,     __,     __,     __,     __),
    Event.CHECK:          (__,       AUTHORIZE, AUTHORIZE, __,        __,     __,     __,     __,     __,     __),
    Event.AUTHORIZED:     (__,       __,        __,        REQUEST,   __,     __,     __,     __,     __,     __),
    Event.UNAUTHORIZED:   (__,       __,        __,        AUTHORIZE, __,     __,     __,     __,     __,     __),
    Event.CONNECT:        (__,       __,        OPEN,      __,        __,     __,     __,     __,     __,     __),
    Event.BIND:           (__,       __,        LISTEN,    __,        __,     __,     __,     __,     __,     __),
    Event.UDP:            (__,       __,        RELAY,     __,        __,     __,     __,     __,     __,     __),
    Event.OPENED:         (__,       __,        __,        __,        TUNNEL, PEER,   TUNNEL, TUNNEL, __,     __),
    Event.FAILED:         (__,       __,        __,        __,        OPEN,   LISTEN, PEER,   RELAY,  __,     __),
    Event.TIMED_OUT:      (GREETING, PASSWORD,  REQUEST,   AUTHORIZE, OPEN,   LISTEN, PEER,   RELAY,  __,     CLOSED),
    Event.CLOSE:          (CLOSED,   CLOSED,    CLOSED,    CLOSED,    CLOSED, CLOSED, CLOSED, CLOSED, __,     __),
    Event.CLIENT_LOST:    (CLOSED,   CLOSED,    CLOSED,    CLOSED,    CLOSED, CLOSED, CLOSED, CLOSED, __,     CLOSED),
    Event.ABORT:          (CLOSED,   CLOSED,    CLOSED,    CLOSED,    CLOSED, CLOSED, CLOSED, CLOSED, CLOSED, CLOSED),
    # Nothing passes through the session: `reads_origin` is never true, and no command asks for a relay.
    Event.ORIGIN_DATA: _NEVER,
    Event.ORIGIN_LOST: _NEVER,
    Event.REQUEST_RELAYED: _NEVER,
    Event.RESPONSE_RELAYED: _NEVER,
})
# fmt: on
"""Every event in every phase of a session. `__`: it can't happen there."""
