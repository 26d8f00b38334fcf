"""What the API does again and again beside its requests, in a thread of its own; one is to prune old revisions."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from api.history.recorder import Limits, Recorder
from config import OperatorError
from config.settings.groups import History

log = logging.getLogger(__name__)


class PeriodicWork(ABC):
    """Calls `act` every `period` seconds, from `start` until `close`, if `is_due`. Its errors end that run alone."""

    def __init__(
        self, name: str, task: str, period: float, first_after: float, is_due: Callable[[], bool] = lambda: True
    ) -> None:
        """`name` is the thread's, `task` what a log line says cannot be done. Times are seconds.

        In a fleet `is_due` is whether this node has the duty, for what one node does for all.
        """
        self.is_due = is_due
        self._task = task
        self._period = period
        self._first_after = first_after
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def act(self) -> None:
        """One run. Raises `OperatorError`."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Begin no more runs."""
        self._ended.set()

    def close(self) -> None:
        """End, after the run that is under way."""
        self.end()
        if self._thread.is_alive():
            self._thread.join()

    def pause(self, seconds: float) -> bool:
        """Wait within a run; False when the work is to end."""
        return not self._ended.wait(seconds)

    def _run(self) -> None:
        pause = self._first_after
        while self.pause(pause):
            pause = self._period
            try:
                if self.is_due():
                    self.act()
            except OperatorError as error:
                log.error("cannot %s: %s", self._task, error)


log = logging.getLogger(__name__)

PERIOD = 60.0
"""Seconds between two runs."""


class HistoryPruning(PeriodicWork):
    """Prunes by the settings of the moment."""

    def __init__(self, history: Recorder, settings: Callable[[], History], period: float = PERIOD) -> None:
        super().__init__("history-pruning", "delete old revisions of the configuration", period, first_after=period)
        self._history = history
        self._settings = settings

    def act(self) -> None:
        """See `PeriodicWork`."""
        settings = self._settings()
        removed = self._history.prune(Limits(settings.retention_days, settings.max_revisions), time.time())
        if removed:
            log.info("deleted %d old revisions of the configuration", removed)
