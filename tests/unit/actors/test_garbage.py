"""What a long collection has kept is taken out of later ones."""

from __future__ import annotations

import subprocess
import sys

from actors.garbage import LONG, ShortCollections
from tests.kit.clocks import Clock


class Collections:
    """Collections that take so long."""

    def __init__(self) -> None:
        self.frozen = 0
        self._cpu = Clock()
        self._called = ShortCollections(self._freeze, self._cpu)

    def _freeze(self) -> None:
        self.frozen += 1

    def collect(self, seconds: float, generation: int = 2) -> int:
        """How often something has been frozen since the begin."""
        info = {"generation": generation, "collected": 0, "uncollectable": 0}
        self._called("start", info)
        self._cpu.now += seconds
        self._called("stop", info)
        return self.frozen


def test_after_each_full_collection_that_was_long() -> None:
    collections = Collections()
    assert collections.collect(LONG / 2) == 0
    assert collections.collect(LONG * 2, generation=1) == 0
    assert collections.collect(LONG * 2) == 1
    assert collections.collect(LONG / 2) == 1
    assert collections.collect(LONG * 2) == 2


def test_what_is_frozen_is_freed_when_it_ends_and_walked_over_no_more() -> None:
    """In a process of its own, whose collector is not that of the tests."""
    program = """
import gc
from actors import garbage
gc.disable()
gc.callbacks.append(garbage.ShortCollections(cpu=iter(range(10)).__next__))
kept = [[number] for number in range(100_000)]
gc.collect()
frozen = gc.get_freeze_count()
assert frozen > 100_000 and len(gc.get_objects()) < 50_000, (frozen, len(gc.get_objects()))
del kept
assert gc.get_freeze_count() <= frozen - 100_000
"""
    subprocess.run([sys.executable, "-c", program], check=True)
