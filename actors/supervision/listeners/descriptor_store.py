"""Copies of listening sockets that outlive this process, kept by systemd (FileDescriptorStoreMax=)."""

from __future__ import annotations

import socket

from actors.supervision import systemd


class DescriptorStore:
    """Without systemd it does nothing."""

    @property
    def outlives(self) -> bool:
        """True if the copies live on when this process ends."""
        return systemd.managed()

    def put(self, listener: socket.socket) -> None:
        """Keep a copy. One that is there already is kept once."""
        if self.outlives:
            systemd.store(stored_name(listener), listener.fileno())

    def drop(self, listener: socket.socket) -> None:
        """Release the copy, before the socket itself is closed. Harmless if there is none."""
        if self.outlives:
            systemd.unstore(stored_name(listener))


def stored_name(listener: socket.socket) -> str:
    """The name of a listening socket in the store, made of its address; systemd allows no colon."""
    host, port = listener.getsockname()[:2]
    return f"tcp-{host}-{port}".replace(":", ".")
