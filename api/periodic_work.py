"""What the API does again and again beside its requests, in a thread of its own; one is to prune old revisions."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from actors.log_lines import ThrottledLog
from api.history.recorder import Limits, Recorder
from api.store import LedgerError
from config import OperatorError
from config.settings.groups import History

log = logging.getLogger(__name__)


AFTER_FAULT = 1.0
"""Seconds until the next run after one that has failed."""


class LoopThread:
    """Calls `run` again and again in a thread of its own, from `start` until `close`. Thread-safe.

    A run returns after how many seconds the next one is due.
    """

    def __init__(
        self, name: str, run: Callable[[], float], within: float | None = None, first_after: float = 0.0
    ) -> None:
        """`close` waits `within` so many seconds for the run that is under way; None: until it is over."""
        self._run, self._within, self._first_after = run, within, first_after
        self._due, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)

    @property
    def has_ended(self) -> bool:
        """Whether it is to begin no more runs."""
        return self._ended.is_set()

    @property
    def is_alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def soon(self) -> None:
        """Have the next run begin now."""
        self._due.set()

    def pause(self, seconds: float) -> bool:
        """Wait within a run; False when the work is to end."""
        return not self._ended.wait(seconds)

    def end(self) -> None:
        """Begin no more runs."""
        self._ended.set()
        self._due.set()

    def close(self) -> None:
        """End, after the run that is under way, unless that takes long."""
        self.end()
        if self.is_alive:
            self._thread.join(self._within)

    def _loop(self) -> None:
        pause = self._first_after
        while True:
            self._due.wait(pause)
            self._due.clear()
            if self.has_ended:
                return
            try:
                pause = self._run()
            except Exception:  # of this run alone: nothing begins the thread again
                log.exception("a run of %s has failed", self._thread.name)
                pause = AFTER_FAULT


class PeriodicWork(LoopThread, ABC):
    """Calls `act` every `period` seconds, from `start` until `close`, if `is_due`. Its errors end that run alone."""

    def __init__(
        self,
        name: str,
        task: str,
        period: float,
        first_after: float,
        is_due: Callable[[], bool] = lambda: True,
        within: float | None = None,
    ) -> None:
        """`name` is the thread's, `task` what a log line says cannot be done. Times are seconds; `within` as above.

        In a fleet `is_due` is whether this node has the duty, for what one node does for all.
        """
        super().__init__(name, self.run_once, within, first_after)
        self.is_due, self._task, self._period = is_due, task, period
        self._errors = ThrottledLog(log, f"cannot {task}")

    @abstractmethod
    def act(self) -> None:
        """One run. Raises `OperatorError`."""

    def run_once(self) -> float:
        """One run, if it is due. Its failure is logged, but for an outage of the fleet's database: the heartbeat is."""
        try:
            if self.is_due():
                self.act()
                self._errors.recovered()
        except LedgerError as error:
            log.debug("cannot %s yet: %s", self._task, error)
        except OperatorError as error:
            self._errors.error(error)
        return self._period


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
