"""Binding one listening socket, of a proxy or of the management API, and what a failure of it means.

An address needs no resolver. A name of this machine is in `/etc/hosts`; where a resolver is queried and is silent, the
name is given up after `PATIENCE` seconds and not queried again for a while, however many listeners have it. So no
resolver holds up the supervisor's loop.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from actors.supervision.fd_limit import FOR_LISTENERS, require

PATIENCE = 1.0
"""Seconds that a name may block the loop; silent actors are killed only after ten."""
GIVEN_UP_FOR = 30.0

Found = tuple[int, Any]
"""An address family and an address as `bind` takes it."""
Query = Callable[..., list[Any]]


class HostnameResolver:
    """`query` is `socket.getaddrinfo`, `clock` monotonic."""

    def __init__(self, query: Query = socket.getaddrinfo, clock: Callable[[], float] = time.monotonic) -> None:
        self._query = query
        self._clock = clock
        self._given_up: dict[str, float] = {}

    def resolve(self, host: str, port: int, patience: float = PATIENCE) -> Found:
        """The first address of `host`. Raises `OSError` and `UnicodeError`; `TimeoutError` when it takes too long."""
        try:
            return self._first(host, port, socket.AI_NUMERICHOST)
        except socket.gaierror:
            return self._with_patience(host, port, patience)

    def _first(self, host: str, port: int, flags: int) -> Found:
        family, _kind, _protocol, _name, address = self._query(
            host, port, type=socket.SOCK_STREAM, flags=flags | socket.AI_PASSIVE
        )[0]
        return family, address

    def _with_patience(self, host: str, port: int, patience: float) -> Found:
        if self._given_up.get(host, 0.0) > self._clock():
            raise _too_late()
        results: list[Found | Exception] = []

        def query() -> None:
            try:
                results.append(self._first(host, port, 0))
            except (OSError, UnicodeError) as error:
                results.append(error)

        thread = threading.Thread(target=query, name="listener-name", daemon=True)
        thread.start()
        thread.join(patience)
        if not results:
            self._given_up[host] = self._clock() + GIVEN_UP_FOR
            raise _too_late()
        if isinstance(results[0], Exception):
            raise results[0]
        return results[0]


def _too_late() -> TimeoutError:
    return TimeoutError(None, "no answer in time; use an address, or a name in /etc/hosts")


BACKLOG = 4096
"""Connections that may wait in the kernel; it takes the smaller of this and net.core.somaxconn."""

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

_resolver = HostnameResolver()


class ListenError(Exception):
    """An address can't be listened at. `field` is `host` or `port`, `error` a sentence for people.

    `taken` is the port if that is in use, else 0.
    """

    def __init__(self, field: str, error: str, taken: int = 0) -> None:
        super().__init__(error)
        self.field = field
        self.error = error
        self.taken = taken


class ResourceExhausted(ListenError):
    """The machine or the process lacks descriptors or memory at this moment; the address is not at fault."""


def listen(host: str, port: int, shared: bool = False) -> socket.socket:
    """A bound, listening, non-blocking TCP socket. Raises `ListenError` and its subclass `ResourceExhausted`.

    `host` is an address or a name, of which the first address is bound; a name that takes long to resolve is refused
    (`actors.supervision.listeners.bind`). An IPv6 socket accepts IPv6 alone, so that `::` and `0.0.0.0` may be
    bound side by side. With `shared` the port may overlap with that of a socket of this process in `sharing`.
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
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)  # from now on no other socket may overlap
    except OSError as error:
        listener.close()
        raise refusal(error, host, port) from error
    listener.setblocking(False)
    return listener


@contextlib.contextmanager
def sharing(listeners: Collection[socket.socket]) -> Iterator[None]:
    """Within the block others may be bound that overlap with these: the kernel wants SO_REUSEPORT of both sides."""
    for listener in listeners:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        yield
    finally:
        for listener in listeners:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)


def refusal(error: OSError, host: str, port: int) -> ListenError:
    """The error of a failed bind, with the field at fault."""
    number = error.errno or 0
    if number in _HOST_ERRORS:
        return ListenError("host", f"{host} {_HOST_ERRORS[number]}")
    if number in _SCARCE:
        return ResourceExhausted("port", f"port {port} on {host} can't be listened at now: {error.strerror or error}")
    meaning = _PORT_ERRORS.get(number, f"can't be listened at: {error.strerror or error}")
    return ListenError("port", f"port {port} on {host} {meaning}", port if number == errno.EADDRINUSE else 0)


def resolve(host: str, port: int) -> Found:
    """The family and the address that `listen` binds. Raises `ListenError`."""
    try:
        return _resolver.resolve(host, port)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a host name"
        raise ListenError("host", f"{host} can't be resolved: {reason}") from error


def end_listening(listener: socket.socket) -> None:
    """Stop listening, in all processes that have a copy of the socket, and close this copy."""
    with contextlib.suppress(OSError):  # it wasn't listening any more
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def bound_address(listener: socket.socket) -> tuple[str, int]:
    """Address and port of a listening socket, as the kernel reports them."""
    host, port = listener.getsockname()[:2]
    return str(host), int(port)


def inner_listener(path: Path) -> socket.socket:
    """Where the API listens behind its TLS terminator; the run directory, 0700 and locked, keeps all others out."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener
