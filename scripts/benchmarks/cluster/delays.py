"""A relay that delays, and that can be closed: what a network between a node and its database does."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self


class DelayingRelay:
    """Relays from a port of its own to one of this machine, each octet so many seconds later, until the block ends."""

    def __init__(self, to: int, seconds: float = 0.0) -> None:
        self._to, self._seconds = to, seconds
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._is_closed = False
        self._open: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._serve()], daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """For the time of the block nothing goes through; all connections end."""
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._end)
        yield
        self._is_closed = False

    def _end(self) -> None:
        for each in self._open:
            each.transport.abort()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._relayed, sock=self._listener)
        await self._over.wait()
        server.close()
        self._end()
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.01)

    async def _relayed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_closed:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        both = {writer, far_writer}
        self._open |= both
        for each in both:
            each.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(self._carried(reader, far_writer), self._carried(far_reader, writer))
        self._open -= both

    async def _carried(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 18):
                if self._seconds:
                    self._loop.call_later(self._seconds, _send, writer, data)
                else:
                    _send(writer, data)
        self._loop.call_later(self._seconds, writer.close)


def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    if not writer.is_closing():
        writer.write(data)
