"""The address of the management API, and how it is changed while the product runs.

The new socket is bound before anything is stored (`prepare`), so an address that can't be bound changes nothing. When
the change is effective (`switch`) the supervisor keeps the new socket for all later starts of the API and hands a copy
to the API that runs, as a datagram with a descriptor (unix(7), SCM_RIGHTS) to `RunDir.api_handover`. The API responds
to the request that changed it, and then accepts at the new socket; until then new connections queue in the kernel.
Clients that have begun to connect to the old socket are served there, and then it is closed
(`actors.net.listener_drain`). An API that has died meanwhile gets the new socket at its next start.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from actors.supervision.listeners.bind import BACKLOG, listen, sharing
from actors.supervision.listeners.descriptor_store import DescriptorStore
from actors.supervision.listeners.registry import RESERVED_FOR
from config.files.paths import RunDir

log = logging.getLogger(__name__)

Address = tuple[str, int]

LEFT_WITHIN = 10.0
"""Seconds within which an API has closed its previous socket (`api.server.listener_handover.ACTIVATION_TIMEOUT` and a
drain)."""


@dataclass(slots=True)
class _Reservation:
    address: Address
    socket: socket.socket
    expires: float


class ApiListener:
    """Where the API listens. `socket` is the supervisor's own copy of the listening socket; `clock` is monotonic."""

    def __init__(
        self,
        listener: socket.socket,
        address: Address,
        run: RunDir,
        clock: Callable[[], float],
        store: DescriptorStore | None = None,
    ) -> None:
        self.socket = listener
        self._store = store or DescriptorStore()
        self._store.put(listener)
        self.address = address
        """As it was configured: the host may be a name."""
        self._receiver = run.api_handover
        self._clock = clock
        self._reservation: _Reservation | None = None
        self._left: dict[Address, float] = {}
        """Addresses at which the API may still be serving the last connections, and until when."""

    @property
    def bound(self) -> Address:
        """As the kernel reports it."""
        host, port = self.socket.getsockname()[:2]
        return str(host), int(port)

    def prepare(self, address: Address) -> None:
        """Bind `address`, if it is another one, and reserve it for `RESERVED_FOR` seconds. Raises `ListenError`.

        A reservation of another address is closed.
        """
        self.expire_reservation()
        if self._reservation is not None and self._reservation.address == address:
            return
        self._cancel_reservation()
        if address == self.address:
            return
        with sharing([self.socket] if address[1] == self.address[1] else []):  # another host may overlap (`0.0.0.0`)
            listener = listen(*address, shared=address[1] == self.address[1] or address in self._left)
        self._reservation = _Reservation(address, listener, self._clock() + RESERVED_FOR)

    def switch(self, address: Address) -> None:
        """Listen at this address from now on. Raises `ListenError` if it was not prepared and can't be bound now."""
        if address == self.address:
            return
        self.prepare(address)
        reservation, self._reservation = self._reservation, None
        if reservation is None:
            return
        self._send_to_api(reservation.socket)
        older, self.socket = self.socket, reservation.socket
        self._left[self.address] = self._clock() + LEFT_WITHIN
        self.address = address
        self._store.put(self.socket)
        self._store.drop(older)
        older.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # it may be wanted again before that is closed
        older.close()  # the API has its own copy, and closes it when the last connections are served

    def expire_reservation(self) -> None:
        """Close a reserved socket whose time is up."""
        self._left = {address: until for address, until in self._left.items() if until > self._clock()}
        if self._reservation is not None and self._reservation.expires <= self._clock():
            self._cancel_reservation()

    def close(self) -> None:
        """Close the reserved socket and this process's copy of the other."""
        self._cancel_reservation()
        self.socket.close()

    def _cancel_reservation(self) -> None:
        if self._reservation is not None:
            self._reservation.socket.close()
            self._reservation = None

    def _send_to_api(self, listener: socket.socket) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.connect(str(self._receiver))
                socket.send_fds(sender, [b"listen"], [listener.fileno()])
        except OSError as error:
            log.warning("cannot pass the new socket to the API, whose next start gets it: %s", error)


def inner_listener(path: Path) -> socket.socket:
    """Where the API listens behind its TLS terminator; the run directory, 0700 and locked, keeps all others out."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener
