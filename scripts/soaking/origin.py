"""The origin of the traffic, a process of its own: `python -m soaking.origin` prints its two ports.

At the first, HTTP/1.1: `GET /N` returns N bytes, and `GET /list` domains, which differ each time but for the last.
The second echoes.
"""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio import StreamReader, StreamWriter

LISTED = b"listed.example"


async def _http(reader: StreamReader, writer: StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            what = head.split()[1].rpartition(b"/")[2]
            body = _domains() if what == b"list" else b"x" * int(what)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        writer.close()  # the proxy has enough, or was killed


def _domains() -> bytes:
    now = time.monotonic_ns()
    return b"".join(b"%d.example\n" % (now + number) for number in range(1000)) + LISTED + b"\n"


async def _echo(reader: StreamReader, writer: StreamWriter) -> None:
    try:
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass  # reset by a proxy that was killed
    writer.close()


async def main() -> None:
    """Until it is ended."""
    servers = [await asyncio.start_server(each, "127.0.0.1", 0) for each in (_http, _echo)]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until the parent is gone


if __name__ == "__main__":
    asyncio.run(main())
