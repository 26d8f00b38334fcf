"""Requests of a command to the running product: one at a time, with the reply or `Unreachable`."""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Any, Self

import zmq

from actors.bus.loop import Loop
from actors.bus.mailbox import ASK_TIMEOUT, Mailbox, address_of, refuse
from actors.bus.messages.common import SUPERVISOR, Unreachable
from config.files.paths import RunDir


class NotRunningError(Exception):
    """Nothing runs in this run directory; the text names it."""


class BusClient:
    """A connection to the bus of the product that runs in `run`. Raises `NotRunningError`."""

    def __init__(self, run: RunDir) -> None:
        if not os.path.exists(run.path / "mailbox"):  # False also without permission
            raise NotRunningError(f"nothing runs in {run.path}; name its run directory with --run-dir")
        self._loop = Loop()
        self._context: zmq.Context[Any] = zmq.Context()
        own = address_of("command", os.getpid())
        self._mailbox = Mailbox(self._loop, self._context, run.mailbox, own, refuse)

    def ask(self, message: Any, to: str = SUPERVISOR, timeout: float = ASK_TIMEOUT) -> Any:
        """The reply; `Unreachable` when none came in `timeout` seconds."""
        replies: list[Any] = []
        self._mailbox.ask(to, message, replies.append, timeout)
        deadline = time.monotonic() + timeout + 1.0
        while not replies and time.monotonic() < deadline:
            self._loop.turn(1.0)
        return replies[0] if replies else Unreachable(to, "no reply in time")

    def close(self) -> None:
        """Leave the bus."""
        self._mailbox.close()
        self._context.term()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
