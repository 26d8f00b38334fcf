"""What tests of proxies with several workers ask of a running product."""

from __future__ import annotations

from typing import Any

from tests.kit.product import Product
from tests.kit.wait import wait_until


def detail(product: Product, proxy: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = product.data("GET", f"/proxies/{proxy['id']}")["proxy"]
    return found


def all_run(product: Product, proxy: dict[str, Any], count: int) -> list[int]:
    """The pids once exactly so many workers run."""

    def is_so() -> list[int] | None:
        runtime = detail(product, proxy)["runtime"]
        pids = [each["pid"] for each in runtime["workers"] if each["state"] == "running"]
        ready = runtime["state"] == "running" and len(pids) == len(runtime["workers"]) == count
        return pids if ready else None

    return wait_until(is_so, f"{count} workers run")


def limited(product: Product, proxy: dict[str, Any], **limits: int) -> None:
    product.data("PATCH", f"/proxies/{proxy['id']}", {"limits": limits})
