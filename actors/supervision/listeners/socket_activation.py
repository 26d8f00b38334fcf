"""Listening sockets that existed before this process.

They have three sources: the descriptor store of systemd (`actors.supervision.listeners.descriptor_store`), where an
older run of the service has put them; a socket unit (`proxyfleet.socket`); and a predecessor that has become this
program (`actors.supervision.upgrade`). All of them listen meanwhile, so that the kernel queues new
connections and refuses none. systemd passes them as sd_listen_fds(3) says: the descriptors from 3 on, their number in
`$LISTEN_FDS`, their names in `$LISTEN_FDNAMES`, and in `$LISTEN_PID` the process that they are meant for.

A socket, alone or in a batch, is recognized by the address that it is bound to, whatever its name. Those that are
unclaimed when all desired listeners are bound are closed, here and in the store.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass

from actors.supervision import systemd
from actors.supervision.fd_limit import raise_limit
from actors.supervision.listeners.bind import BACKLOG, Found, end_listening, listen, resolve
from actors.supervision.listeners.descriptor_store import DescriptorStore, is_batch, is_own, listeners_of

log = logging.getLogger(__name__)


FIRST_DESCRIPTOR = 3

Key = tuple[int, str, int, int]
"""What makes two sockets the same to a client: family, address, port, and the scope of an IPv6 address."""


@dataclass(frozen=True, slots=True)
class _Inherited:
    name: str
    socket: socket.socket


class InheritedListeners:
    """The sockets that were passed to this process. `listen` claims them by address."""

    def __init__(self, given: Iterable[tuple[str, socket.socket]] = (), store: DescriptorStore | None = None) -> None:
        self.store = store or DescriptorStore()
        self._unclaimed: dict[Key, _Inherited] = {}
        for name, listener in given:
            if is_batch(name, listener):
                self._add_batch(name, listener)
            elif _listens(listener):
                self._add(_Inherited(name, listener))
            else:
                log.warning("closing the inherited descriptor %s: not a listening TCP socket", name)
                systemd.unstore(name)
                listener.close()

    def listen(self, host: str, port: int, shared: bool = False) -> socket.socket:
        """The inherited socket with this address, or else one of `bind.listen`. Raises `ListenError`."""
        inherited = self._unclaimed.pop(_key(resolve(host, port)), None) if self._unclaimed else None
        if inherited is None:
            return listen(host, port, shared)
        self.store.claimed(inherited.name, inherited.socket)
        inherited.socket.listen(BACKLOG)
        inherited.socket.setblocking(False)
        return inherited.socket

    def close_unclaimed(self) -> None:
        """Close the rest, when all desired listeners are bound."""
        for inherited in self._unclaimed.values():
            host, port = inherited.socket.getsockname()[:2]
            log.warning("nothing is configured for the inherited socket %s at %s port %s", inherited.name, host, port)
            if is_own(inherited.name, inherited.socket):
                self.store.drop(inherited.socket)
                end_listening(inherited.socket)
            else:
                systemd.unstore(inherited.name)
                inherited.socket.close()  # a socket unit's, which listens on for whatever the operator wants there
        self._unclaimed.clear()

    def _add_batch(self, name: str, carrier: socket.socket) -> None:
        """Those of a batch that listen; the others were used no more when it was to be stored anew."""
        raise_limit()
        with carrier:
            try:
                found = listeners_of(carrier)
            except OSError as error:
                log.warning("cannot use the inherited batch %s: %s", name, error)
                found = []
        members = [each for each in found if _listens(each) and self._add(_Inherited(name, each))]
        for each in found:
            if each not in members:
                each.close()
        if members:
            self.store.inherited_batch(name, members)
        else:
            systemd.unstore(name)

    def _add(self, inherited: _Inherited) -> bool:
        """False for one whose address is known already."""
        key = _key((inherited.socket.family, inherited.socket.getsockname()))
        if key in self._unclaimed:
            inherited.socket.close()  # the same address again: from the store and from a socket unit
            return False
        self._unclaimed[key] = inherited
        return True


def from_manager(environ: MutableMapping[str, str]) -> list[tuple[str, socket.socket]]:
    """The sockets that systemd passed to this very process, with their names; removed from `environ`."""
    owner, count, names = (environ.pop(f"LISTEN_{each}", "") for each in ("PID", "FDS", "FDNAMES"))
    if owner != str(os.getpid()) or not count.isascii() or not count.isdigit():
        return []
    named = [*names.split(":"), *[""] * int(count)]
    given = [(named[index], adopt(FIRST_DESCRIPTOR + index, named[index])) for index in range(int(count))]
    return [(name, each) for name, each in given if each is not None]


def adopt(descriptor: int, name: str) -> socket.socket | None:
    """The descriptor as a socket that no child inherits by accident; None when it is not a socket.

    Such a one is closed, here and in the store: it would come again at each start.
    """
    try:
        os.set_inheritable(descriptor, False)
        return socket.socket(fileno=descriptor)
    except OSError as error:
        log.warning("cannot use the inherited descriptor %s: %s", name or descriptor, error.strerror)
        systemd.unstore(name)
        if error.errno != errno.EBADF:
            os.close(descriptor)
        return None


def _listens(candidate: socket.socket) -> bool:
    if candidate.family not in (socket.AF_INET, socket.AF_INET6) or candidate.type != socket.SOCK_STREAM:
        return False
    return bool(candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _key(address: Found) -> Key:
    family, name = address
    return family, str(name[0]).partition("%")[0], int(name[1]), int(name[3]) if family == socket.AF_INET6 else 0
