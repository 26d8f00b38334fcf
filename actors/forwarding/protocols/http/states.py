"""The states of an HTTP session and of one exchange within it, as tables that the sessions run on.

A session is a sequence of exchanges, perhaps ending in a tunnel. Within an exchange the request and the response move
independently: a response may come before the request has ended (RFC 9112 9.3.2).
"""

from __future__ import annotations

from enum import StrEnum, auto
from typing import Final

from actors.forwarding.protocols.state_machine import transitions


class HttpPhase(StrEnum):
    """The phase of a session."""

    IDLE = auto()
    """Between two requests; the client may end the connection here."""
    HEAD = auto()
    """A request's head has begun."""
    AUTHORIZE = auto()
    """The credentials of the request are being checked."""
    OPEN = auto()
    """A connection to the origin is being made."""
    EXCHANGE = auto()
    """The request passes to the origin and the response to the client."""
    TUNNEL = auto()
    """The driver has joined both sides; the session has ended."""
    CLOSED = auto()
    """The session has ended with the client's connection."""


class HttpEvent(StrEnum):
    """What happens to a session: the inputs of its driver, and what it concludes from the bytes."""

    CLIENT_DATA = auto()
    """Bytes of the client: they are read, or buffered while the phase has no use for them."""
    CLIENT_END = auto()
    """The client sends no more. It ends a session without a whole request by `CLOSE`."""
    HEAD_BEGINS = auto()
    """The first byte of a head."""
    CREDENTIALS = auto()
    """The head is whole, and its credentials are to be checked."""
    REQUEST = auto()
    """The head is whole, and nothing is to be checked."""
    AUTHORIZED = auto()
    UNAUTHORIZED = auto()
    """The credentials are wrong or missing: `DONE` or `CLOSE` follows."""
    OPENED = auto()
    FAILED = auto()
    """There is no connection to the origin: `DONE` or `CLOSE` follows."""
    ORIGIN_DATA = auto()
    ORIGIN_END = auto()
    ORIGIN_LOST = auto()
    REQUEST_RELAYED = auto()
    RESPONSE_RELAYED = auto()
    RETRY = auto()
    """The origin's connection was dead, or an upstream rejected this proxy: the request is sent again."""
    SWITCHED = auto()
    """The tunnel is agreed on, by CONNECT or by 101."""
    DONE = auto()
    """The response is complete, and the client's connection is kept."""
    TIMED_OUT = auto()
    """The deadline has passed. What follows depends on the phase: `DONE`, `CLOSE` or `ABORT`."""
    CLOSE = auto()
    """The response was the last, or there could be none."""
    CLIENT_LOST = auto()
    ABORT = auto()
    """The end from outside, or of an exchange that can't be completed."""


IDLE: Final[HttpPhase] = HttpPhase.IDLE
HEAD: Final[HttpPhase] = HttpPhase.HEAD
AUTHORIZE: Final[HttpPhase] = HttpPhase.AUTHORIZE
OPEN: Final[HttpPhase] = HttpPhase.OPEN
EXCHANGE: Final[HttpPhase] = HttpPhase.EXCHANGE
TUNNEL: Final[HttpPhase] = HttpPhase.TUNNEL
CLOSED: Final[HttpPhase] = HttpPhase.CLOSED
__ = None

# fmt: off
TRANSITIONS: Final = transitions(HttpPhase, {
    #                           IDLE    HEAD       AUTHORIZE  OPEN      EXCHANGE  TUNNEL  CLOSED
    HttpEvent.CLIENT_DATA:      (IDLE,   HEAD,      AUTHORIZE, OPEN,     EXCHANGE, __,     __),
    HttpEvent.CLIENT_END:       (IDLE,   HEAD,      AUTHORIZE, OPEN,     EXCHANGE, __,     __),
    HttpEvent.HEAD_BEGINS:      (HEAD,   __,        __,        __,       __,       __,     __),
    HttpEvent.CREDENTIALS:      (__,     AUTHORIZE, __,        __,       __,       __,     __),
    HttpEvent.REQUEST:          (__,     OPEN,      __,        __,       __,       __,     __),
    HttpEvent.AUTHORIZED:       (__,     __,        OPEN,      __,       __,       __,     __),
    HttpEvent.UNAUTHORIZED:     (__,     __,        AUTHORIZE, __,       __,       __,     __),
    HttpEvent.OPENED:           (__,     __,        __,        EXCHANGE, __,       __,     __),
    HttpEvent.FAILED:           (__,     __,        __,        OPEN,     __,       __,     __),
    HttpEvent.ORIGIN_DATA:      (__,     __,        __,        __,       EXCHANGE, __,     __),
    HttpEvent.ORIGIN_END:       (__,     __,        __,        __,       EXCHANGE, __,     __),
    HttpEvent.ORIGIN_LOST:      (__,     __,        __,        __,       EXCHANGE, __,     __),
    HttpEvent.REQUEST_RELAYED:  (__,     __,        __,        __,       EXCHANGE, __,     __),
    HttpEvent.RESPONSE_RELAYED: (__,     __,        __,        __,       EXCHANGE, __,     __),
    HttpEvent.RETRY:            (__,     __,        __,        __,       OPEN,     __,     __),
    HttpEvent.SWITCHED:         (__,     __,        __,        __,       TUNNEL,   __,     __),
    HttpEvent.DONE:             (__,     __,        IDLE,      IDLE,     IDLE,     __,     __),
    HttpEvent.TIMED_OUT:        (IDLE,   HEAD,      AUTHORIZE, OPEN,     EXCHANGE, __,     CLOSED),
    HttpEvent.CLOSE:            (CLOSED, CLOSED,    CLOSED,    CLOSED,   CLOSED,   __,     __),
    HttpEvent.CLIENT_LOST:      (CLOSED, CLOSED,    CLOSED,    CLOSED,   CLOSED,   __,     CLOSED),
    HttpEvent.ABORT:            (CLOSED, CLOSED,    CLOSED,    CLOSED,   CLOSED,   CLOSED, CLOSED),
})
# fmt: on
"""Every event in every phase of a session. `__`: it can't happen there."""


class Stage(StrEnum):
    """How far the response of an exchange has come."""

    AWAITED = auto()
    """A head comes next; interim responses (1xx) pass and change nothing."""
    BODY = auto()
    """Content comes next, framed as the head says."""
    COMPLETE = auto()
    """The response has ended; what still comes is no part of it."""
    SWITCHED = auto()
    """101: what comes is another protocol's."""


class ResponsePart(StrEnum):
    """What of a response has come."""

    HEAD = auto()
    """A final head with a body to come."""
    HEAD_ALONE = auto()
    """A final head without a body."""
    SWITCH = auto()
    """The head of a 101."""
    RELAYED = auto()
    """Bytes of the body that the driver has moved."""
    END = auto()
    """The last byte of the body."""


AWAITED: Final[Stage] = Stage.AWAITED
BODY: Final[Stage] = Stage.BODY
COMPLETE: Final[Stage] = Stage.COMPLETE
SWITCHED: Final[Stage] = Stage.SWITCHED

# fmt: off
STAGES: Final = transitions(Stage, {
    #                        AWAITED   BODY      COMPLETE SWITCHED
    ResponsePart.HEAD:       (BODY,     __,       __,      __),
    ResponsePart.HEAD_ALONE: (COMPLETE, __,       __,      __),
    ResponsePart.SWITCH:     (SWITCHED, __,       __,      __),
    ResponsePart.RELAYED:    (__,       BODY,     __,      __),
    ResponsePart.END:        (__,       COMPLETE, __,      __),
})
# fmt: on
"""Every part of a response in every stage of it."""
