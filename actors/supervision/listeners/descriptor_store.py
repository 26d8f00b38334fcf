"""Copies of listening sockets that outlive this process, kept by systemd (FileDescriptorStoreMax=).

systemd passes the names of all of them to the next start in one environment variable, and the kernel takes none above
128 KiB (execve(2), MAX_ARG_STRLEN): with longer names, or more of them, the service could not be started any more. So
names are short, and no more than `STORED_MAX` sockets are stored.
"""

from __future__ import annotations

import itertools
import logging
import socket
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

from actors.supervision import systemd

log = logging.getLogger(__name__)

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
        self._stored: set[str] = set()
        self._inherited: set[str] = set()
        """Names of copies that the manager has passed on and still has."""
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
            self._stored.add(name)
        elif name in self._stored or len(self._stored) < STORED_MAX:
            self._stored.add(name)
            self._add(_Message(name, listener))
        elif not self._is_full:
            self._is_full = True
            log.warning(
                "systemd keeps %d listening sockets; connections to the others are refused while the service restarts",
                STORED_MAX,
            )

    def drop(self, listener: socket.socket) -> None:
        """Release the copy, before the socket itself is closed. Harmless if there is none."""
        if self.outlives:
            name = stored_name(listener)
            self._stored.discard(name)
            last = self._last_of.get(name)
            if last is not None and self._unsent[last].listener is listener:
                del self._unsent[last], self._last_of[name]
            self._add(_Message(name))

    def claimed(self, name: str, listener: socket.socket) -> None:
        """A socket that this process was passed under `name` is used. One of an earlier release gets another name."""
        if name == stored_name(listener):
            self._inherited.add(name)
        self.rename(name, listener)

    def rename(self, name: str, listener: socket.socket) -> None:
        """Release the copy that an earlier release has put under another name. Harmless if there is none."""
        if self.outlives and name in (HANDED_OVER, former_name(listener)):
            self._add(_Message(former_name(listener)))

    def flush(self) -> None:
        """Send what is left, within `FLUSH_MAX` seconds."""
        deadline = time.monotonic() + FLUSH_MAX
        while self._unsent and time.monotonic() < deadline:
            self._send_next(systemd.DELIVERED_WITHIN)

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
        number, (name, listener) = next(iter(self._unsent.items()))
        if listener is None:
            sent = systemd.unstore(name, patience)
        else:  # a closed one was a copy, and the message about the other is behind this one
            sent = listener.fileno() < 0 or systemd.store(name, listener.fileno(), patience)
        if sent:
            del self._unsent[number]
            if self._last_of.get(name) == number:
                del self._last_of[name]
        return sent


class _Message(NamedTuple):
    """Store `listener` under `name`, or without one release what has this name."""

    name: str
    listener: socket.socket | None = None


def is_own(name: str, listener: socket.socket) -> bool:
    """Whether a socket of this name was bound by the product, and not by a socket unit."""
    return name in (HANDED_OVER, stored_name(listener), former_name(listener))


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


def former_name(listener: socket.socket) -> str:
    """The name that earlier releases gave it."""
    host, port = listener.getsockname()[:2]
    return f"tcp-{host}-{port}".replace(":", ".")
