"""The traffic of now, in a thread beside the browser."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any

from screens import clients, internet
from screens.seed import Seeded


class Traffic:
    """An event loop in a thread: the internet from the start, clients when they are asked for."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._clients: Future[Any] | None = None
        self.internet: int = self._run(internet.start()).result(10)

    def begin(self, seeded: Seeded) -> None:
        """Let the clients send, until `end`."""
        self._clients = self._run(clients.run(seeded))

    def end(self) -> None:
        """Stop everything."""
        if self._clients is not None:
            self._clients.cancel()
            wait([self._clients], 10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


@contextmanager
def traffic() -> Iterator[Traffic]:
    """Runs while the block does."""
    made = Traffic()
    try:
        yield made
    finally:
        made.end()
