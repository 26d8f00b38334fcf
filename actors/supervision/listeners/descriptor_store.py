"""Copies of listening sockets that outlive this process, kept by systemd (FileDescriptorStoreMax=).

systemd passes the names of all of them to the next start in one environment variable, and the kernel takes none above
128 KiB (execve(2), MAX_ARG_STRLEN): with longer names, or more of them, the service could not be started any more. So
names are short, and no more than `STORED_MAX` are stored.

The sockets of a range of ports are stored together, as one descriptor (`Batches`), so that they are there in a moment:
systemd compares each descriptor with all that it has, and for thousands it would need long. When some of them are used
no more, the others are stored together anew, and what had all of them is released.

A batch is a message with copies of the sockets that waits in a socket pair. Who keeps the one end keeps the sockets:
they listen, and connections queue. Looking at the message doesn't take it out, so the batch stays whole.
"""

from __future__ import annotations

import array
import itertools
import logging
import os
import socket
import time
from base64 import b32encode
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from actors.supervision import systemd

log = logging.getLogger(__name__)


BATCH = 250
"""Sockets of one batch; the kernel takes 253 in one message (SCM_MAX_FD)."""
_PREFIX = "R"
_BATCH_LENGTH = 6
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
    return _PREFIX + b32encode(blake2b(" ".join(names).encode()).digest()).decode().lower()[:_BATCH_LENGTH]


def is_batch(name: str, candidate: socket.socket) -> bool:
    """Whether this is one, and no socket that listens."""
    return candidate.family == socket.AF_UNIX and has_name_of_batch(name)


def has_name_of_batch(name: str) -> bool:
    """Whether `batch_name` has made it."""
    return name.startswith(_PREFIX) and len(name) == len(_PREFIX) + _BATCH_LENGTH


def is_same(previous: socket.socket, present: socket.socket) -> bool:
    """Whether the two are copies of one socket. A closed one was a copy that the present one replaces."""
    closed = previous.fileno() < 0
    return closed or previous is present or os.path.sameopenfile(previous.fileno(), present.fileno())


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


HANDED_OVER = "handed over"
"""In place of a name: a listening socket of the program before this one, stored under either of its names."""
STORED_MAX = 16_000
"""Sockets whose names, with a colon behind each, stay below 128 KiB together."""
AT_ONCE = 5
"""Messages that are sent in one turn of the loop at most."""
PAUSE = 0.02
BUSY_PAUSE = 0.5
"""Seconds until more are sent. systemd compares each new socket with all that it has, and does nothing else while
messages wait: thousands of sockets must not keep it from everything else."""
TAKEN_WITHIN = 0.2
"""Seconds that a new range waits for systemd to take its batches; what is left is sent later."""
FLUSH_MAX = 5.0
"""Seconds that the end of the product may take for what is left to send; the rest is not stored."""
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_LENGTH = 7
"""Digits of a name: among so many sockets two have the same name once in six hundred installations."""


Later = Callable[[float, Callable[[], None]], object]


class DescriptorStore:
    """Without systemd it does nothing.

    The manager takes a few messages at a time, and a range of ports has thousands: with `later` (seconds and a call)
    they are sent a few at a time, in order, and what is to end in good order calls `flush`.
    """

    def __init__(self) -> None:
        self.later: Later | None = None
        self._stored: dict[str, socket.socket] = {}
        """Those that are stored one by one, by name."""
        self._inherited: set[str] = set()
        """Names of copies that the manager has passed on and still has."""
        self._batches = Batches()
        self._to_renew: set[str] = set()
        """Batches of which some sockets are used no more."""
        self._handed_over = False
        """Whether the program before this one has stored what is not known here."""
        self._is_full = False
        self._unsent: dict[int, _Message] = {}
        self._last_of: dict[str, int] = {}
        """The number of the last unsent message about each name."""
        self._numbers = itertools.count()
        self._scheduled = False

    @property
    def outlives(self) -> bool:
        """True if the copies live on when this process ends."""
        return systemd.managed()

    def put(self, listener: socket.socket) -> None:
        """Keep a copy, unless there are too many. One that is there already is kept once."""
        if not self.outlives:
            return
        name = stored_name(listener)
        if name in self._inherited:
            self._inherited.discard(name)
            self._stored[name] = listener
        elif name in self._stored or len(self._stored) + len(self._batches) < STORED_MAX:
            self._stored[name] = listener
            self._add(_Message(name, listener))
            self._leave_batch(name)
        elif not self._is_full:
            self._is_full = True
            log.warning(
                "systemd keeps %d listening sockets; connections to the others are refused while the service restarts",
                STORED_MAX,
            )

    def put_all(self, listeners: Sequence[socket.socket]) -> None:
        """Keep copies of all sockets of a proxy, of several in batches, which are sent at once if systemd takes them.

        Its callers rely on it as soon as the response is there, also if this process is killed then.
        """
        if len(listeners) == 1:
            self.put(listeners[0])
        elif self.outlives:
            for first in range(0, len(listeners), BATCH):
                self._put_batch(listeners[first : first + BATCH])
            deadline = time.monotonic() + TAKEN_WITHIN
            while self._unsent and (left := deadline - time.monotonic()) > 0 and self._send_next(left):
                pass

    def inherited_batch(self, name: str, listeners: Sequence[socket.socket]) -> None:
        """The manager has passed on a batch with these, and still has it."""
        self._batches.put(name, {stored_name(each): each for each in listeners})

    def drop(self, listener: socket.socket) -> None:
        """Release the copy, before the socket itself is closed. Harmless if there is none.

        Another socket may have the same name by now: a copy of that one stays.
        """
        name = stored_name(listener) if self.outlives else ""
        batched, single = self._batches.socket_of(name), self._stored.get(name)
        if not name:
            return
        if batched is not None:
            if is_same(batched, listener):
                self._leave_batch(name)
            return
        last = self._last_of.get(name)
        if last is not None and self._unsent[last].listener is listener:
            del self._unsent[last], self._last_of[name]
        self._add(_Message(name))
        if single is not None and not is_same(single, listener):
            self._add(_Message(name, single))  # the name stood for both
        else:
            self._stored.pop(name, None)

    def claimed(self, name: str, listener: socket.socket) -> None:
        """A socket that this process was passed under `name` is used."""
        if name == stored_name(listener):
            self._inherited.add(name)
        self._handed_over = self._handed_over or name == HANDED_OVER

    def flush(self) -> None:
        """Send what is left, within `FLUSH_MAX` seconds."""
        deadline = time.monotonic() + FLUSH_MAX
        while self._unsent and time.monotonic() < deadline:
            self._send_next(systemd.DELIVERED_WITHIN)

    # --- batches ---

    def _put_batch(self, listeners: Sequence[socket.socket]) -> None:
        """Store them together, and release what has them otherwise. A batch that is there whole is stored once."""
        members = {stored_name(each): each for each in listeners}
        name = batch_name(members)
        if self._batches.has(name, members):
            self._batches.put(name, members)
            return
        try:
            carrier = carrier_of(listeners)
        except OSError as error:
            log.warning("%d listening sockets are stored one by one: %s", len(listeners), error)
            for each in listeners:
                self.put(each)
            return
        if self._batches.forget(name) or self._handed_over:
            self._add(_Message(name))  # it may have these already, or others at their addresses
        self._add(_Message(name, carrier, closes=True))
        for member in members:
            self._leave_batch(member)
            if member in self._stored or member in self._inherited:
                self._stored.pop(member, None)
                self._inherited.discard(member)
                self._add(_Message(member))
        self._batches.put(name, members)

    def _leave_batch(self, name: str) -> bool:
        """The socket of this name is used no more, or stored elsewhere. False if it is in no batch."""
        batch = self._batches.leave(name)
        if batch is None:
            return False
        if batch not in self._batches:
            self._add(_Message(batch))
        elif batch not in self._to_renew:
            self._to_renew.add(batch)
            self._add(_Message(batch, renews=True))
        return True

    def _renew(self, batch: str) -> None:
        """Store what is left of it, and release it: it would hold the addresses of the others."""
        if batch in self._batches:
            members = self._batches.members(batch)
            if members:
                self._put_batch(members)
            else:
                self._add(_Message(batch))
        self._to_renew.discard(batch)

    # --- sending ---

    def _add(self, message: _Message) -> None:
        number = next(self._numbers)
        self._unsent[number] = message
        self._last_of[message.name] = number
        if self.later is None:
            self.flush()
        elif not self._scheduled:
            self._scheduled = True
            self.later(0.0, self._send_some)

    def _send_some(self) -> None:
        pause = PAUSE
        for _ in range(AT_ONCE):
            if not self._unsent:
                self._scheduled = False
                return
            if not self._send_next(0.0):
                pause = BUSY_PAUSE
                break
        if self.later is not None:
            self.later(pause, self._send_some)

    def _send_next(self, patience: float) -> bool:
        """Send the oldest message. False when the manager is busy; it stays the next then."""
        number, message = next(iter(self._unsent.items()))
        name, listener = message.name, message.listener
        if message.renews:
            sent = True
        elif listener is None:
            sent = systemd.unstore(name, patience)
        else:  # a closed one was a copy, and the message about the other is behind this one
            sent = listener.fileno() < 0 or systemd.store(name, listener.fileno(), patience)
        if sent:
            del self._unsent[number]
            if self._last_of.get(name) == number:
                del self._last_of[name]
            self._sent(message)
        return sent

    def _sent(self, message: _Message) -> None:
        if message.renews:
            self._renew(message.name)
        elif message.closes and message.listener is not None:
            message.listener.close()


class _Message(NamedTuple):
    """Store `listener` under `name`, or without one release what has this name.

    With `closes` the listener is closed when it is stored; with `renews` the batch of this name is to be stored anew.
    """

    name: str
    listener: socket.socket | None = None
    closes: bool = False
    renews: bool = False


def is_own(name: str, listener: socket.socket) -> bool:
    """Whether a socket of this name was bound by the product, and not by a socket unit."""
    return has_name_of_batch(name) or name in (HANDED_OVER, stored_name(listener))


def stored_name(listener: socket.socket) -> str:
    """The name of a listening socket in the store: a digest of its address, which any process computes alike."""
    host, port = listener.getsockname()[:2]
    return name_of(host, port)


def name_of(host: str, port: int) -> str:
    """See `stored_name`."""
    number = int.from_bytes(blake2b(f"{host} {port}".encode(), digest_size=8).digest())
    digits = []
    for _ in range(_LENGTH):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(digits)
