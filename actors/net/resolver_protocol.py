"""How actors ask the resolver: packets on a Unix socket (SOCK_SEQPACKET) in the run directory, each a msgpack array.

=========================================  ===================================================================
packet                                     meaning
=========================================  ===================================================================
`[0, servers, min_ttl, max_ttl, proxy]`    actor: how its names are resolved from now on; `servers` empty: as the
                                           system does. `proxy` is whose servers they are, empty where they are
                                           those of all. First of all, and again when it changes
`[number, name, client]`                   actor: a request; `client` is whose turn it costs
`[-1]`                                     actor: are you there?
`[0]`                                      resolver: yes
`[number, status, ttl, addresses]`         resolver: `FOUND`, or `SOME` of the addresses when the rest is late
`[number, status, ttl, detail]`            resolver: why there are none; `BUSY`: for this client alone, `NEGATIVE`:
                                           by what a name server says
`[-1, name]`                               resolver: forget this name, all names if it is empty
=========================================  ===================================================================

Numbers of requests are greater than 0. `ttl` is the seconds for which the reply holds.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

import msgpack

from actors.bus.loop import Loop

PROFILE, PING, PONG, FORGET = 0, -1, 0, -1
SOME, FOUND, FAILED, TIMED_OUT, BUSY, SYSTEM, NEGATIVE = range(7)
"""The status of a reply. `SYSTEM`: the name has to be resolved by the system's own means."""
PACKET_MAX = 16 * 1024
AT_ONCE = 64
"""Packets that are read from one connection before others get their turn."""


class PacketLink:
    """One end of a connection. `received` gets each packet as it came; `ended` is called once when the other end is
    gone, later than in the call that notices it, and not after `close`."""

    def __init__(
        self, loop: Loop, sock: socket.socket, received: Callable[[bytes], None], ended: Callable[[], None]
    ) -> None:
        self.is_open = True
        self._loop = loop
        self._socket = sock
        self._received = received
        self._ended = ended
        self._unsent: deque[bytes] = deque()
        loop.watch(sock.fileno(), select.EPOLLIN, self._on_ready)

    @property
    def waiting(self) -> int:
        """How many packets wait for the other end to read."""
        return len(self._unsent)

    def send(self, packet: list[Any]) -> None:
        """Send a packet, or have it wait until the other end reads again."""
        if self.is_open:
            self._unsent.append(msgpack.packb(packet))
            if len(self._unsent) == 1:
                self._flush()

    def close(self) -> None:
        """Close it."""
        if self.is_open:
            self.is_open = False
            self._unsent.clear()
            self._loop.unwatch(self._socket.fileno())
            self._socket.close()

    def _end(self) -> None:
        if self.is_open:
            self.close()
            self._ended()

    def _flush(self) -> None:
        try:
            while self._unsent:
                self._socket.send(self._unsent[0])
                self._unsent.popleft()
        except BlockingIOError:
            if len(self._unsent) == 1:
                self._watch(select.EPOLLIN | select.EPOLLOUT)
        except OSError:
            self._loop.call_soon(self._end)

    def _watch(self, mask: int) -> None:
        self._loop.unwatch(self._socket.fileno())
        self._loop.watch(self._socket.fileno(), mask, self._on_ready)

    def _on_ready(self, mask: int) -> None:
        if mask & select.EPOLLOUT and self._unsent:
            self._flush()
            if not self._unsent:
                self._watch(select.EPOLLIN)
        for _ in self._loop.while_time(range(AT_ONCE)):
            if not self.is_open:
                return
            try:
                packet = self._socket.recv(PACKET_MAX)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                self._end()
                return
            self._received(packet)
