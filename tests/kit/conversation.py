"""A conversation with a session of any protocol: bytes in, commands out; no socket is open here."""

from __future__ import annotations

from typing import Any, Protocol, Self

from actors.forwarding.protocols.commands import Command, ToClient, ToOrigin, Tunnel


class Receiver(Protocol):
    """What all sessions receive."""

    @property
    def closed(self) -> bool: ...

    def receive_from_client(self, data: bytes, now: float) -> list[Command]: ...


class Conversation:
    """A session and everything that has come out of it."""

    def __init__(self, session: Receiver) -> None:
        self._session = session
        self.now = 0.0
        self.out: list[Command] = []

    def client(self, *pieces: bytes) -> Self:
        """Bytes of the client, up to the end of the session: no driver reads for one that has closed."""
        for piece in pieces:
            if self._session.closed:
                break
            self.out += self._session.receive_from_client(piece, self.now)
        return self

    def all(self, kind: type[Any]) -> list[Any]:
        return [command for command in self.out if isinstance(command, kind)]

    @property
    def to_client(self) -> bytes:
        return b"".join(command.data for command in self.all(ToClient))

    @property
    def to_origin(self) -> bytes:
        early = b"".join(command.early for command in self.all(Tunnel))
        return b"".join(command.data for command in self.all(ToOrigin)) + early

    @property
    def kinds(self) -> list[str]:
        return [type(command).__name__ for command in self.out]
