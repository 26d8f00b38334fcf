"""Questions to the process of a proxy. While it starts, the bus holds them (`actors.bus.startup_queue`)."""

from __future__ import annotations

from typing import Any

from actors.bus.mailbox import ASK_TIMEOUT
from actors.bus.messages.common import forwarding_name
from api.bus_bridge import Bridge
from api.http.errors import unavailable

NO_ANSWER = "The proxy's process does not answer; its runtime says more"


def ask_process(bridge: Bridge, proxy_id: str, question: Any, *kinds: type[Any], timeout: float = ASK_TIMEOUT) -> Any:
    """The response of the process of an active proxy, which is one of `kinds`. Raises `ApiError` 503 without one."""
    response = bridge.ask(forwarding_name(proxy_id), question, timeout)
    if not isinstance(response, kinds):
        raise unavailable(NO_ANSWER)
    return response
