"""Sinks for records beside the index: lines in a file, or the journal (`logging.output`).

The index comes first: a record is written to the sink when it is stored, so neither a full disk nor a slow journal
delays the index; dropped records are counted and logged. A sink is a best effort across the death of this process: the
records of the last moment may be missing there, and never are in the index.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from actors.log_lines import PRIORITIES, SOCKET, Journal, LogThrottle
from actors.logs.record_schema import Row
from config.text.access_fields import FILE_FORMATS, FORMATS, LINE_FIELDS, compiled, message_of
from config.text.formatting import printable, printable_json, timestamp_text

log = logging.getLogger(__name__)

Record = dict[str, Any]
"""A record by the names of `LINE_FIELDS`."""


class RecordSink(Protocol):
    """Takes records that are stored."""

    def write(self, rows: Sequence[Row], proxy_name: str) -> int:
        """Write records of a proxy; returns how many were written. Raises `OSError` if none was."""
        ...

    def close(self) -> None:
        """Close the file or socket."""
        ...


class LineFile:
    """A line for each record in the file that `path` gives at the moment: always the same, or one for each day.

    `write_line` gives the line of a record, with its end.
    """

    def __init__(self, path: Callable[[], Path], write_line: Callable[[Record], str]) -> None:
        self._path = path
        self._write_line = write_line
        self._opened: Path | None = None
        self._file = -1

    def write(self, rows: Sequence[Row], proxy_name: str) -> int:
        """In one piece; one that only partly fits is truncated away, so that there are whole lines."""
        file = self._current_file()
        lines = "".join([self._write_line(_record(row, proxy_name)) for row in rows]).encode()
        size = os.fstat(file).st_size
        try:
            written = os.write(file, lines)
        except OSError:
            os.ftruncate(file, size)
            raise
        if written < len(lines):
            os.ftruncate(file, size)
            raise OSError(None, "the disk is full")
        return len(rows)

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
        self._file, self._opened = -1, None

    def _current_file(self) -> int:
        path = self._path()
        if path != self._opened or not self._still_there(path):
            self.close()
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._opened = path
        return self._file

    def _still_there(self, path: Path) -> bool:
        """False once log rotation has moved the file away."""
        try:
            return os.path.samestat(path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            return False


class JournalSink:
    """An entry of the journal for each record, with its fields as `PROXYFLEET_…`."""

    def __init__(self, path: Path = SOCKET) -> None:
        self._journal = Journal(path)

    def write(self, rows: Sequence[Row], proxy_name: str) -> int:
        """See `RecordSink`; stops when the journal is full."""
        for count, row in enumerate(rows):
            try:
                self._journal.send(_entry(_record(row, proxy_name)))
            except OSError:
                if count == 0:
                    raise
                return count
        return len(rows)

    def close(self) -> None:
        """Close the socket."""
        self._journal.close()


class ActiveSink:
    """The sink that is configured, and the count of records that it dropped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._output, self._template = "stderr", ""
        self._sink: RecordSink | None = None
        self._throttle = LogThrottle()
        self.dropped = 0
        """Records that were dropped."""

    def configure(self, output: str, template: str = "") -> None:
        """Apply `logging.output` and `logging.template`."""
        if (output, template) == (self._output, self._template):
            return
        self.close()
        self._output, self._template = output, template
        kind, _, path = output.partition(":")
        if kind in FILE_FORMATS:
            suffix = "jsonl" if kind == "jsonl" else "log"
            place = (lambda: Path(path)) if path else (lambda: self._day_file(suffix))
            self._sink = LineFile(place, json_line if kind == "jsonl" else _lines_by(FORMATS.get(kind, template)))
        elif kind == "journald":
            self._sink = JournalSink()

    def write(self, rows: Sequence[Row], proxy_name: str) -> None:
        """Write records of the proxy with this name; never raises."""
        if self._sink is None:
            return
        try:
            written, reason = self._sink.write(rows, proxy_name), "it takes no more at the moment"
        except OSError as error:
            written, reason = 0, error.strerror or str(error)
        if written < len(rows):
            self.dropped += len(rows) - written
            if self._throttle.due():
                text = "output %s dropped %d records so far; the index has them all: %s"
                log.error(text, self._output, self.dropped, reason)

    def close(self) -> None:
        """Close the sink."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def _day_file(self, suffix: str) -> Path:
        return self._folder / f"{time.strftime('%Y-%m-%d', time.gmtime())}.{suffix}"


def json_line(record: Record) -> str:
    """A line of JSON, with the names and formats of the management API."""
    line = {**record, "timestamp": timestamp_text(record["timestamp"]), "message": message_of(record)}
    return printable_json(json.dumps(line, ensure_ascii=False, separators=(",", ":"))) + "\n"


def _record(row: Row, proxy_name: str) -> Record:
    return dict(zip(LINE_FIELDS, (*row, proxy_name), strict=True))


def _lines_by(template: str) -> Callable[[Record], str]:
    """The function that writes a record by a template of `config.text.access_fields`."""
    line = compiled(template, LINE_FIELDS)
    return lambda record: printable(line(record)) + "\n"


def _entry(record: Record) -> dict[str, object]:
    entry: dict[str, object] = {"MESSAGE": message_of(record), "PRIORITY": PRIORITIES[record["level"]]}
    for name, value in record.items():
        entry[f"PROXYFLEET_{name.upper()}"] = timestamp_text(value) if name == "timestamp" else value
    return entry
