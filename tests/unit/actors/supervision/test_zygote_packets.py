"""Requests to the zygote: what one packet can't carry follows in others, and arrives as one."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from actors.supervision.processes.zygote import DESCRIPTORS_MAX, Received, copies_of, packets_of, receive

REQUEST = {"token": 7, "entry": "a:B"}


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.settimeout(20)
        theirs.settimeout(20)
        yield ours, theirs


def sent(pair: tuple[socket.socket, socket.socket], count: int) -> tuple[Received | None, int]:
    """What arrives of a request with so many descriptors, and in how many packets."""
    ours, theirs = pair
    with socket.socket() as one:
        packets = packets_of(REQUEST, copies_of([one] * count))
    found: list[Received | None] = []
    receiver = threading.Thread(target=lambda: found.append(receive(theirs)))
    receiver.start()
    for packet in packets:
        socket.send_fds(ours, [packet.data], packet.descriptors)
        packet.close()
    receiver.join()
    return found[0], len(packets)


@pytest.mark.parametrize(
    ("count", "packets"),
    [(1, 1), (DESCRIPTORS_MAX, 1), (DESCRIPTORS_MAX + 1, 2), (2 * DESCRIPTORS_MAX, 2), (2 * DESCRIPTORS_MAX + 1, 3)],
)
def test_all_descriptors_arrive(pair: tuple[socket.socket, socket.socket], count: int, packets: int) -> None:
    received, number = sent(pair, count)
    assert number == packets
    assert received is not None
    assert (received.request, received.truncated, len(received.descriptors)) == (REQUEST, False, count)
    assert len({os.fstat(each).st_ino for each in received.descriptors}) == 1
    for each in received.descriptors:
        os.close(each)


def test_an_end_between_two_packets_is_the_end(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    with socket.socket() as one:
        packets = packets_of(REQUEST, copies_of([one] * (DESCRIPTORS_MAX + 1)))
    socket.send_fds(ours, [packets[0].data], packets[0].descriptors)
    ours.close()
    assert receive(theirs) is None
    for each in packets:
        each.close()
