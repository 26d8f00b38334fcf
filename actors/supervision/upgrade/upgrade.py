"""An upgrade up to the point of no return: is there a next program that would start, and may this one end for it?"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from actors.bus.loop import Loop
from actors.bus.messages.common import Done, Failed
from actors.supervision.systemd import notify
from actors.supervision.upgrade.preflight import Rehearsal, own_command

log = logging.getLogger(__name__)


class ProgramUpgrade:
    """`objection` says why there can be no upgrade now; empty when nothing is against it.

    `hand_over` is called when the next program would start: this one is to end for it.
    """

    def __init__(self, loop: Loop, objection: Callable[[], str], hand_over: Callable[[], None]) -> None:
        self._loop = loop
        self._objection = objection
        self._hand_over = hand_over
        self._rehearsal: Rehearsal | None = None

    def upgrade(self, answer: Callable[[Any], None]) -> None:
        """Become the program that is installed now, if it would start; else go on and say why not."""
        problem = "an upgrade is under way" if self._rehearsal is not None else self._objection()
        if not problem:
            try:
                self._rehearsal = Rehearsal(self._loop, own_command(), lambda said: self._rehearsed(said, answer))
            except OSError as error:
                problem = f"{own_command()[0]}: {error.strerror}"
        if problem:
            self._refuse(problem, answer)

    def reaped(self, pid: int, status: int) -> bool:
        """A child has ended; was it ours?"""
        return self._rehearsal is not None and self._rehearsal.reaped(pid, status)

    def give_up(self) -> None:
        """The product ends: there will be no other program."""
        if self._rehearsal is not None:
            self._rehearsal.kill("the product is ending")

    def _rehearsed(self, problem: str | None, answer: Callable[[Any], None]) -> None:
        self._rehearsal = None
        if problem is not None:
            problem = f"the next program would not start: {problem}"
        refused = self._objection() or problem
        if refused:
            self._refuse(refused, answer)
            return
        answer(Done())
        self._hand_over()

    def _refuse(self, problem: str, answer: Callable[[Any], None]) -> None:
        log.error("not upgraded: %s", problem)
        notify("STATUS=not upgraded; the log says why")
        answer(Failed(problem))
