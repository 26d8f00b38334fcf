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


@pytest.fixture
def supervised(supervise: Callable[..., Supervised]) -> Supervised:
    """A supervisor that is ready."""
    return supervise()
