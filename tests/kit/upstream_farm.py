"""Many upstreams in one thread: HTTP proxies on ports of loopback that count who comes, and respond as they are set."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from tests.kit.ports import free_port


class Farm:
    """`ports` are in order. `connections` and `requests` count by port; `status` is what CONNECT is responded to with,
    200 echoes. A closed port refuses connections, and may be opened again."""

    def __init__(self, size: int) -> None:
        self._sockets = [socket.create_server(("127.0.0.1", free_port()), backlog=1024) for _ in range(size)]
        self.ports: list[int] = [each.getsockname()[1] for each in self._sockets]
        self.connections: Counter[int] = Counter()
        self.requests: Counter[int] = Counter()
        self.status: dict[int, str] = {}
        self._servers: dict[int, asyncio.Server] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        for port, sock in zip(self.ports, self._sockets, strict=True):
            self._call(self._serve(port, sock))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for port in list(self._servers):
            self.close(port)
        self._call(self._end_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(120)
        self._loop.close()

    def close(self, port: int) -> None:
        """Refuse connections from now on."""
        self._call(self._close(port))

    def open(self, port: int) -> None:
        """Accept them again."""
        self._call(self._serve(port, socket.create_server(("127.0.0.1", port), backlog=1024)))

    @property
    def total(self) -> int:
        """All connections so far."""
        return self.connections.total()

    def entries(self, **more: Any) -> list[dict[str, Any]]:
        """The upstreams as the API takes them."""
        return [
            {"protocol": "http", "host": "127.0.0.1", "port": port, "name": f"up{number}", **more}
            for number, port in enumerate(self.ports)
        ]

    def _call(self, coroutine: Any) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _serve(self, port: int, sock: socket.socket) -> None:
        async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections[port] += 1
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._converse(port, reader, writer)
            writer.close()

        self._servers[port] = await asyncio.start_server(served, sock=sock)

    async def _converse(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"CONNECT"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            await writer.drain()
            return
        self.requests[port] += 1
        status = self.status.get(port, "200 OK")
        writer.write(f"HTTP/1.1 {status}\r\n{'' if status.startswith('200') else 'Content-Length: 0'}\r\n\r\n".encode())
        while status.startswith("200") and (data := await reader.read(4096)):
            writer.write(data)
            await writer.drain()
        await writer.drain()

    async def _close(self, port: int) -> None:
        self._servers.pop(port).close()
        await asyncio.sleep(0)

    async def _end_all(self) -> None:
        tasks = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
