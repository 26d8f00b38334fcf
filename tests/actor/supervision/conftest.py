"""A real supervisor as a process, with stand-ins for its actors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.actor.supervision.supervised import Supervised


@pytest.fixture
def supervise() -> Iterator[Callable[..., Supervised]]:
    """Start supervisors; they are ended, and their log is printed, at the end of the test."""
    made: list[Supervised] = []

    def start(**options: Any) -> Supervised:
        made.append(Supervised(**options))
        made[-1].wait_ready()
        return made[-1]

    yield start
    for each in made:
        print(each.log)
        each.discard()


@pytest.fixture(scope="module")
def _kept() -> Iterator[list[Supervised]]:
    """The supervisor of the module, once a test has asked for it."""
    kept: list[Supervised] = []
    yield kept
    for each in kept:
        each.discard()


@pytest.fixture
def supervised(_kept: list[Supervised]) -> Iterator[Supervised]:
    """One that is ready and has no proxies: the module's, or another one after a test that has ended that."""
    running = _kept.pop() if _kept else Supervised()
    try:
        running.wait_ready()
        yield running
        print(running.log)
        if running.process.poll() is None:
            running.empty()
            _kept.append(running)
    finally:
        if not _kept:
            running.discard()
