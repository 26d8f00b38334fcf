"""All rows about the dashboard."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarks.dashboard import heap, painting, tabs, weight
from benchmarks.dashboard.installation import Size, fill
from benchmarks.dashboard.visitor import visitor
from benchmarks.ours import Product
from benchmarks.peers import Origin
from benchmarks.report import Row

POLLING_SECONDS = 30.0


def measure(folder: Path, size: Size) -> list[Row]:
    """Of an installation of this size, made in `folder`."""
    began = time.monotonic()
    fill(folder / "data", size)
    print(f"filled in {time.monotonic() - began:.0f} s", file=sys.stderr)
    product = Product(folder)
    try:
        with visitor(product) as browser:
            return [
                *weight.measure(browser),
                *painting.first_paint(browser),
                *painting.scrolling(browser, size.proxies),
                *tabs.measure(browser, product, POLLING_SECONDS),
            ]
    finally:
        product.end()


def soak(folder: Path, minutes: float) -> list[Row]:
    """Two screens that stay open under traffic."""
    origin = Origin(folder)
    product = Product(folder)
    try:
        with visitor(product) as browser:
            return heap.soak(browser, product, origin, minutes)
    finally:
        product.end()
        origin.end()
