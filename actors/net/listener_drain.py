"""Closes a listening socket without resetting a client: new connections are dropped, those that have begun are served.

Closing a listening socket resets what waits in its queue, and the handshakes that are under way. So it accepts for a
while beside the new one, and until its queue is empty. Where the kernel permits, a filter (socket(7)) drops the SYN
of new connections in the meantime (RFC 9293 section 3.5): the client retransmits it after one second and reaches the
listener of then, or none. Newer kernels require CAP_NET_ADMIN for that. Without it, a client that connects in the
instant between the last check of the queue and the close is reset.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import socket
import struct

log = logging.getLogger(__name__)

DRAIN_SECONDS = 0.5
"""Seconds in which handshakes that are under way end; shorter than the second after which a SYN is sent again."""

_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27  # socket(7); the module `socket` doesn't name them

_DROP_NEW = (
    (0x30, 0, 0, 13),  # the flags of the TCP header
    (0x54, 0, 0, 0x12),  # SYN and ACK of them
    (0x15, 0, 1, 0x02),  # SYN alone?
    (0x06, 0, 0, 0),  # is dropped,
    (0x06, 0, 0, 0xFFFFFFFF),  # and the rest taken
)
"""In the classic language of packet filters: code, jump if true, jump if false, operand."""


def reject_new_syns(listener: socket.socket) -> bool:
    """Drop new connections from now on. Returns whether the kernel permits that.

    A socket of another kind than TCP is left as it is.
    """
    if listener.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    steps = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in _DROP_NEW))
    program = struct.pack("HP", len(_DROP_NEW), ctypes.addressof(steps))
    try:
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
    except OSError as error:
        log.debug("cannot attach a filter to a listening socket: %s", error)
        return False
    return True


def accept_syns_again(listener: socket.socket) -> None:
    """Accept new connections again. Harmless where they were not dropped."""
    try:
        listener.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EPERM):  # there was none, or there can be none
            raise
