"""What this machine knows of itself: its addresses, and the names of its hosts file (hosts(5)) and `localhost` (RFC
6761 6.3).

Its addresses come from the kernel's routing table (rtnetlink(7)), which has all kinds of them. The address that a
socket would leave from proves less: to a secondary address of an interface it leaves from the primary one.

The names are resolved without a thread, so that no silent name server keeps them waiting. The file is read again when
it has changed, which is checked at most once a second.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import struct
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from actors.log_lines import ThrottledLog
from config.net.addresses import is_address

log = logging.getLogger(__name__)

Address = IPv4Address | IPv6Address

_GETROUTE, _NEWROUTE, _ERROR, _REQUEST, _DESTINATION = 26, 24, 2, 1, 1
_HEADER = struct.Struct("=IHHII")
_ROUTE = struct.Struct("=8BI")
_ATTRIBUTE = struct.Struct("=HH")
_TYPE = _HEADER.size + 7
"""The offset of a route's type in the reply."""
_OURS = frozenset((2, 3, 4))
"""Local, broadcast, anycast: what is sent there is for this machine, or for others on its link."""
_NO_ROUTE = frozenset((errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ESRCH, errno.EACCES, errno.EINVAL))
"""The kernel sends nothing there: no route, or one that forbids it."""
_NOT_SPOKEN = frozenset((errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EPERM, errno.EACCES))


def is_local(address: Address) -> bool:
    """Whether it is an address of this machine. Sends no packet.

    Raises `OSError` when that can't be found out, such as without a descriptor.
    """
    if address.is_loopback or address.is_unspecified:
        return True
    try:
        netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    except OSError as error:
        if error.errno in _NOT_SPOKEN:
            return _leaves_from(address)
        raise
    with netlink:
        return _route_type(netlink, address) in _OURS


def _route_type(netlink: socket.socket, address: Address) -> int:
    """The type of the route to it, 0 when there is none."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    route = _ROUTE.pack(family, 8 * len(address.packed), 0, 0, 0, 0, 0, 0, 0)
    route += _ATTRIBUTE.pack(_ATTRIBUTE.size + len(address.packed), _DESTINATION) + address.packed
    netlink.sendto(_HEADER.pack(_HEADER.size + len(route), _GETROUTE, _REQUEST, 1, 0) + route, (0, 0))
    reply = netlink.recv(65536, socket.MSG_DONTWAIT)  # the kernel has put it there before `sendto` returned
    _size, kind, *_rest = _HEADER.unpack_from(reply)
    if kind == _NEWROUTE:
        return reply[_TYPE]
    error = -struct.unpack_from("=i", reply, _HEADER.size)[0] if kind == _ERROR else errno.EPROTO
    if error in _NO_ROUTE:
        return 0
    raise OSError(error, os.strerror(error))


def _leaves_from(address: Address) -> bool:
    """Where routes can't be read: whether a socket leaves from the address itself to reach it."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), 9))
        except OSError:
            return False  # no route there
        return bool(probe.getsockname()[0] == str(address))


HOSTS_FILE = Path("/etc/hosts")
CHECKED_EVERY = 1.0
SIZE_MAX = 256 * 1024
"""Octets of a file that is read here; names of a larger one are left to the system's resolver."""
LOOPBACK = ("127.0.0.1", "::1")

_Stamp = tuple[int, int, int]


class HostsFile:
    """`find` returns the addresses of a name. `now` is the loop's clock."""

    def __init__(self, path: Path = HOSTS_FILE) -> None:
        self._path = path
        self._names: dict[str, tuple[str, ...]] = {}
        self._stamp: _Stamp | None = None
        self._check_at = float("-inf")
        self._unreadable = ThrottledLog(log, f"cannot read {path}")

    def find(self, name: str, now: float) -> tuple[str, ...] | None:
        """The addresses of `name` in the order of the file, or None when it isn't in it."""
        if now >= self._check_at:
            self._check_at = now + CHECKED_EVERY
            self._refresh()
        return self._names.get(name.lower().rstrip("."))

    def _refresh(self) -> None:
        try:
            stamp = _stamp(self._path)
            if stamp != self._stamp:
                self._names = _read(self._path) if stamp is not None and stamp[1] <= SIZE_MAX else {}
                self._stamp = stamp
            self._unreadable.recovered()
        except OSError as error:
            self._unreadable.error(error.strerror or error, logging.WARNING)


def _stamp(path: Path) -> _Stamp | None:
    """What changes with the file; None when there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> dict[str, tuple[str, ...]]:
    names: dict[str, dict[str, None]] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        address, *known_as = line.partition("#")[0].split() or ("",)
        for name in known_as if is_address(address) else ():
            names.setdefault(name.lower().rstrip("."), {})[address] = None
    return {name: tuple(addresses) for name, addresses in names.items()}
