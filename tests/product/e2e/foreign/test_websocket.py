"""WebSocket clients of two libraries against the server of one: through tunnels, and through Upgrade on a request.

`websockets` asks an HTTP proxy for a tunnel (CONNECT) also for `ws:`; aiohttp sends the handshake in absolute form.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.product.e2e.foreign.entrances import MakeEntrance
from tests.product.e2e.foreign.websocket_client import MESSAGES, as_http, talk_after_upgrade, talk_in_a_tunnel

pytestmark = pytest.mark.product

SHORT = ["hello", b"", "goodbye"]
"""For TLS within TLS: there `websockets` waits for its socket while it holds the rest of a longer message itself."""


def random_bytes(messages: Sequence[str | bytes]) -> int:
    """What no compression makes shorter."""
    return sum(len(message) for message in messages if isinstance(message, bytes))


@pytest.mark.parametrize(("scheme", "target"), [("http", "ws"), ("https", "wss"), ("socks5", "wss")])
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
