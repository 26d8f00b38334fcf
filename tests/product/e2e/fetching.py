"""Requests through a proxy while processes are killed."""

from __future__ import annotations

from typing import Any

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wire import Client


def fetched(proxy: dict[str, Any], origin: Origin) -> bool:
    with Client(proxy["port"]) as client:
        return client.get(origin.url("/hello")).status == 200


def healthy(product: Product) -> dict[str, Any] | None:
    report: dict[str, Any] = product.data("GET", "/health")
    return report if report["status"] == "healthy" else None


def fetched_name(proxy: dict[str, Any], name: str, origin: Origin) -> int:
    """The status of a request for the origin by a name."""
    with Client(proxy["port"]) as client:
        return client.get(origin.url("/hello").replace("127.0.0.1", name)).status
