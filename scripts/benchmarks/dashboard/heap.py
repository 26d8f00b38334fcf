"""The soak of the page: its heap while it stays open beside steady traffic.

Garbage is collected before each sample. Growth is judged as in `benchmarks.soak`, by medians after warm-up.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from playwright.sync_api import CDPSession, Page

from benchmarks.dashboard.visitor import Visitor
from benchmarks.ours import OurProxy, Product
from benchmarks.paced import Generator, Pace
from benchmarks.peers import Origin
from benchmarks.report import Bar, Row
from benchmarks.soak import growth

MB = 1024**2
RATE = 500
SCREENS = {"overview": "/ui/", "connections": "/ui/connections"}
SAMPLES = 60
GROWTH_SHARE = 0.05
GROWTH_NODES = 0.1
"""What the medians may differ by: the buffers of charts fill up slowly."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds since the begin, bytes of the heap, and nodes of all documents."""

    at: float
    heap: int
    nodes: int


class _Watched:
    """A screen that stays open."""

    def __init__(self, name: str, page: Page) -> None:
        self.name, self._page = name, page
        self.samples: list[Sample] = []
        self._session: CDPSession = page.context.new_cdp_session(page)

    def sample(self, at: float) -> None:
        self._session.send("HeapProfiler.collectGarbage")
        used = self._session.send("Runtime.getHeapUsage")["usedSize"]
        nodes = self._session.send("Memory.getDOMCounters")["nodes"]
        self.samples.append(Sample(at, int(used), int(nodes)))

    def rows(self) -> list[Row]:
        name = f"dashboard: the {self.name} stays open"
        heap, more, slope = growth(self.samples, lambda sample: sample.heap / MB)
        nodes, more_nodes, _ = growth(self.samples, lambda sample: sample.nodes)
        return [
            Row(f"{name}, heap after warm-up", "MB", heap),
            Row(f"{name}, growth of the heap since then", "MB", more, bar=Bar(max(0.5, heap * GROWTH_SHARE))),
            Row(f"{name}, slope of the heap", "MB/hour", slope),
            Row(f"{name}, nodes after warm-up", "", nodes),
            Row(f"{name}, growth of the nodes since then", "", more_nodes, bar=Bar(max(200, nodes * GROWTH_NODES))),
        ]


def soak(visitor: Visitor, product: Product, origin: Origin, minutes: float) -> list[Row]:
    """Under `RATE` requests/s for so long."""
    proxy, seconds = OurProxy(product), minutes * 60
    generator = Generator(proxy, origin.port, Pace(RATE, tunnels=5))
    try:
        with visitor.context() as context:
            watched = []
            for name, path in SCREENS.items():
                page = context.new_page()
                page.goto(path)
                watched.append(_Watched(name, page))

            def sample(at: float) -> None:
                for each in watched:
                    each.sample(at)
                print(f"{at:5.0f} s: {', '.join(map(_progress, watched))}", file=sys.stderr)

            generator.run(seconds, sample, seconds / SAMPLES)
    finally:
        generator.close()
        proxy.end()
    rate = Row("dashboard: requests beside it", "requests/s", generator.sent.responded / seconds)
    return [rate, *(row for each in watched for row in each.rows())]


def _progress(watched: _Watched) -> str:
    latest = watched.samples[-1]
    return f"{watched.name} {latest.heap / MB:.1f} MB, {latest.nodes:,} nodes"
