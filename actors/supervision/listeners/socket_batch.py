"""Many listening sockets as one descriptor, for a store that takes descriptors one by one.

A batch is a message with copies of the sockets that waits in a socket pair. Who keeps the one end keeps the sockets:
they listen, and connections queue. Looking at the message doesn't take it out, so the batch stays whole.
"""

from __future__ import annotations

import array
import os
import socket
from base64 import b32encode
from collections.abc import Collection, Iterable
from hashlib import blake2b

BATCH = 250
"""Sockets of one batch; the kernel takes 253 in one message (SCM_MAX_FD)."""
_PREFIX = "R"
_LENGTH = 6
"""Characters behind it: a name is as long as that of a single socket."""
_WIDTH = array.array("i").itemsize


def carrier_of(listeners: Collection[socket.socket]) -> socket.socket:
    """The end of a socket pair that holds copies of these. Raises `OSError`."""
    sender, carrier = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        with sender:
            socket.send_fds(sender, [b"1"], [each.fileno() for each in listeners])
    except OSError:
        carrier.close()
        raise
    return carrier


def listeners_of(carrier: socket.socket) -> list[socket.socket]:
    """Copies of the sockets that it holds; it still holds them. Raises `OSError`."""
    flags = socket.MSG_PEEK | socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
    _data, parts, _flags, _address = carrier.recvmsg(1, socket.CMSG_SPACE(BATCH * _WIDTH), flags)
    found = array.array("i")
    for level, kind, data in parts:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(data[: len(data) // _WIDTH * _WIDTH])
    return [socket.socket(fileno=each) for each in found]


def batch_name(names: Iterable[str]) -> str:
    """The name of the batch of sockets with these names, which any process computes alike."""
    return _PREFIX + b32encode(blake2b(" ".join(names).encode()).digest()).decode().lower()[:_LENGTH]


def is_batch(name: str, candidate: socket.socket) -> bool:
    """Whether this is one, and no socket that listens."""
    return candidate.family == socket.AF_UNIX and has_name_of_batch(name)


def has_name_of_batch(name: str) -> bool:
    """Whether `batch_name` has made it."""
    return name.startswith(_PREFIX) and len(name) == len(_PREFIX) + _LENGTH


def is_same(former: socket.socket, present: socket.socket) -> bool:
    """Whether the two are copies of one socket. A closed one was a copy that the present one replaces."""
    closed = former.fileno() < 0
    return closed or former is present or os.path.sameopenfile(former.fileno(), present.fileno())


class Batches:
    """Which sockets are in which batch: those that are still used, by name."""

    def __init__(self) -> None:
        self._members: dict[str, dict[str, socket.socket]] = {}
        self._batch_of: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, batch: str) -> bool:
        return batch in self._members

    def has(self, batch: str, members: dict[str, socket.socket]) -> bool:
        """Whether it has just these sockets, or copies of them."""
        known = self._members.get(batch, {})
        return known.keys() == members.keys() and all(is_same(known[name], each) for name, each in members.items())

    def socket_of(self, name: str) -> socket.socket | None:
        """The socket of this name, if it is in a batch."""
        batch = self._batch_of.get(name)
        return None if batch is None else self._members[batch][name]

    def forget(self, batch: str) -> bool:
        """It is to be stored anew. False if there is none."""
        for name in self._members.get(batch, ()):
            del self._batch_of[name]
        return self._members.pop(batch, None) is not None

    def put(self, batch: str, members: dict[str, socket.socket]) -> None:
        """It has these; they are in no other."""
        self._members[batch] = members
        self._batch_of.update(dict.fromkeys(members, batch))

    def leave(self, name: str) -> str | None:
        """The socket of this name isn't used any more, or elsewhere: its batch, None if it was in none."""
        batch = self._batch_of.pop(name, None)
        if batch is not None:
            del self._members[batch][name]
            if not self._members[batch]:
                del self._members[batch]
        return batch

    def members(self, batch: str) -> list[socket.socket]:
        """Its sockets that are open; none of a batch that is gone. A closed one is a copy that another one replaces."""
        known = self._members.get(batch, {})
        for name in [name for name, each in known.items() if each.fileno() < 0]:
            self.leave(name)
        return list(known.values())
