"""An upgrade up to the handover: the preflight of the next program, and whether this one may end."""

from __future__ import annotations

import logging
from collections.abc import Callable

from actors.bus.loop import Loop
from actors.bus.mailbox import Reply
from actors.bus.messages.common import Done, Failed
from actors.supervision.systemd import notify
from actors.supervision.upgrade.preflight import Preflight, own_command

log = logging.getLogger(__name__)


class ProgramUpgrade:
    """`blocker` returns why there can be no upgrade now, or an empty text.

    `hand_over` is called when the next program would start: this one is to end for it.
    """

    def __init__(self, loop: Loop, blocker: Callable[[], str], hand_over: Callable[[], None]) -> None:
        self._loop = loop
        self._blocker = blocker
        self._hand_over = hand_over
        self._preflight: Preflight | None = None

    def upgrade(self, reply: Reply) -> None:
        """Become the program that is installed now if it would start; otherwise reply `Failed` and continue."""
        problem = "an upgrade is under way" if self._preflight is not None else self._blocker()
        if not problem:
            try:
                self._preflight = Preflight(self._loop, own_command(), lambda problem: self._checked(problem, reply))
            except OSError as error:
                problem = f"{own_command()[0]}: {error.strerror}"
        if problem:
            self._refuse(problem, reply)

    def reaped(self, pid: int, status: int) -> bool:
        """Handle the end of a child; True when it was the preflight's."""
        return self._preflight is not None and self._preflight.reaped(pid, status)

    def cancel(self) -> None:
        """End a running preflight: the product is ending."""
        if self._preflight is not None:
            self._preflight.kill("the product is ending")

    def _checked(self, problem: str | None, reply: Reply) -> None:
        self._preflight = None
        if problem is not None:
            problem = f"the next program would not start: {problem}"
        refused = self._blocker() or problem
        if refused:
            self._refuse(refused, reply)
            return
        reply(Done())
        self._hand_over()

    def _refuse(self, problem: str, reply: Reply) -> None:
        log.error("not upgraded: %s", problem)
        notify("STATUS=not upgraded; the log says why")
        reply(Failed(problem))
