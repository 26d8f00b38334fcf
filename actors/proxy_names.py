"""The names and ports of proxies by id, as the supervisor sends them to actors that know proxies by their ids."""

from __future__ import annotations

from actors.bus.messages.supervision import SetProxyNames


class ProxyNames:
    """A table that messages of the supervisor update."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[str, int]] = {}

    def update(self, message: SetProxyNames) -> None:
        """Apply new names and forget deleted proxies."""
        self._names.update(message.names)
        for proxy_id in message.gone:
            self._names.pop(proxy_id, None)

    def get(self, proxy_id: str) -> tuple[str, int] | None:
        """Name and port; None of a proxy that is unknown or deleted."""
        return self._names.get(proxy_id)
