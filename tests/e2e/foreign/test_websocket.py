"""WebSocket clients of two libraries against the server of one: through tunnels, and through Upgrade on a request.

`websockets` asks an HTTP proxy for a tunnel (CONNECT) also for `ws:`; aiohttp sends the handshake in absolute form.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Sequence

import aiohttp
import pytest
from websockets.sync.client import connect

from tests.e2e.foreign.conftest import Entrance, MakeEntrance
from tests.e2e.foreign.programs import needs

pytestmark = [pytest.mark.product, needs("openssl")]

SECONDS = 30
MESSAGES: list[str | bytes] = ["hello", b"", os.urandom(300_000), "ä" * 70_000, "goodbye"]
SHORT = ["hello", b"", "goodbye"]
"""For TLS within TLS: there `websockets` waits for its socket while it holds the rest of a longer message itself."""


def random_bytes(messages: Sequence[str | bytes]) -> int:
    """What no compression makes shorter."""
    return sum(len(message) for message in messages if isinstance(message, bytes))


def trusting(proxy: Entrance) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=proxy.certificate)


def talk_in_a_tunnel(proxy: Entrance, url: str, messages: Sequence[str | bytes]) -> None:
    """Every message comes back, and the end is a proper one."""
    options = {"ssl": trusting(proxy)} if url.startswith("wss:") else {}
    if proxy.scheme == "https":
        options["proxy_ssl"] = trusting(proxy)
    with connect(url, proxy=proxy.url, max_size=None, open_timeout=SECONDS, **options) as websocket:
        for message in messages:
            websocket.send(message)
            assert websocket.recv(SECONDS) == message
    assert websocket.close_code == 1000


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


@pytest.mark.parametrize("target", ["ws", "wss"])
@pytest.mark.parametrize("scheme", ["http", "https", "socks4a", "socks5", "socks5h"])
def test_messages_come_back_through_a_tunnel(
    entrance: MakeEntrance, echoes: dict[str, str], scheme: str, target: str
) -> None:
    proxy = entrance(scheme)
    url = echoes[target]
    messages = SHORT if (scheme, target) == ("https", "wss") else MESSAGES
    talk_in_a_tunnel(proxy, url, messages)
    (record,) = proxy.records(1)
    assert (record["method"], record["target_url"]) == ("CONNECT", url.split("/")[2])
    assert min(record["bytes_in"], record["bytes_out"]) > random_bytes(messages)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_messages_come_back_after_upgrade_on_a_request(
    entrance: MakeEntrance, echoes: dict[str, str], scheme: str
) -> None:
    proxy = entrance(scheme)
    talk_after_upgrade(proxy, echoes["ws"])
    (record,) = proxy.records(1)
    assert (record["method"], record["target_url"], record["status_code"]) == ("GET", as_http(echoes["ws"]), 101)
    assert min(record["bytes_in"], record["bytes_out"]) > random_bytes(MESSAGES)
