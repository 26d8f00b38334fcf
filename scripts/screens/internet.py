"""Stands for the internet: an upstream on loopback that responds for every host, so that none is really asked."""

from __future__ import annotations

import asyncio
import random
import re
from asyncio import StreamReader, StreamWriter

STATUSES = ("200 OK",) * 180 + ("304 Not Modified",) * 10 + ("404 Not Found",) * 8 + ("503 Service Unavailable",) * 2
SLOW = 0.02
"""Of responses, those that take a second."""
BROKEN = "prices.market.example:443"
"""A tunnel to it is refused one time in five."""


async def start() -> int:
    """Serve in the running loop; returns the port."""
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    return int(server.sockets[0].getsockname()[1])


async def _serve(reader: StreamReader, writer: StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            method, target, _ = head.split(b" ", 2)
            if method == b"CONNECT":
                await _tunnel(target.decode(), reader, writer)
                break
            if method == b"POST":
                await _take(head, reader, writer)
            else:
                await _respond(writer)
    except (asyncio.IncompleteReadError, OSError):
        pass  # the proxy has closed it
    writer.close()


async def _take(head: bytes, reader: StreamReader, writer: StreamWriter) -> None:
    """A delivery of a webhook."""
    found = re.search(rb"(?i)\r\ncontent-length: *([0-9]+)", head)
    await reader.readexactly(int(found[1]) if found else 0)
    writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
    await writer.drain()


async def _respond(writer: StreamWriter) -> None:
    status = random.choice(STATUSES)
    await asyncio.sleep(1.0 if random.random() < SLOW else random.lognormvariate(-3.4, 0.6))
    body = b"" if status.startswith("304") else b"x" * min(400_000, int(random.lognormvariate(9.2, 1.3)))
    length = b"" if status.startswith("304") else b"Content-Length: %d\r\n" % len(body)
    writer.write(b"HTTP/1.1 %s\r\nContent-Type: text/plain\r\n%s\r\n" % (status.encode(), length) + body)
    await writer.drain()


async def _tunnel(target: str, reader: StreamReader, writer: StreamWriter) -> None:
    """Each piece that comes is responded to by a longer one."""
    if target == BROKEN and random.random() < 0.2:
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        return
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while await reader.read(65_536):
        writer.write(b"x" * random.randrange(2_000, 60_000))
        await writer.drain()
