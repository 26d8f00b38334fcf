"""Deletes revisions of the configuration that are too old or too many."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from api.history.recorder import Limits, Recorder
from api.services.rounds import Rounds
from config.settings.groups import History

log = logging.getLogger(__name__)

PERIOD = 60.0
"""Seconds between two rounds."""


class HistoryPruning(Rounds):
    """Prunes by the settings of the moment."""

    def __init__(self, history: Recorder, settings: Callable[[], History], period: float = PERIOD) -> None:
        super().__init__("history-pruning", "delete old revisions of the configuration", period, first_after=period)
        self._history = history
        self._settings = settings

    def act(self) -> None:
        """See `Rounds`."""
        settings = self._settings()
        removed = self._history.prune(Limits(settings.retention_days, settings.max_revisions), time.time())
        if removed:
            log.info("deleted %d old revisions of the configuration", removed)
