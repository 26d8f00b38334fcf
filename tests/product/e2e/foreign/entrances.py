"""Entrances to a product for real clients: one proxy of each protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.kit.product import Product
from tests.kit.wait import wait_until

MEGABYTES = bytes(range(256)) * 8192  # two of them
"""What `/two-megabytes` of the site is."""


Record = dict[str, Any]


@dataclass(frozen=True)
class Entrance:
    """A running proxy of the product, as a client sees it."""

    product: Product
    detail: dict[str, Any]
    scheme: str
    certificate: str

    @property
    def port(self) -> int:
        return int(self.detail["port"])

    @property
    def url(self) -> str:
        """As clients want it, with the scheme that was asked for (`socks5h`)."""
        host = self.detail["host"]
        return f"{self.scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    def records(self, count: int) -> list[Record]:
        """Its access records, the oldest first, once there are `count` of them; more are a failure."""
        found = self.records_when(lambda found: len(found) >= count, f"{count} records")
        assert len(found) == count, found
        return found

    def records_when(self, enough: Callable[[list[Record]], bool], what: str) -> list[Record]:
        """Its access records, the oldest first, once they are `enough`."""

        def arrived() -> list[Record] | None:
            found: list[Record] = self.product.data("GET", f"/logs?proxy_id={self.detail['id']}&limit=1000")["logs"]
            return found if enough(found) else None

        found = wait_until(arrived, f"{what} of {self.url}")
        return sorted(found, key=lambda record: str(record["timestamp"]))


MakeEntrance = Callable[..., Entrance]
