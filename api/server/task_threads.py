"""The threads that serve requests, in place of waitress' dispatcher: started when they are needed, fed by a queue of
the interpreter's own, which wakes one of them without a turn through Python."""

from __future__ import annotations

import logging
import threading
import time
from queue import Empty, SimpleQueue
from typing import Protocol

from actors.throttled_log import ThrottledLog

log = logging.getLogger(__name__)


class Task(Protocol):
    """A connection with a request."""

    def service(self) -> None:
        """Serve it."""

    def cancel(self) -> None:
        """It won't be served."""


class TaskThreads:
    """At most `limit` threads, which end with the process or by `shutdown`. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queue: SimpleQueue[Task | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._unfinished = 0
        """Tasks that wait or are being served."""
        self._threads: list[threading.Thread] = []
        self._log = ThrottledLog(log, "no thread can be started")

    @property
    def running(self) -> bool:
        """Whether a thread has not ended."""
        return any(each.is_alive() for each in self._threads)

    def add_task(self, task: Task) -> None:
        """Have it served as soon as there is a thread for it."""
        with self._lock:
            self._unfinished += 1
            if len(self._threads) < min(self._unfinished, self._limit):
                self._start_one()
        self._queue.put(task)

    def shutdown(self, seconds: float) -> None:
        """Cancel what waits, and wait so long at most for the threads to finish what they do."""
        deadline = time.monotonic() + seconds
        self._cancel_waiting()
        for _ in self._threads:
            self._queue.put(None)
        for each in self._threads:
            each.join(max(0.0, deadline - time.monotonic()))
        if self.running:
            log.warning("requests are still being served at the end")

    def _cancel_waiting(self) -> None:
        try:
            while True:
                task = self._queue.get_nowait()
                if task is not None:
                    task.cancel()
        except Empty:
            return

    def _start_one(self) -> None:
        thread = threading.Thread(target=self._serve, name=f"http-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has none left: the task waits for one of the others
            self._log.error(error)
        else:
            self._threads.append(thread)

    def _serve(self) -> None:
        while (task := self._queue.get()) is not None:
            try:
                task.service()
            except BaseException:  # the thread serves others after it
                log.exception("a connection can't be served")
            with self._lock:
                self._unfinished -= 1
