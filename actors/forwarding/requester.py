"""For whom something is found out off the loop: whose share of the threads it takes, and whether it is still wanted."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Requester(Protocol):
    """A client connection, in most cases."""

    @property
    def client_ip(self) -> str:
        """The client's address; empty for the proxy itself."""

    @property
    def waits(self) -> bool:
        """Is the answer still wanted? A client that has ended its side before its turn came is taken to be gone."""


class _Proxy(NamedTuple):
    client_ip: str = ""
    waits: bool = True


OURSELVES: Requester = _Proxy()
"""The proxy itself asks: for an upstream's address, or for an explanation."""
