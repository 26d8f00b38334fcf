"""LivingProcesses that count together, as a test makes them: the supervisor's side, and what each process has."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from actors.mapped_file import Words
from actors.state.booked_usage import CountedLine
from actors.state.live_state import LiveState
from actors.state.processes import instance_of
from actors.supervision.processes.live_state_files import LiveStateFiles

PROXY = "px1"


def no_failure(detail: str) -> None:
    raise AssertionError(detail)


class Machine:
    """`folder` is `RunDir.state`, `clock` that of all processes."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder = folder
        self.files = LiveStateFiles(folder)
        self._clock = clock
        self._instances = 0
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def state(
        self, proxy_id: str = PROXY, on_failure: Callable[[str], None] = no_failure, worker: int = 0
    ) -> LiveState:
        """What a new process of a proxy has."""
        self._instances += 1
        number = self.files.begin(proxy_id, self._instances)
        return LiveState(self._clock, self.folder, proxy_id, number, on_failure, self._later, worker)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._timers.append((self._clock() + seconds, call))

    def run_timers(self) -> None:
        """Those of all processes that are due."""
        due = [call for moment, call in self._timers if moment <= self._clock()]
        self._timers = [each for each in self._timers if each[0] > self._clock()]
        for call in due:
            call()

    def end(self, state: LiveState, proxy_id: str = PROXY) -> None:
        """The process has died."""
        self.files.end(proxy_id, instance_of(state.number))


class Killed(Exception):
    """The process has died."""


class Writes:
    """The numbers of a process that dies after so many writes: the only one of `left`, which is shared."""

    def __init__(self, numbers: Words, left: list[int]) -> None:
        self._numbers = numbers
        self._left = left

    def __getitem__(self, at: int) -> int:
        return self._numbers[at]

    def __setitem__(self, at: int | slice, value: Any) -> None:
        if isinstance(at, slice):
            for each, number in zip(range(at.start, at.stop), value, strict=True):
                self[each] = number
            return
        if self._left[0] == 0:
            raise Killed
        self._left[0] -= 1
        self._numbers[at] = value

    def cast(self, form: str) -> Any:
        """Writes into this don't count."""
        return self._numbers.cast(cast("Any", form))

    def __len__(self) -> int:
        return len(self._numbers)


def dies_after(numbers: Words, left: list[int]) -> Words:
    """The same numbers, of a process that dies."""
    return cast("Words", Writes(numbers, left))


def counted_line(
    account_id: str, figures: tuple[int, ...], proxy: str = PROXY, instance: int = 1, serial: int = 1, name: str = "ada"
) -> CountedLine:
    """What a process has counted of an account without a quota: bytes in and out, requests, milliseconds, refusals."""
    return CountedLine(0, account_id, name, proxy, instance, serial, 0, "day", figures, 0, 0.0, "", False)
