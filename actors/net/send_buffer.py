"""Sending without blocking: what the kernel doesn't take is buffered, and sent first the next time."""

from __future__ import annotations

from actors.net.transport import Transport


def push(transport: Transport, buffer: bytearray, data: bytes) -> int:
    """Send what is buffered and `data` behind it. Returns how many bytes were sent; the rest is buffered.

    Raises `OSError` when the connection is broken; the buffer is empty then.
    """
    if buffer:
        buffer += data
        data = bytes(buffer)
    try:
        sent = transport.send(data)
    except BlockingIOError:
        sent = 0
    except OSError:
        buffer.clear()
        raise
    if sent < len(data):
        buffer[:] = data[sent:]
    elif buffer:
        buffer.clear()
    return sent
