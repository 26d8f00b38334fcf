"""Waiting for a condition with a deadline: what tests do instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T | None], what: str, seconds: float = 120.0, pause: float = 0.02) -> T:
    """The first true value of `condition()`. Raises `AssertionError` naming `what` when it doesn't come in time.

    What takes long is asked for less often, since each time costs the product something, too: a wait is longer by a
    tenth at most.
    """
    began = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(f"not within {seconds} s: {what} (last: {value!r})")
        time.sleep(max(pause, min(waited / 10, 12 * pause)))
