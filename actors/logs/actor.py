"""The log indexer's process: it receives batches of records, acknowledges those on disk and answers searches."""

from __future__ import annotations

import logging
import socket
import sqlite3
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from actors.bus.mailbox import Reply, refuse
from actors.bus.messages.records import CountLogs, QueryLogs, TailLogs
from actors.bus.records import RecordBatch, RecordReceiver
from actors.log_lines import ThrottledLog
from actors.logs.index import PERIOD, LogIndex, retain
from actors.logs.record_schema import Row
from actors.logs.search import Searches
from actors.logs.sinks import ActiveSink
from actors.process import Actor, Boot, view

if TYPE_CHECKING:
    from config.settings.groups import Logging

log = logging.getLogger(__name__)


class LogsActor(Actor):
    """Owner of the log index. `boot.settings`: `logging`."""

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        super().__init__(boot, sockets)
        self._settings: Logging = view(boot.settings["logging"])
        folder = self.data_dir.logs
        self._sink = ActiveSink(folder)
        self._index = LogIndex(folder, stored=self._on_stored)
        self._sink.configure(self._settings.output, self._settings.template)
        self._searches = Searches(self.loop, folder, lambda: self._index.last)
        self._errors = ThrottledLog(log, "cannot store access records")
        self._stored: dict[tuple[str, int], int] = {}
        self._receiver = RecordReceiver(self.loop, self.context, self.run_dir.records, self._commit)
        self.ready()
        self._retain()
        self.loop.call_every(PERIOD, self._retain)

    def receive(self, sender: str, message: Any, reply: Reply) -> None:
        """Search, off the loop."""
        if isinstance(message, QueryLogs):
            self._searches.find(message, reply)
        elif isinstance(message, CountLogs):
            self._searches.count(message, reply)
        elif isinstance(message, TailLogs):
            self._searches.tail(message, reply)
        else:
            refuse(sender, message, reply)

    def settings_changed(self, _groups: Collection[str]) -> None:
        """See `Actor`: outputs and retention."""
        self._settings = view(self.settings["logging"])
        self._sink.configure(self._settings.output, self._settings.template)
        self._retain()

    def close(self) -> None:
        """See `Actor`."""
        self._receiver.close()
        super().close()
        self._index.close()
        self._sink.close()

    def _commit(self, batch: RecordBatch) -> int:
        """A batch that can't be stored isn't acknowledged; its sender keeps it and sends it again."""
        sender = (batch.source, batch.instance)
        try:
            self._stored[sender] = self._index.commit(batch)
        except sqlite3.Error as error:
            self._errors.error(error)
        else:
            self._errors.recovered()
        return self._stored.get(sender, batch.first - 1)

    def _on_stored(self, rows: Sequence[Row], proxy_name: str) -> None:
        self._sink.write(rows, proxy_name)
        self._searches.stored()

    def _retain(self) -> None:
        try:
            retain(self._index, self._settings.retention_days, self._settings.retention_size)
        except (OSError, sqlite3.Error) as error:
            log.error("cannot delete old access records: %s", error)
