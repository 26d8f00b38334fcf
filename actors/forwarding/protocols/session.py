"""What every client protocol is to the one who drives it: a session that is told what happens and commands what to do.

Sessions have no socket, no clock and no logger. Every input takes the time and gives commands (`commands`), to be
carried out in order. A session is not to be used after `CloseClient` or `Tunnel` came out of it.
"""

from __future__ import annotations

from typing import Protocol

from actors.forwarding.protocols.commands import Command
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.session_config import SessionConfig


class Session(Protocol):
    """The conversation on one client connection."""

    deadline: float
    """When `timed_out` is to be called, by the clock of the inputs."""

    @property
    def reads_client(self) -> bool:
        """Are bytes of the client wanted now? Back-pressure is the answer no."""

    @property
    def reads_origin(self) -> bool:
        """Are bytes of the origin wanted now?"""

    @property
    def idle(self) -> bool:
        """Is nothing under way, between two exchanges?"""

    @property
    def has_request(self) -> bool:
        """Has anything been asked for on this connection?"""

    @property
    def authorizing(self) -> bool:
        """Is `authorized` awaited?"""

    @property
    def opening(self) -> bool:
        """Is `opened` or `failed` awaited?"""

    @property
    def closed(self) -> bool:
        """Is there nothing more to say?"""

    def receive_from_client(self, data: bytes, now: float) -> list[Command]:
        """Bytes of the client; `b""` for the end of what it sends."""

    def receive_from_origin(self, data: bytes, now: float) -> list[Command]:
        """Bytes of the origin; `b""` for the end of what it sends."""

    def authorized(self, user: str | None, now: float) -> list[Command]:
        """The answer to `Authorize`: whose the credentials are; None: they are not good."""

    def opened(
        self, reused: bool, now: float, address: tuple[str, int] | None = None, hop: bytes | None = None, /
    ) -> list[Command]:
        """The answer to `Open`, `Listen` or `Associate`: it is there. They say whose `address` it is, if any.

        With `hop` the other side is a parent proxy that gets the request in absolute-form, with these field lines.
        """

    def failed(self, failure: Failure, now: float) -> list[Command]:
        """The answer to `Open`: there is no connection."""

    def request_relayed(self, count: int, now: float, ended: bool) -> list[Command]:
        """So many bytes were moved for `RelayToOrigin`; `ended`: the client's side ended before the last."""

    def response_relayed(self, count: int, now: float, ended: bool) -> list[Command]:
        """So many bytes were moved for `RelayToClient`; `ended`: the origin's side ended then."""

    def client_disconnected(self, now: float) -> list[Command]:
        """The client's connection broke; nothing can be said to it any more."""

    def origin_disconnected(self, now: float) -> list[Command]:
        """The origin's connection broke."""

    def timed_out(self, now: float) -> list[Command]:
        """`deadline` has passed."""

    def abort(self, reason: str, now: float) -> list[Command]:
        """End it from outside; `reason` goes into the report of what was under way."""

    def note_progress(self, now: float) -> None:
        """Bytes have moved on their way to the client: that is no idleness."""

    def apply_config(self, config: SessionConfig) -> None:
        """What the configuration says from now on; what has been asked for already goes on."""

    def disable_keep_alive(self) -> None:
        """Let the connection end with what is under way."""
