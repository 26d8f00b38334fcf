"""The interface of all client protocols to their driver: a session takes what happens and returns commands.

Sessions have no socket, no clock and no logger. Every input takes the time and returns commands (`commands`), to be
executed in order. An input that the phase excludes raises `IllegalEventError` and changes nothing. A session is not to
be used after it returned `CloseClient`, `Tunnel` or `RelayDatagrams`.
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
        """True while bytes of the client are wanted; False is the back-pressure."""

    @property
    def reads_origin(self) -> bool:
        """True while bytes of the origin are wanted."""

    @property
    def idle(self) -> bool:
        """True before the first and between two exchanges."""

    @property
    def has_request(self) -> bool:
        """True once a request has come on this connection."""

    @property
    def authorizing(self) -> bool:
        """True while `authorized` is awaited."""

    @property
    def opening(self) -> bool:
        """True while `opened` or `failed` is awaited."""

    @property
    def closed(self) -> bool:
        """True once the session has ended with the client's connection."""

    def receive_from_client(self, data: bytes, now: float) -> list[Command]:
        """Bytes of the client; `b""` for the end of what it sends."""

    def receive_from_origin(self, data: bytes, now: float) -> list[Command]:
        """Bytes of the origin; `b""` for the end of what it sends."""

    def authorized(self, user: str | None, now: float) -> list[Command]:
        """The reply to `Authorize`: the user of the credentials; None when they are wrong or missing."""

    def opened(
        self, reused: bool, now: float, address: tuple[str, int] | None = None, hop: bytes | None = None, /
    ) -> list[Command]:
        """The reply to `Open`, `Listen` or `Associate`: it is there. They say what `address` is of, if any.

        With `hop` the other side is an upstream proxy that gets the request in absolute-form, with these field lines.
        """

    def failed(self, failure: Failure, now: float) -> list[Command]:
        """The reply to `Open`, `Listen` or `Associate`: it can't be had."""

    def request_relayed(self, count: int, now: float, ended: bool) -> list[Command]:
        """`count` bytes were moved for `RelayToOrigin`; `ended`: the client's side ended before the last."""

    def response_relayed(self, count: int, now: float, ended: bool) -> list[Command]:
        """`count` bytes were moved for `RelayToClient`; `ended`: the origin's side ended then."""

    def client_disconnected(self, now: float) -> list[Command]:
        """The client's connection broke; nothing can be sent to it any more."""

    def origin_disconnected(self, now: float) -> list[Command]:
        """The origin's connection broke."""

    def timed_out(self, now: float) -> list[Command]:
        """`deadline` has passed."""

    def abort(self, reason: str, now: float) -> list[Command]:
        """End it from outside; `reason` goes into the report of what was under way."""

    def note_progress(self, now: float) -> None:
        """Bytes have moved on their way to the client, so the deadline of silence is put off."""

    def apply_config(self, config: SessionConfig) -> None:
        """Use this configuration from now on; a request that is under way is not affected."""

    def disable_keep_alive(self) -> None:
        """Close the client's connection after the exchange that is under way."""
