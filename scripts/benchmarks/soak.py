"""`scripts/bench soak`: a steady load with churn for a long time; whether memory or descriptors grow after warm-up.

Growth is the difference of two medians: of the last fifth of the samples and of the first fifth after warm-up. The
slope is that of the line which fits all samples after warm-up best.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from benchmarks.ours import OurProxy, Product
from benchmarks.paced import Generator, Pace, Sent
from benchmarks.peers import Origin
from benchmarks.processes import cpu_seconds, descriptors, rss, uss
from benchmarks.report import Bar, Row

MB = 1024**2
WARM_UP_SHARE = 0.2
"""Of the whole time: pools, caches and the allocator's arenas find their size."""

GROWTH_SHARE = 0.02
"""What a median may differ by without being called growth: the noise of an allocator."""

GROWTH_DESCRIPTORS = 5

DEFAULT_TIMEOUT = 30
"""Seconds that a tunnel may be idle, as proxies have it unless they say otherwise."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample: seconds since the begin; bytes and counts of the actor or of all workers together, and of all
    processes of the product.
    """

    at: float
    uss: int
    rss: int
    descriptors: int
    all_uss: int
    all_descriptors: int


def growth(samples: Sequence[Sample], what: Callable[[Sample], float]) -> tuple[float, float, float]:
    """Of one figure after warm-up: its first median, by how much the last median is above it, and its slope per hour.

    `samples` are in order and at least ten.
    """
    warm = [sample for sample in samples if sample.at >= samples[-1].at * WARM_UP_SHARE]
    fifth = max(1, len(warm) // 5)
    first = statistics.median(map(what, warm[:fifth]))
    last = statistics.median(map(what, warm[-fifth:]))
    line = statistics.linear_regression([sample.at for sample in warm], [what(sample) for sample in warm])
    return first, last - first, line.slope * 3600


def soak(
    product: Product, origin: Origin, seconds: float, pace: Pace, workers: int = 1
) -> tuple[list[Row], dict[str, object]]:
    """The rows, and for JSON all samples."""
    proxy = OurProxy(product, timeout=DEFAULT_TIMEOUT, workers=workers)
    generator = Generator(proxy, origin.port, pace)
    samples: list[Sample] = []

    def sample(at: float) -> None:
        samples.append(_sample(proxy, at))
        if len(samples) % 20 == 0:
            print(_progress(samples[-1], generator.sent), file=sys.stderr)

    try:
        before = cpu_seconds(proxy.everything())
        generator.run(seconds, sample, max(0.5, seconds / 300))
        cpu = cpu_seconds(proxy.everything()) - before
    finally:
        generator.close()
        proxy.end()
    rows = [*_traffic(generator.sent, seconds, pace, cpu), *_growth_rows(samples)]
    return rows, {"samples": [asdict(sample) for sample in samples]}


def _sample(proxy: OurProxy, at: float) -> Sample:
    actor, everything = proxy.forwarding(), proxy.everything()
    return Sample(at, uss(actor), rss(actor), descriptors(actor), uss(everything), descriptors(everything))


def _progress(sample: Sample, sent: Sent) -> str:
    held = f"actor {sample.uss / MB:.1f} MB and {sample.descriptors} descriptors, all {sample.all_uss / MB:.1f} MB"
    return f"{sample.at:5.0f} s: {sent.responded:,} responses, {sent.failed} failed; {held}"


def _traffic(sent: Sent, seconds: float, pace: Pace, cpu: float) -> list[Row]:
    p99 = statistics.quantiles(sent.latencies, n=100)[98] * 1e3
    responded = Bar(0.99 * pace.requests, at_least=True)
    return [
        Row("soak: responses", "requests/s", sent.responded / seconds, bar=responded),
        Row("soak: requests and tunnels that failed", "", sent.failed, bar=Bar(0)),
        Row("soak: new client connections and tunnels", "1/s", (sent.connections + sent.tunnels) / seconds),
        Row("soak: p99", "ms", p99),
        Row("soak: CPU of all processes", "% of a core", cpu / seconds * 100),
    ]


def _growth_rows(samples: Sequence[Sample]) -> list[Row]:
    rows = []
    for name, what in (("the actor's", lambda s: s.uss / MB), ("the product's", lambda s: s.all_uss / MB)):
        first, more, slope = growth(samples, what)
        rows += [
            Row(f"soak: {name} memory after warm-up (USS)", "MB", first),
            Row(f"soak: {name} memory, growth since then", "MB", more, bar=Bar(first * GROWTH_SHARE)),
            Row(f"soak: {name} memory, slope", "MB/hour", slope),
        ]
    for name, what in (("the actor's", lambda s: s.descriptors), ("the product's", lambda s: s.all_descriptors)):
        first, more, _ = growth(samples, what)
        rows += [
            Row(f"soak: {name} descriptors after warm-up", "", first),
            Row(f"soak: {name} descriptors, growth since then", "", more, bar=Bar(GROWTH_DESCRIPTORS)),
        ]
    return rows
