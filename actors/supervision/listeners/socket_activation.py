"""Listening sockets that were there before this process was, and the copies that outlive it.

Three things give sockets to a new supervisor: the store of descriptors of systemd (FileDescriptorStoreMax=), where an
older run of the service has put them; a socket unit (`proxyfleet.socket`); and an older program that has become this
one (`actors.supervision.upgrade.upgrade`). All of them listen meanwhile, so that the kernel queues new connections and
refuses none. systemd passes them as sd_listen_fds(3) says: the descriptors from 3 on, their number in `$LISTEN_FDS`,
their names in `$LISTEN_FDNAMES`, and in `$LISTEN_PID` whose they are.

A socket is known again by the address that it is bound to, whatever its name says. What nobody has asked for when all
wished listeners are bound is closed, here and in the store.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass

from actors.net.listener_drain import accept_syns_again
from actors.supervision import systemd
from actors.supervision.listeners.registry import BACKLOG, Resolved, end_listening, listen, resolve

log = logging.getLogger(__name__)

FIRST_DESCRIPTOR = 3

Key = tuple[int, str, int, int]
"""What makes two sockets the same to a client: family, address, port, and the scope of an IPv6 address."""


@dataclass(frozen=True, slots=True)
class _Given:
    name: str
    socket: socket.socket


class Store:
    """Copies of listening sockets that outlive this process, kept by systemd. Without systemd it does nothing."""

    @property
    def outlives(self) -> bool:
        """Do the copies live on when this process ends?"""
        return systemd.managed()

    def put(self, listener: socket.socket) -> None:
        """Keep a copy. One that is there already is kept once."""
        if self.outlives:
            systemd.store(stored_name(listener), listener.fileno())

    def drop(self, listener: socket.socket) -> None:
        """Let the copy go, before the socket itself ends. Harmless if there is none."""
        if self.outlives:
            systemd.unstore(stored_name(listener))


class InheritedListeners:
    """The sockets that were given to this process and that nobody has asked for yet."""

    def __init__(self, given: Iterable[tuple[str, socket.socket]] = (), store: Store | None = None) -> None:
        self.store = store or Store()
        self._unclaimed: dict[Key, _Given] = {}
        for name, listener in given:
            self._take(_Given(name, listener))

    def listen(self, host: str, port: int, shared: bool = False) -> socket.socket:
        """As `sockets.listen`, but of the sockets that were given, if one has this address. Raises `ListenError`."""
        given = self._unclaimed.pop(_key(resolve(host, port)), None) if self._unclaimed else None
        if given is None:
            return listen(host, port, shared)
        given.socket.listen(BACKLOG)
        given.socket.setblocking(False)
        return given.socket

    def end_unclaimed(self) -> None:
        """All wished listeners are bound: nobody is going to ask for the rest."""
        for given in self._unclaimed.values():
            host, port = given.socket.getsockname()[:2]
            log.warning("nothing is configured for the inherited socket %s at %s port %s", given.name, host, port)
            self._end(given)
        self._unclaimed.clear()

    def _take(self, given: _Given) -> None:
        if not _listens(given.socket):
            log.warning("the inherited descriptor %s is no listening TCP socket and is closed", given.name)
            systemd.unstore(given.name)
            given.socket.close()
            return
        accept_syns_again(given.socket)  # an address that was left, and is wanted again, or is a socket unit's
        key = _key((given.socket.family, given.socket.getsockname()))
        if key in self._unclaimed:
            given.socket.close()  # the same address again: from the store and from a socket unit
        else:
            self._unclaimed[key] = given

    def _end(self, given: _Given) -> None:
        systemd.unstore(given.name)
        if given.name == stored_name(given.socket):
            end_listening(given.socket)
        else:
            given.socket.close()  # a socket unit's, which goes on listening for whatever the operator wants there


def stored_name(listener: socket.socket) -> str:
    """The name of a listening socket in the store, told by its address; systemd allows no colon."""
    host, port = listener.getsockname()[:2]
    return f"tcp-{host}-{port}".replace(":", ".")


def from_manager(environ: MutableMapping[str, str]) -> list[tuple[str, socket.socket]]:
    """The sockets that systemd has passed to this very process, with their names; taken out of `environ`."""
    owner, count, names = (environ.pop(f"LISTEN_{each}", "") for each in ("PID", "FDS", "FDNAMES"))
    if owner != str(os.getpid()) or not count.isascii() or not count.isdigit():
        return []
    named = [*names.split(":"), *[""] * int(count)]
    given = [(named[index], adopt(FIRST_DESCRIPTOR + index, named[index])) for index in range(int(count))]
    return [(name, each) for name, each in given if each is not None]


def adopt(descriptor: int, name: str) -> socket.socket | None:
    """The descriptor as a socket that no child inherits by accident.

    What is no socket is closed, here and in the store: it would come again at each start.
    """
    try:
        os.set_inheritable(descriptor, False)
        return socket.socket(fileno=descriptor)
    except OSError as error:
        log.warning("the inherited descriptor %s is not taken: %s", name or descriptor, error.strerror)
        systemd.unstore(name)
        if error.errno != errno.EBADF:
            os.close(descriptor)
        return None


def _listens(candidate: socket.socket) -> bool:
    if candidate.family not in (socket.AF_INET, socket.AF_INET6) or candidate.type != socket.SOCK_STREAM:
        return False
    return bool(candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _key(address: Resolved) -> Key:
    family, name = address
    return family, str(name[0]).partition("%")[0], int(name[1]), int(name[3]) if family == socket.AF_INET6 else 0
