"""How a request and its descriptors travel to the zygote: in one packet, or in several for a proxy with many ports.

A packet carries at most `DESCRIPTORS_MAX` of them; the kernel's own limit is 253 (unix(7), SCM_RIGHTS). The first
packet says in `more` how many follow it, and these are maps with nothing but that.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgpack

PACKET_MAX = 128 * 1024
DESCRIPTORS_MAX = 240


class Packet(NamedTuple):
    """One packet with the descriptors that it carries."""

    data: bytes
    descriptors: Sequence[int]

    def close(self) -> None:
        """Close these descriptors: they are on their way, or never will be."""
        for descriptor in self.descriptors:
            if descriptor >= 0:
                os.close(descriptor)


class Received(NamedTuple):
    """A request with its descriptors. `truncated`: not all of these could be received."""

    request: dict[str, Any]
    descriptors: list[int]
    truncated: bool


def packets_of(request: dict[str, Any], descriptors: Sequence[int]) -> list[Packet]:
    """The packets of a request."""
    parts = [descriptors[at : at + DESCRIPTORS_MAX] for at in range(0, len(descriptors), DESCRIPTORS_MAX)]
    if len(parts) <= 1:
        return [Packet(msgpack.packb(request), descriptors)]
    first = Packet(msgpack.packb({**request, "more": len(parts) - 1}), parts[0])
    return [first, *(Packet(msgpack.packb({"more": len(parts) - at}), part) for at, part in enumerate(parts[1:], 2))]


def copies_of(sockets: Iterable[socket.socket]) -> list[int]:
    """Copies of their descriptors: of all, or `OSError` and none."""
    made: list[int] = []
    try:
        for each in sockets:
            made.append(os.dup(each.fileno()))  # noqa: PERF401 - those that are made have to be closed when one fails
    except OSError:
        for descriptor in made:
            os.close(descriptor)
        raise
    return made


def receive(control: socket.socket) -> Received | None:
    """The next request; blocks until all of it is there. None when the other end is gone."""
    packet, descriptors, flags, _address = socket.recv_fds(control, PACKET_MAX, DESCRIPTORS_MAX)
    if not packet:
        return None
    request: dict[str, Any] = msgpack.unpackb(packet)
    for _ in range(request.pop("more", 0)):
        packet, others, further, _address = socket.recv_fds(control, PACKET_MAX, DESCRIPTORS_MAX)
        if not packet:
            return None
        descriptors += others
        flags |= further
    return Received(request, descriptors, bool(flags & socket.MSG_CTRUNC))
