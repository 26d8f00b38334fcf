"""What one UDP association has: its targets with the bytes of each, for its records and for live connections, datagrams
that wait, and sockets.

An association has one record for each target, so that each can be searched for. The first has the bytes of the control
connection, and of datagrams that could not be read, as well, so that the sum over the records is what was moved. From
the 257th target on all share one record.

Datagrams of one UDP association that wait until the names of their targets are looked up, within a bound. When there is
no room, the oldest datagram of the zone with the most octets is dropped: names of a zone whose servers are silent take
no room from the names of other zones.

Its sockets are one for the client's datagrams, and others from which they leave for their targets.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import Counter, deque
from collections.abc import Callable
from typing import Final, NamedTuple

from actors.forwarding.net.egress import BIND_ADDRESS, Stated
from actors.forwarding.net.resolver import zone_of
from actors.forwarding.net.source_address import SourceAddress
from actors.forwarding.protocols.commands import Report
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority
from actors.net.socks_wire import Endpoint

TARGETS_MAX = 256
NAMED_MAX = 8
"""Targets that a live connection names."""
FURTHER = "further targets"
"""In place of a target: all those above `TARGETS_MAX`."""


class Share:
    """Of one target: bytes of datagrams to it and back, and why none could be sent."""

    __slots__ = ("bytes_in", "bytes_out", "failure", "left_from", "reached")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.reached = False
        self.left_from = ""
        """The address that datagrams have left from last, where the configuration gives one."""
        self.failure: Failure | None = None


class Targets:
    """In the order in which they were first sent to."""

    __slots__ = ("_further", "_shares")

    def __init__(self) -> None:
        self._shares: dict[bytes, Share] = {}
        self._further: Share | None = None

    def share(self, target: bytes) -> Share:
        """That of a target as `host:port`."""
        share = self._shares.get(target)
        if share is not None:
            return share
        if len(self._shares) < TARGETS_MAX:
            share = self._shares[target] = Share()
            return share
        if self._further is None:
            self._further = Share()
        return self._further

    def __str__(self) -> str:
        """For live connections: the first targets, and how many more there are."""
        named = ", ".join(target.decode("ascii") for target in list(self._shares)[:NAMED_MAX])
        more = len(self._shares) - NAMED_MAX
        return f"{named} and {more} more" if more > 0 else named

    @property
    def left_from(self) -> str:
        """For live connections: the address that datagrams to the first target have left from last."""
        return next((share.left_from for share in self._shares.values()), "")

    def reports(self, whole: Report) -> list[Report]:
        """One for each target. `whole` is that of the association: all its bytes, and why it ended."""
        named = [(target.decode("ascii"), share) for target, share in self._shares.items()]
        if self._further is not None:
            named.append((FURTHER, self._further))
        reports = [_report(whole, target, share) for target, share in named]
        if not reports:
            return [whole]
        rest_in = whole.bytes_in - sum(report.bytes_in for report in reports)
        rest_out = whole.bytes_out - sum(report.bytes_out for report in reports)
        first = reports[0]
        first.bytes_in += rest_in
        first.bytes_out += rest_out
        return reports


def _report(whole: Report, target: str, share: Share) -> Report:
    report = whole.copy()
    report.url, report.source_address = target, share.left_from
    report.bytes_in, report.bytes_out = share.bytes_in, share.bytes_out
    failure = None if share.reached else share.failure
    if failure is not None:
        report.status, report.reason = failure.status, failure.reason
        report.because(failure)
    return report


OCTETS_MAX = 32 * 1024
"""Octets of all datagrams, with `COST` for each of them."""
COST = 512


class WaitingDatagram(NamedTuple):
    """`payload` for `target`, whose bytes are counted in `share`."""

    target: Authority
    payload: bytes
    share: Share

    @property
    def cost(self) -> int:
        """Octets that it takes of `OCTETS_MAX`."""
        return len(self.payload) + COST


class WaitingDatagrams:
    """In the order of their arrival, by zone."""

    __slots__ = ("_names", "_octets", "_zones")

    def __init__(self) -> None:
        self._zones: dict[str, deque[WaitingDatagram]] = {}
        self._octets: Counter[str] = Counter()
        self._names: set[str] = set()

    def add(self, datagram: WaitingDatagram) -> bool:
        """Whether its name has to be looked up: no lookup is under way. One too large for the bound is dropped."""
        if datagram.cost > OCTETS_MAX:
            return False
        name = datagram.target.host
        zone = zone_of(name)
        self._zones.setdefault(zone, deque()).append(datagram)
        self._octets[zone] += datagram.cost
        while self._octets.total() > OCTETS_MAX:
            self._drop_oldest(self._octets.most_common(1)[0][0])
        is_new = name not in self._names
        self._names.add(name)
        return is_new

    def pop(self, name: str) -> list[WaitingDatagram]:
        """The lookup of `name` is over: its datagrams, which wait no longer."""
        self._names.discard(name)
        zone = zone_of(name)
        waiting = self._zones.get(zone, deque())
        taken = [each for each in waiting if each.target.host == name]
        self._keep(zone, deque(each for each in waiting if each.target.host != name))
        return taken

    def _drop_oldest(self, zone: str) -> None:
        self._zones[zone].popleft()
        self._keep(zone, self._zones[zone])

    def _keep(self, zone: str, left: deque[WaitingDatagram]) -> None:
        if left:
            self._zones[zone], self._octets[zone] = left, sum(each.cost for each in left)
        else:
            self._zones.pop(zone, None)
            self._octets.pop(zone, None)


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
        self._chosen: dict[Stated, SourceAddress] = {}

    def chosen(self, stated: Stated, choose: Callable[[], SourceAddress]) -> SourceAddress:
        """Where datagrams leave from by an entry of the configuration: chosen once."""
        source = self._chosen.get(stated)
        if source is None:
            source = self._chosen[stated] = choose()
        return source

    def towards(self, host: str, source: SourceAddress) -> socket.socket:
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


def _bind(sock: socket.socket, source: SourceAddress) -> None:
    if source.of(sock.family):
        source.bind(sock)
    else:
        sock.bind(("::" if sock.family == socket.AF_INET6 else "0.0.0.0", 0))  # noqa: S104


def _refuse(_sock: socket.socket) -> None:
    raise OSError(errno.EBADF, os.strerror(errno.EBADF))
