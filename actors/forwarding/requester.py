"""The client for which work is done off the loop: it is billed for the share of threads, and may stop waiting."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Requester(Protocol):
    """A client connection, in most cases."""

    @property
    def client_ip(self) -> str:
        """The client's address; empty for the proxy itself."""

    @property
    def waits(self) -> bool:
        """True while the result is wanted. A client that has ended its side before its turn is taken to be gone."""


class _ProxyItself(NamedTuple):
    client_ip: str = ""
    waits: bool = True


OURSELVES: Requester = _ProxyItself()
"""The proxy itself: for an upstream's address, or for an explanation."""
