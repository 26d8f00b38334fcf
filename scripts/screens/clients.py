"""Clients of the made-up installation: plausible addresses, users and targets, at a steady pace with some noise."""

from __future__ import annotations

import asyncio
import base64
import random
from asyncio import StreamReader, StreamWriter
from typing import Any

from screens.names import ACCOUNTS, AGENTS, HOSTS, PASSWORD, PATHS
from screens.seed import STOPPED, Seeded

RATES = {"office": 6.0, "build-machines": 9.0, "crawler-eu": 14.0, "crawler-us": 8.0, "partners": 3.0, "lab-socks": 2.0}
"""Requests each second."""
TUNNELS = {"office": 9, "build-machines": 6, "crawler-eu": 4, "crawler-us": 3, "partners": 2, "lab-socks": 2}
"""Tunnels that are open at a time."""
WRONG = 0.02
"""Of requests, those with a wrong password; as many ask for an address inside."""
_EXPECTED = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)


def address() -> str:
    """Of a client."""
    return f"10.{random.choice((20, 20, 20, 31, 47))}.{random.randrange(4)}.{random.randrange(2, 40)}"


def host() -> str:
    """That a client asks for."""
    return random.choices(list(HOSTS), list(HOSTS.values()))[0]


async def run(seeded: Seeded) -> None:
    """Send until it is cancelled."""
    async with asyncio.TaskGroup() as tasks:
        for name, proxy in seeded.proxies.items():
            if name != STOPPED:
                tasks.create_task(_requests(proxy, RATES[name]))
                for _ in range(TUNNELS[name]):
                    tasks.create_task(_tunnels(proxy))


async def _requests(proxy: dict[str, Any], rate: float) -> None:
    async with asyncio.TaskGroup() as tasks:
        while True:
            await asyncio.sleep(random.expovariate(rate))
            tasks.create_task(_quietly(_one(proxy)))


async def _tunnels(proxy: dict[str, Any]) -> None:
    while True:
        await _quietly(_long(proxy, random.uniform(5, 240)))
        await asyncio.sleep(random.uniform(0.5, 3))


async def _quietly(work: Any) -> None:
    try:
        await work
    except _EXPECTED:
        return  # refused, as some are meant to be


async def _one(proxy: dict[str, Any]) -> None:
    target = "10.0.0.5" if random.random() < WRONG else host()
    password = "wrong" if random.random() < WRONG else PASSWORD
    if proxy["protocol"] != "http":
        reader, writer = await _opened(proxy, f"{target}:443", password)
        writer.write(b"hello")
        await reader.read(65_536)
    else:
        reader, writer = await _connected(proxy)
        writer.write(_head(f"GET http://{target}/{random.choice(PATHS)}", target, password))
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.wait_for(reader.read(500_000), 5)
    writer.close()


async def _long(proxy: dict[str, Any], seconds: float) -> None:
    reader, writer = await _opened(proxy, f"{host()}:443", PASSWORD)
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        writer.write(b"x" * random.randrange(80, 2_000))
        await writer.drain()
        if not await reader.read(65_536):
            break
        await asyncio.sleep(random.uniform(0.2, 2))
    writer.close()


async def _connected(proxy: dict[str, Any]) -> tuple[StreamReader, StreamWriter]:
    """A connection from some address, as a balancer would pass it on."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy["port"])
    writer.write(f"PROXY TCP4 {address()} 127.0.0.1 {random.randrange(20_000, 60_000)} {proxy['port']}\r\n".encode())
    return reader, writer


async def _opened(proxy: dict[str, Any], target: str, password: str) -> tuple[StreamReader, StreamWriter]:
    """A tunnel."""
    reader, writer = await _connected(proxy)
    if proxy["protocol"] == "http":
        writer.write(_head(f"CONNECT {target}", target, password))
        if b" 200 " not in (await reader.readuntil(b"\r\n\r\n")).splitlines()[0]:
            writer.close()
            raise ConnectionError(target)
        return reader, writer
    name, user, secret = target.rpartition(":")[0].encode(), random.choice(ACCOUNTS).encode(), password.encode()
    writer.write(b"\x05\x01\x02" + bytes([1, len(user)]) + user + bytes([len(secret)]) + secret)
    await reader.readexactly(4)
    writer.write(b"\x05\x01\x00\x03" + bytes([len(name)]) + name + b"\x01\xbb")
    await reader.readexactly(10)
    return reader, writer


def _head(line: str, authority: str, password: str) -> bytes:
    pair = base64.b64encode(f"{random.choice(ACCOUNTS)}:{password}".encode()).decode()
    fields = f"Host: {authority}\r\nUser-Agent: {random.choice(AGENTS)}\r\nProxy-Authorization: Basic {pair}\r\n"
    return f"{line} HTTP/1.1\r\n{fields}Connection: close\r\n\r\n".encode()
