"""What goes wrong again and again: said when it begins, when it is another thing, and once a minute while it lasts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

PERIOD = 60.0


class ThrottledLog:
    """One kind of trouble. `clock` is monotonic."""

    def __init__(
        self, log: logging.Logger, what: str, period: float = PERIOD, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`what` begins each sentence."""
        self._log = log
        self._what = what
        self._period = period
        self._clock = clock
        self._said: tuple[float, str] | None = None
        self._unsaid = 0

    def trouble(self, error: object, level: int = logging.ERROR) -> None:
        """It happened again."""
        now, text = self._clock(), str(error)
        if self._said is not None and self._said[1] == text and now - self._said[0] < self._period:
            self._unsaid += 1
            return
        more = f" ({self._unsaid} times more since it was said last)" if self._unsaid else ""
        self._log.log(level, "%s: %s%s", self._what, text, more)
        self._said, self._unsaid = (now, text), 0

    def over(self) -> None:
        """It went well."""
        if self._said is not None:
            self._log.info("%s: recovered", self._what)
            self._said, self._unsaid = None, 0
