"""What the API does again and again beside its requests, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod

from api.store import StoreError

log = logging.getLogger(__name__)


class Rounds(ABC):
    """Calls `act` every `period` seconds, from `start` until `close`. An error of the store ends that round alone."""

    def __init__(self, name: str, task: str, period: float, first_after: float) -> None:
        """`name` is the thread's, `task` what a log line says cannot be done. Times are seconds."""
        self._task = task
        self._period = period
        self._first_after = first_after
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def act(self) -> None:
        """One round. Raises `StoreError`."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End, after the round that is under way."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def pause(self, seconds: float) -> bool:
        """Wait within a round; False when the rounds end."""
        return not self._ended.wait(seconds)

    def _run(self) -> None:
        pause = self._first_after
        while self.pause(pause):
            pause = self._period
            try:
                self.act()
            except StoreError as error:
                log.error("cannot %s: %s", self._task, error)
