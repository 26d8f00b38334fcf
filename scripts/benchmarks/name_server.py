"""A name server for measurements (`python -m benchmarks.name_server PORT DELAY [ADDRESS]`): every name has one IPv4
address, which is 192.0.2.1 unless another is given.

It responds after DELAY seconds, and costs as little as it can, since it runs on the machine that is measured.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from typing import cast

A = 1
_HEAD = 12


def respond(query: bytes, address: bytes) -> bytes:
    """An address for the question, or that there is none of its kind."""
    end = query.index(b"\0", _HEAD) + 5
    found = int.from_bytes(query[end - 4 : end - 2], "big") == A
    head = query[:2] + struct.pack("!HHHHH", 0x8180, 1, int(found), int(not found), 0)
    if found:
        return head + query[_HEAD:end] + struct.pack("!HHHIH4s", 0xC00C, A, 1, 3600, 4, address)
    soa = b"\0\0" + struct.pack("!IIIII", 1, 3600, 600, 86400, 3600)
    return head + query[_HEAD:end] + b"\0" + struct.pack("!HHIH", 6, 1, 3600, len(soa)) + soa


class Late(asyncio.DatagramProtocol):
    """Responds to each query after the delay."""

    def __init__(self, delay: float, address: bytes) -> None:
        self._delay = delay
        self._address = address

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """See asyncio."""
        asyncio.get_running_loop().call_later(self._delay, self._transport.sendto, respond(data, self._address), addr)


async def serve(port: int, delay: float, address: str = "192.0.2.1") -> None:
    """Until it is killed."""
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(lambda: Late(delay, socket.inet_aton(address)), ("127.0.0.1", port))
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:]))
