"""The sockets of a UDP association: one for the client's datagrams, others from which they leave for their targets."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from typing import Final

from actors.forwarding.net.egress import BIND_ADDRESS, Stated
from actors.forwarding.net.source_address import Source
from actors.net.socks_wire import Endpoint

SOCKETS_MAX: Final = 64
"""Of one association: each address that datagrams leave from needs one."""


def relay_socket(control: Endpoint) -> socket.socket:
    """The socket to which a client sends its datagrams, at the address of its connection. Raises `OSError`."""
    family = socket.AF_INET6 if ":" in control[0] else socket.AF_INET
    return _datagram_socket(family, lambda sock: sock.bind((control[0], 0)))


def _datagram_socket(family: socket.AddressFamily, bind: Callable[[socket.socket], None]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        if family is socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bind(sock)
    except BaseException:
        sock.close()
        raise
    return sock


class DatagramSockets:
    """Sockets from which datagrams leave, by address, each made when the first one does.

    `watch` begins to read from one, `unwatch` ends that for a descriptor.
    """

    __slots__ = ("_chosen", "_sockets", "_unwatch", "_watch")

    def __init__(self, watch: Callable[[socket.socket], None], unwatch: Callable[[int], None]) -> None:
        self._watch = watch
        self._unwatch = unwatch
        self._sockets: dict[tuple[socket.AddressFamily, str], socket.socket] = {}
        self._chosen: dict[Stated, Source] = {}

    def chosen(self, stated: Stated, choose: Callable[[], Source]) -> Source:
        """Where datagrams leave from by an entry of the configuration: chosen once."""
        source = self._chosen.get(stated)
        if source is None:
            source = self._chosen[stated] = choose()
        return source

    def towards(self, host: str, source: Source) -> socket.socket:
        """The socket for datagrams to an address. Raises `OSError`."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        key = family, source.of(family)
        sock = self._sockets.get(key)
        if sock is None:
            if len(self._sockets) >= SOCKETS_MAX:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            sock = self._sockets[key] = _datagram_socket(family, lambda made: _bind(made, source))
            self._watch(sock)
        return sock

    @property
    def rule(self) -> str:
        """What of the configuration has said first where datagrams leave from, empty where nothing has."""
        plain = BIND_ADDRESS if any(address for _family, address in self._sockets) else ""
        return next((stated.rule for stated in self._chosen), plain)

    def close(self) -> None:
        """Close them all; there are none any more."""
        for sock in self._sockets.values():
            self._unwatch(sock.fileno())
            sock.close()
        self._watch = _refuse  # it is a method of what holds this, and a cycle would wait for the garbage collector

    def __repr__(self) -> str:
        return f"<DatagramSockets: {len(self._sockets)}>"


def _bind(sock: socket.socket, source: Source) -> None:
    if source.of(sock.family):
        source.bind(sock)
    else:
        sock.bind(("::" if sock.family == socket.AF_INET6 else "0.0.0.0", 0))  # noqa: S104


def _refuse(_sock: socket.socket) -> None:
    raise OSError(errno.EBADF, os.strerror(errno.EBADF))
