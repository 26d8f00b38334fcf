"""Sending without waiting: what the kernel doesn't take now is kept, and goes first the next time."""

from __future__ import annotations

from actors.net.transport import Transport


def push(transport: Transport, waiting: bytearray, data: bytes) -> int:
    """Send what waits and `data` behind it; how many bytes left. The rest is in `waiting` afterwards.

    Raises `OSError` when the connection is broken; then nothing waits any more.
    """
    if waiting:
        waiting += data
        data = bytes(waiting)
    try:
        sent = transport.send(data)
    except BlockingIOError:
        sent = 0
    except OSError:
        waiting.clear()
        raise
    if sent < len(data):
        waiting[:] = data[sent:]
    elif waiting:
        waiting.clear()
    return sent
