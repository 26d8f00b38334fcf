"""WebSocket clients: after an upgrade, and in a tunnel."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Sequence

import aiohttp
from websockets.asyncio.client import connect

from tests.product.e2e.foreign.entrances import Entrance

SECONDS = 120


MESSAGES: list[str | bytes] = ["hello", b"", os.urandom(300_000), "ä" * 70_000, "goodbye"]


def trusting(proxy: Entrance) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=proxy.certificate)


def talk_in_a_tunnel(proxy: Entrance, url: str, messages: Sequence[str | bytes]) -> None:
    """Every message comes back, and the end is a proper one.

    By asyncio: clients and servers of `websockets.sync` use a TLS connection in two threads at once, which ends
    one handshake in some hundred.
    """
    options = {"ssl": trusting(proxy)} if url.startswith("wss:") else {}
    if proxy.scheme == "https":
        options["proxy_ssl"] = trusting(proxy)

    async def talk() -> None:
        async with connect(url, proxy=proxy.url, max_size=None, open_timeout=SECONDS, **options) as websocket:
            for message in messages:
                await websocket.send(message)
                assert await asyncio.wait_for(websocket.recv(), SECONDS) == message
        assert websocket.close_code == 1000

    asyncio.run(talk())


def talk_after_upgrade(proxy: Entrance, url: str) -> None:
    """The same, of the handshake in absolute form, which is that of any request."""

    async def talk() -> None:
        timeout = aiohttp.ClientTimeout(SECONDS)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.ws_connect(as_http(url), proxy=proxy.url, ssl=trusting(proxy), max_msg_size=0) as websocket,
        ):
            for message in MESSAGES:
                await (websocket.send_str if isinstance(message, str) else websocket.send_bytes)(message)
                assert (await websocket.receive(SECONDS)).data == message
            await websocket.close()
            assert websocket.close_code == 1000

    asyncio.run(talk())


def as_http(url: str) -> str:
    return url.replace("ws:", "http:")
