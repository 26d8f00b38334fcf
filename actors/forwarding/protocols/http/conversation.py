"""Where a conversation with a client stands, what it has sent that nobody has taken yet, and what is wanted of whom.

The base of `HttpSession`, which alone changes the phase.
"""

from __future__ import annotations

from enum import Enum

from actors.forwarding.protocols.http.exchange import Exchange
from actors.forwarding.protocols.http.head_parser import HEAD_MAX
from actors.forwarding.protocols.session_config import Policy


class Phase(Enum):
    """Where the conversation is; the table is in `actors.forwarding.protocols.http.session`."""

    IDLE = "idle"
    HEAD = "head"
    AUTHORIZE = "authorize"
    OPEN = "open"
    EXCHANGE = "exchange"
    TUNNEL = "tunnel"
    CLOSED = "closed"


class Conversation:
    """The state, the questions about it, and the bytes that are held."""

    __slots__ = (
        "_client_ended",
        "_empty_lines",
        "_exchange",
        "_has_request",
        "_head_size",
        "_in",
        "_is_last",
        "_policy",
        "_searched",
        "_started",
        "deadline",
        "phase",
    )

    def __init__(self, policy: Policy, now: float) -> None:
        self._policy = policy
        self.phase = Phase.IDLE
        self.deadline = now + policy.handshake_timeout
        self._in: bytes | bytearray = b""
        self._searched = 0
        self._head_size = 0
        self._empty_lines = 0
        self._started = now
        self._client_ended = False
        self._is_last = False
        self._has_request = False
        self._exchange: Exchange | None = None

    @property
    def reads_client(self) -> bool:
        """Are bytes of the client wanted now?"""
        if self._client_ended or self.phase is Phase.CLOSED:
            return False
        exchange = self._exchange
        if self.phase is Phase.EXCHANGE and exchange is not None and exchange.request_body is not None:
            return exchange.takes_content
        if self.phase is Phase.IDLE or self.phase is Phase.HEAD:
            return len(self._in) <= HEAD_MAX
        return not self._in  # what is behind a request waits in the kernel, but for one read

    @property
    def reads_origin(self) -> bool:
        """Are bytes of the origin wanted now?"""
        return self.phase is Phase.EXCHANGE

    @property
    def has_request(self) -> bool:
        """Has anything been asked for on this connection?"""
        return self._has_request

    def note_progress(self, now: float) -> None:
        """Bytes have moved on their way to the client: that is no idleness."""
        if self.phase is not Phase.HEAD:  # a head has an absolute deadline
            self.deadline = max(self.deadline, now + self._policy.timeout)

    @property
    def closed(self) -> bool:
        """Is there nothing more to say?"""
        return self.phase is Phase.CLOSED

    @property
    def authorizing(self) -> bool:
        """Is `authorized` awaited?"""
        return self.phase is Phase.AUTHORIZE

    @property
    def opening(self) -> bool:
        """Is `opened` or `failed` awaited?"""
        return self.phase is Phase.OPEN

    @property
    def idle(self) -> bool:
        """Is nothing under way?"""
        return self.phase is Phase.IDLE

    def disable_keep_alive(self) -> None:
        """Let the client's connection end with the exchange that is under way."""
        self._is_last = True

    def adopt(self, policy: Policy) -> None:
        """What the configuration says from now on: for the next request."""
        self._policy = policy

    @property
    def _keeps_alive(self) -> bool:
        return self._policy.keep_alive and not self._is_last

    # --- what the client has sent ---

    def _hold(self, data: bytes) -> None:
        if not self._in:
            self._in = data
        elif isinstance(self._in, bytearray):
            self._in += data
        else:
            self._in = bytearray(self._in) + data

    def _take(self, count: int) -> bytes:
        """Remove and give the first `count` bytes of what is held.

        What stays is cut in place: a thousand requests in one piece are not copied a thousand times.
        """
        held = self._in
        if len(held) == count:
            self._in = b""
            return bytes(held)
        if not isinstance(held, bytearray):
            held = self._in = bytearray(held)
        taken = bytes(held[:count])
        del held[:count]
        return taken
