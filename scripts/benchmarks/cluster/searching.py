"""Measures of access records of several nodes: a search that all of them make, also when one of them hangs."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgpack

from actors.bus.records import RecordBatch
from actors.logs.index import LogIndex
from benchmarks.cluster.fleets import Client, Fleet, effort_of
from benchmarks.objects import MIDNIGHT, records, timed
from benchmarks.ours import OURS, Product
from benchmarks.processes import BenchError
from benchmarks.rounds import Bench, Results
from config.text.formatting import timestamp_text

WORD = "service.net"
WINDOW = "&".join(
    f"{name}={timestamp_text(MIDNIGHT + days * 86_400)}" for name, days in (("start_time", -1), ("end_time", 10))
)


def search(bench: Bench) -> Results:
    """ms of a common word at one node, in turns with all, and seconds of those while one of them hangs."""
    effort = effort_of(bench)
    folder = bench.own("records")
    _indexed(folder, effort.records)
    with Fleet() as fleet:
        fleet.first(prepare=partial(_copied, folder))
        fleet.grow(effort.searching, partial(_copied, folder))
        client = fleet.clients()[0]
        took: dict[str, list[float]] = {"self": [], "all": []}
        for name in [*took] * (bench.effort.rounds + 2):
            took[name].append(_search(client, name))
        one, all_ = (statistics.median(each) for each in took.values())
        with _stopped(fleet.nodes[-1]):
            missing = [_search(client, "all", 1) / 1e3 for _ in range(6)]
    figure = {"one": one, "all": all_, "ratio": all_ / one, "first": max(missing[:2]), "then": max(missing[3:])}
    return {OURS: figure}


def _indexed(folder: Path, count: int) -> None:
    """Day files with so many records."""
    now = MIDNIGHT
    index = LogIndex(folder, lambda: now)
    for number, batch in enumerate(records(count), 1):
        now = batch[-1][0]
        index.commit(RecordBatch("bench", 1, number, 1, msgpack.unpackb(msgpack.packb(batch))))
    index.close()


def _copied(folder: Path, product: Product) -> None:
    shutil.copytree(folder, product.data_dir / "logs")
    os.chmod(product.data_dir, 0o700)
    os.chmod(product.data_dir / "logs", 0o700)


def _search(client: Client, of: str, missing: int = 0) -> float:
    """ms. Raises `BenchError` unless so many nodes are missing."""
    took, (_, found) = timed(lambda: client.done("GET", f"/logs?search={WORD}&limit=100&node={of}&{WINDOW}"))
    if len(found["logs"]) != 100:
        raise BenchError(f"a search found {len(found['logs'])} records")
    if len(found["meta"]["missing_nodes"]) != missing:
        raise BenchError(f"missing: {found['meta']['missing_nodes']}")
    return took


@contextmanager
def _stopped(node: Product) -> Iterator[None]:
    """All its processes hang for the time of the block."""
    pids = node.everything()
    for each in pids:
        os.kill(each, signal.SIGSTOP)
    try:
        time.sleep(1)
        yield
    finally:
        for each in pids:
            os.kill(each, signal.SIGCONT)
