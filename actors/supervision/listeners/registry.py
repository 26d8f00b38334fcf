"""The listening sockets of the product: bound, kept and given up by the supervisor alone.

An actor gets a copy of the descriptor. What it does with its copy, and whether it lives, doesn't matter to the socket:
it goes on listening, and connections queue in the kernel until the next process takes them. Where a store keeps
copies (`Store`), that holds for the supervisor itself as well.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from actors.supervision.listeners.hostname import HostnameResolver
from actors.supervision.processes.fd_reserve import FOR_LISTENERS, require

BACKLOG = 4096
"""Connections that may wait in the kernel; it takes the smaller of this and net.core.somaxconn."""

RESERVED_FOR = 10.0
"""Seconds that a reserved socket is held for a proxy that nobody has put yet."""

_HOST_ERRORS = {
    errno.EADDRNOTAVAIL: "is not an address of this machine",
    errno.EAFNOSUPPORT: "is of an address family that this machine doesn't have",
    errno.EINVAL: "can't be listened at",
    errno.ENODEV: "names a network interface that this machine doesn't have",
}
_PORT_ERRORS = {
    errno.EADDRINUSE: "is already in use",
    errno.EACCES: "needs a permission that the service doesn't have (ports below 1024)",
    errno.EPERM: "is not allowed by the system",
}
_SCARCE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}

_NAMES = HostnameResolver()

Resolved = tuple[int, Any]
"""An address family and an address as `bind` takes it and `getsockname` gives it."""


class Store(Protocol):
    """Keeps copies of listening sockets which outlive this process
    (`actors.supervision.listeners.socket_activation.Store`)."""

    @property
    def outlives(self) -> bool:
        """Is there such a store?"""

    def put(self, listener: socket.socket) -> None:
        """Keep a copy."""

    def drop(self, listener: socket.socket) -> None:
        """Let the copy go. Harmless if there is none."""


class ListenError(Exception):
    """An address can't be listened at. `field` is `host` or `port`, `error` a sentence for people."""

    def __init__(self, field: str, error: str) -> None:
        super().__init__(error)
        self.field = field
        self.error = error


class ResourceExhausted(ListenError):
    """It is not the address: the machine or the process lacks descriptors or memory at this moment."""


def listen(host: str, port: int, shared: bool = False) -> socket.socket:
    """A bound, listening, non-blocking TCP socket. Raises `ListenError`, of it `ResourceExhausted`.

    With `shared` the port may overlap at this moment with that of a socket of ours which agrees (SO_REUSEPORT).

    `host` is an address or a name, of which the first address is taken; a name that takes long is refused (`names`). An
    IPv6 socket takes IPv6 alone, so that `::` and `0.0.0.0` may be listened at side by side.
    """
    family, address = resolve(host, port)
    try:
        require(FOR_LISTENERS)
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise refusal(error, host, port) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, shared)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)  # from now on nobody else may
    except OSError as error:
        listener.close()
        raise refusal(error, host, port) from error
    listener.setblocking(False)
    return listener


@contextlib.contextmanager
def sharing(listeners: Collection[socket.socket]) -> Iterator[None]:
    """For this moment others may be bound that overlap with these: the kernel wants SO_REUSEPORT of both sides."""
    for listener in listeners:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        yield
    finally:
        for listener in listeners:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)


def refusal(error: OSError, host: str, port: int) -> ListenError:
    """What a failed bind means, told by the field that is at fault."""
    number = error.errno or 0
    if number in _HOST_ERRORS:
        return ListenError("host", f"{host} {_HOST_ERRORS[number]}")
    if number in _SCARCE:
        return ResourceExhausted("port", f"port {port} on {host} can't be listened at now: {error.strerror or error}")
    meaning = _PORT_ERRORS.get(number, f"can't be listened at: {error.strerror or error}")
    return ListenError("port", f"port {port} on {host} {meaning}")


def resolve(host: str, port: int) -> Resolved:
    """The family and the address that `listen` binds. Raises `ListenError`."""
    try:
        return _NAMES.look_up(host, port)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a host name"
        raise ListenError("host", f"{host} can't be resolved: {reason}") from error


@dataclass(slots=True)
class _Held:
    host: str
    port: int
    socket: socket.socket
    lapses: float | None
    """When a reservation ends; None for what is kept."""
    heir: _Held | None = None
    """Who has a copy of this socket, and goes on with it."""
    lender: _Held | None = None
    """Whose socket this is a copy of, as long as they have it, too."""

    @property
    def address(self) -> tuple[str, int]:
        """As it was asked for."""
        return self.host, self.port


class ListenerRegistry:
    """All listening sockets by the name of what they are for. `clock` is monotonic.

    What is kept at one address may have a reservation at another beside it, to move to.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        bind: Callable[..., socket.socket] = listen,
        store: Store | None = None,
    ) -> None:
        self._clock = clock
        self._bind = bind
        self._store = store
        self._left = False
        self._held: dict[str, _Held] = {}
        self._following: dict[str, _Held] = {}
        self._retired: dict[str, socket.socket] = {}
        self.changes = 0
        """Grows whenever an address comes or goes."""

    def reserve(self, name: str, host: str, port: int, instead_of: Collection[str] = ()) -> None:
        """Bind for `name`, to be kept if `keep` follows in time. Raises `ListenError` and holds what it held.

        What is held at the same address already is a success. Where one of `instead_of` listens at this very address,
        `name` goes on with its socket, which so never closes; that one is to be retired or released before or after.
        """
        for held in (self._held.get(name), self._following.get(name)):
            if held is not None and held.address == (host, port):
                if held.lapses is not None:
                    held.lapses = self._clock() + RESERVED_FOR
                return
        self.end_retired(name)  # it may be this very address
        fresh = self._inherit(host, port, instead_of) or _Held(
            host, port, self._listen(host, port, {name, *instead_of}), 0
        )
        fresh.lapses = self._clock() + RESERVED_FOR
        self.cancel(name)
        (self._following if name in self._held else self._held)[name] = fresh
        self.changes += 1

    def keep(self, name: str, host: str, port: int) -> socket.socket:
        """The socket of `name`, bound now unless it is held; it stays until `release`. Raises `ListenError`."""
        self.reserve(name, host, port)
        following = self._following.get(name)
        if following is not None and following.address == (host, port):
            del self._following[name]
            self._give_up(self._held, name)
            self._held[name] = following
        held = self._held[name]
        if held.lapses is not None and self._store is not None:
            self._store.put(held.socket)
        held.lapses = None
        return held.socket

    def cancel(self, name: str) -> None:
        """Nothing comes of a reservation; what is kept stays. Harmless if there is none."""
        self._give_up(self._following, name)
        held = self._held.get(name)
        if held is not None and held.lapses is not None:
            self._give_up(self._held, name)

    def get(self, name: str) -> socket.socket | None:
        """The socket that is held for `name`."""
        held = self._held.get(name)
        return held.socket if held else None

    def kept(self, name: str) -> tuple[str, int] | None:
        """Where `name` listens, as it was asked for; None when it doesn't, or is a reservation only."""
        held = self._held.get(name)
        return (held.host, held.port) if held and held.lapses is None else None

    def retire(self, name: str) -> None:
        """Forget the socket of `name`, but let it listen until `end_retired`: its actor gets to close it in good order.

        Harmless if not held.
        """
        held = self._held.pop(name, None)
        if held is None:
            return
        self.changes += 1
        self.end_retired(name)
        if held.heir is not None or held.lender is not None:
            self._finish(held)  # it goes on listening for somebody else
        else:
            self._retired[name] = held.socket

    def end_retired(self, name: str) -> None:
        """What was retired listens no more."""
        retired = self._retired.pop(name, None)
        if retired is not None:
            self._end(retired)

    def release(self, name: str) -> None:
        """Listen no more for `name`, whoever has a copy of its socket. Harmless if not held."""
        self._give_up(self._following, name)
        self._give_up(self._held, name)

    def lapse(self) -> list[str]:
        """Let go the reservations whose time is up; their names."""
        now, late = self._clock(), []
        for group in (self._held, self._following):
            for name in [name for name, held in group.items() if held.lapses is not None and held.lapses <= now]:
                self._give_up(group, name)
                late.append(name)
        return late

    def addresses(self) -> Iterator[tuple[str, int]]:
        """Where the product listens, as the kernel says."""
        for held in (*self._held.values(), *self._following.values()):
            host, port = held.socket.getsockname()[:2]
            yield str(host), int(port)

    def leave(self) -> None:
        """The product ends: what a store has copies of goes on listening for the next start of it."""
        self._left = self._store is not None and self._store.outlives

    def hand_over(self) -> list[int]:
        """The descriptors of what is kept, for the next program; nothing is held any more."""
        kept = [held.socket.detach() for held in self._held.values() if held.lapses is None]
        self._held = {name: held for name, held in self._held.items() if held.lapses is not None}
        self.close()
        return kept

    def close(self) -> None:
        """Release everything."""
        for name in (*self._held, *self._following):
            self.release(name)
        for name in tuple(self._retired):
            self.end_retired(name)

    def _inherit(self, host: str, port: int, instead_of: Collection[str]) -> _Held | None:
        for name in instead_of:
            lender = self._held.get(name)
            if lender is not None and lender.address == (host, port) and lender.heir is None:
                lender.heir = _Held(host, port, lender.socket.dup(), None, lender=lender)
                return lender.heir
        return None

    def _listen(self, host: str, port: int, leaving: Collection[str]) -> socket.socket:
        """A socket of its own. It may overlap with those of who leaves this port at another host (`0.0.0.0`)."""
        held = (self._held.get(name) for name in leaving)
        overlapping = [each.socket for each in held if each is not None and each.port == port]
        if not overlapping:
            return self._bind(host, port)
        with sharing(overlapping):
            return self._bind(host, port, shared=True)

    def _give_up(self, group: dict[str, _Held], name: str) -> None:
        held = group.pop(name, None)
        if held is not None:
            self.changes += 1
            self._finish(held)

    def _finish(self, held: _Held) -> None:
        """Give its socket up: it listens no more, unless somebody else goes on with it."""
        if held.heir is None and held.lender is None:
            self._end(held.socket)
            return
        if held.heir is not None:
            held.heir.lender = held.lender
        if held.lender is not None:
            held.lender.heir = held.heir
        held.socket.close()

    def _end(self, listener: socket.socket) -> None:
        if self._left:
            listener.close()
            return
        if self._store is not None:
            self._store.drop(listener)
        end_listening(listener)


def end_listening(listener: socket.socket) -> None:
    """Listen no more, whoever has a copy of the socket, and close this one."""
    with contextlib.suppress(OSError):  # it wasn't listening any more, which is what was wanted
        listener.shutdown(socket.SHUT_RDWR)  # ends it for the copies in other processes, too
    listener.close()
