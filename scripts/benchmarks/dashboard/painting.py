"""How soon something is seen, and how smoothly a long table scrolls, by Chromium's own clocks."""

from __future__ import annotations

import itertools
import statistics
from typing import Any

from playwright.sync_api import Page

from benchmarks.dashboard.visitor import SLOWER, Visitor
from benchmarks.processes import BenchError
from benchmarks.report import Bar, Beside, Row

LOADS = 5
FIRST_PAINT = 1_000
"""Milliseconds, at most."""
FRAMES = 50
"""In a second, at least."""
SCROLLED = 15_000
"""Pixels, of which `SPEED` in a second."""
SPEED = 3_000
FRAME_EVENTS = ["devtools.timeline", "disabled-by-default-devtools.timeline.frame"]
PAINTED = """() => new Promise((done) => new PerformanceObserver((list) => {
  const found = list.getEntriesByName('first-contentful-paint');
  if (found.length) done(found[0].startTime);
}).observe({ type: 'paint', buffered: true }))"""


def first_paint(visitor: Visitor) -> list[Row]:
    """Of cold loads of the overview with a slower processor, medians."""
    painted, complete = [], []
    for _ in range(LOADS):
        with visitor.page(SLOWER) as page:
            page.goto("/ui/", wait_until="commit")
            painted.append(float(page.evaluate(PAINTED)))
            page.get_by_role("heading", level=1).wait_for()
            complete.append(float(page.evaluate("performance.now()")))
    name = f"dashboard: cold load with a processor {SLOWER} times slower"
    return [
        Row(f"{name}, first paint", "ms", statistics.median(painted), bar=Bar(FIRST_PAINT)),
        Row(f"{name}, the overview is there", "ms", statistics.median(complete)),
    ]


def scrolling(visitor: Visitor, rows: int) -> list[Row]:
    """Frames that are drawn while the table of proxies is scrolled with a slower processor."""
    with visitor.page(SLOWER) as page:
        page.goto("/ui/proxies")
        page.get_by_role("row").nth(5).wait_for()
        events = visitor.trace(page, FRAME_EVENTS, lambda: _scroll(page))
    drawn = _times(events, "DrawFrame")
    if len(drawn) < 2:
        raise BenchError("Chromium's tracing has no frames of the scrolling")
    seconds = (drawn[-1] - drawn[0]) / 1e6
    longest = max(later - sooner for sooner, later in itertools.pairwise(drawn)) / 1e3
    name = f"dashboard: table of {rows:,} rows, processor {SLOWER} times slower"
    frames = Bar(FRAMES, at_least=True)
    beside = Beside("of the page", len(_times(events, "BeginMainThreadFrame")) / seconds)
    return [
        Row(f"{name}, frames while it scrolls", "1/s", (len(drawn) - 1) / seconds, bar=frames, beside=beside),
        Row(f"{name}, longest time between two frames", "ms", longest),
    ]


def _scroll(page: Page) -> None:
    """As a wheel does: by gestures that Chromium synthesizes, to the end of the distance."""
    session = page.context.new_cdp_session(page)
    gesture = {"x": 640, "y": 500, "yDistance": -SCROLLED, "speed": SPEED, "gestureSourceType": "mouse"}
    session.send("Input.synthesizeScrollGesture", {**gesture, "preventFling": True})


def _times(events: list[dict[str, Any]], name: str) -> list[float]:
    return sorted(event["ts"] for event in events if event["name"] == name)
