"""The log indexer's process: it takes batches of records, acknowledges what is on disk and answers searches."""

from __future__ import annotations

import logging
import socket
import sqlite3
from typing import Any

from actors.bus.mailbox import Answer, refuse
from actors.bus.messages import Failed, QueryLogs
from actors.bus.records import Batch, RecordReceiver
from actors.logs.index import LogIndex
from actors.process import Actor, Boot

log = logging.getLogger(__name__)

COMPLAINT_PERIOD = 60.0
"""Seconds between two lines in the log about a disk that takes nothing."""


class LogsActor(Actor):
    """Owner of the log index."""

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        super().__init__(boot, sockets)
        self._index = LogIndex(self.data_dir.logs, boot.log_level)
        self._complained = -COMPLAINT_PERIOD
        self._stored: dict[tuple[str, int], int] = {}
        self._receiver = RecordReceiver(self.loop, self.context, self.run_dir.records, self._commit)
        self.ready()

    def receive(self, sender: str, message: Any, answer: Answer) -> None:
        """Answer a search."""
        if not isinstance(message, QueryLogs):
            refuse(sender, message, answer)
            return
        try:
            answer(self._index.find(message))
        except sqlite3.Error as error:
            log.error("a search failed: %s", error)
            answer(Failed(f"the log can't be read: {error}"))

    def level_changed(self, level: str) -> None:
        """Keep what is at least of this level."""
        self._index.set_level(level)

    def close(self) -> None:
        """Close the index, too."""
        self._receiver.close()
        super().close()
        self._index.close()

    def _commit(self, batch: Batch) -> int:
        """What can't be stored isn't acknowledged; its sender keeps it and sends it again."""
        sender = (batch.source, batch.instance)
        try:
            self._stored[sender] = self._index.commit(batch)
        except sqlite3.Error as error:
            if self.loop.now - self._complained >= COMPLAINT_PERIOD:
                self._complained = self.loop.now
                log.error("records can't be stored: %s", error)
        return self._stored.get(sender, batch.first - 1)
