"""The address of the management API, and how it is changed while the product runs.

The new socket is bound before anything is stored (`prepare`), so an address that can't be had changes nothing. With
the change in force (`switch`) the supervisor keeps the new socket for all later starts of the API and hands a copy to
the API that runs, as a datagram with a descriptor (unix(7), SCM_RIGHTS) to `RunDir.api_door`. The API answers the
request that asked for it, and then accepts at the new socket; until then new connections queue in the kernel. Who has
begun to connect to the old socket is answered there, and then it is closed (`actors.net.listener_drain`). An API that
has died meanwhile finds the new socket at its next start.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass

from actors.supervision.listeners.registry import RESERVED_FOR, Store, listen, sharing
from config.files.paths import RunDir

log = logging.getLogger(__name__)

Address = tuple[str, int]

LEFT_WITHIN = 10.0
"""Seconds within which an API has closed its previous socket
(`api.server.listener_handover.ACTIVATION_TIMEOUT`
and a last call)."""


@dataclass(slots=True)
class _Reserved:
    address: Address
    socket: socket.socket
    lapses: float


class ApiListener:
    """Where the API listens. `socket` is the supervisor's own copy of the listening socket; `clock` is monotonic."""

    def __init__(
        self,
        listener: socket.socket,
        address: Address,
        run: RunDir,
        clock: Callable[[], float],
        store: Store | None = None,
    ) -> None:
        self.socket = listener
        self._store = store
        if store is not None:
            store.put(listener)
        self.address = address
        """As it was asked for: the host may be a name."""
        self._door = run.api_door
        self._clock = clock
        self._reserved: _Reserved | None = None
        self._left: dict[Address, float] = {}
        """Addresses at which the API may still be answering the last ones, and until when."""

    @property
    def bound(self) -> Address:
        """As the kernel says it."""
        host, port = self.socket.getsockname()[:2]
        return str(host), int(port)

    def prepare(self, address: Address) -> None:
        """Bind `address`, if it is another one, and hold it for a while. Raises `ListenError`.

        What was prepared before and is another one still is let go.
        """
        self.lapse()
        if self._reserved is not None and self._reserved.address == address:
            return
        self._let_go()
        if address == self.address:
            return
        with sharing([self.socket] if address[1] == self.address[1] else []):  # another host may overlap (`0.0.0.0`)
            listener = listen(*address, shared=address[1] == self.address[1] or address in self._left)
        self._reserved = _Reserved(address, listener, self._clock() + RESERVED_FOR)

    def switch(self, address: Address) -> None:
        """This is the address from now on. Raises `ListenError` when it was not prepared and can't be bound now."""
        if address == self.address:
            return
        self.prepare(address)
        reserved, self._reserved = self._reserved, None
        if reserved is None:
            return
        self._hand_over(reserved.socket)
        older, self.socket = self.socket, reserved.socket
        self._left[self.address] = self._clock() + LEFT_WITHIN
        self.address = address
        if self._store is not None:
            self._store.put(self.socket)
            self._store.drop(older)
        older.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # it may be wanted again before that is closed
        older.close()  # the API has its own copy, and closes it when the last ones are answered

    def lapse(self) -> None:
        """Let go what was prepared and never switched to, when its time is over."""
        self._left = {address: until for address, until in self._left.items() if until > self._clock()}
        if self._reserved is not None and self._reserved.lapses <= self._clock():
            self._let_go()

    def close(self) -> None:
        """Listen no more."""
        self._let_go()
        self.socket.close()

    def _let_go(self) -> None:
        if self._reserved is not None:
            self._reserved.socket.close()
            self._reserved = None

    def _hand_over(self, listener: socket.socket) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.connect(str(self._door))
                socket.send_fds(sender, [b"listen"], [listener.fileno()])
        except OSError as error:
            log.warning("the API is not there to take its new socket (%s); its next start has it", error)
