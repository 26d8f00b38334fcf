"""Where records go beside the index: lines in a file, or the journal (`logging.output`).

The index comes first: a record is handed on when it is stored, so neither a full disk nor a slow journal holds up
anything; what can't be handed on is counted and said. Handing on is a best effort across the death of this process: the
records of the last moment may be missing in the lines, and never are in the index.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from actors.journald import PRIORITIES, SOCKET, Journal
from actors.logs.record_schema import Row
from actors.throttled_log import Throttle
from config.settings.groups import FILE_FORMATS
from config.text.access_fields import LINE_FIELDS, message_of
from config.text.access_format import FORMATS, compiled
from config.text.escaping import printable, printable_json
from config.text.formatting import timestamp_text

log = logging.getLogger(__name__)

Record = dict[str, Any]
"""A record by the names of `LINE_FIELDS`."""


class RecordSink(Protocol):
    """Somewhere to hand records on to."""

    def write(self, rows: Sequence[Row], proxy_name: str) -> int:
        """Hand the records of a proxy on; how many were taken. Raises `OSError` when none was."""
        ...

    def close(self) -> None:
        """Give it back."""
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
        """All in one piece; a piece that only half fits is taken back, so that there are whole lines."""
        file = self._today()
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

    def _today(self) -> int:
        path = self._path()
        if path != self._opened or not self._still_there(path):
            self.close()
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._opened = path
        return self._file

    def _still_there(self, path: Path) -> bool:
        """Whoever rotates files moves them away and tells nobody."""
        try:
            return os.path.samestat(path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            return False


class JournalOutlet:
    """An entry of the journal for each record, with its fields as `PROXYFLEET_…`."""

    def __init__(self, path: Path = SOCKET) -> None:
        self._journal = Journal(path)

    def write(self, rows: Sequence[Row], proxy_name: str) -> int:
        """Until the journal takes no more."""
        for count, row in enumerate(rows):
            try:
                self._journal.send(_entry(_record(row, proxy_name)))
            except OSError:
                if count == 0:
                    raise
                return count
        return len(rows)

    def close(self) -> None:
        """Give the socket back."""
        self._journal.close()


class ActiveSink:
    """The outlet that is chosen, and what it did not take."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._choice, self._template = "stderr", ""
        self._outlet: RecordSink | None = None
        self._drops = Throttle()
        self.lost = 0
        """Records that were not taken."""

    def choose(self, output: str, template: str = "") -> None:
        """`logging.output` and `logging.template` are these from now on."""
        if (output, template) == (self._choice, self._template):
            return
        self.close()
        self._choice, self._template = output, template
        form, _, path = output.partition(":")
        if form in FILE_FORMATS:
            suffix = "jsonl" if form == "jsonl" else "log"
            place = (lambda: Path(path)) if path else (lambda: self._day_file(suffix))
            self._outlet = LineFile(place, line_of if form == "jsonl" else _lines_by(FORMATS.get(form, template)))
        elif form == "journald":
            self._outlet = JournalOutlet()

    def write(self, rows: Sequence[Row], proxy_name: str) -> None:
        """Hand records of the proxy with this name on; never raises."""
        if self._outlet is None:
            return
        try:
            taken, why = self._outlet.write(rows, proxy_name), "it takes no more at the moment"
        except OSError as error:
            taken, why = 0, error.strerror or str(error)
        if taken < len(rows):
            self.lost += len(rows) - taken
            if self._drops.due():
                text = "output %s dropped %d records so far; the index has them all: %s"
                log.error(text, self._choice, self.lost, why)

    def close(self) -> None:
        """Give back what is open."""
        if self._outlet is not None:
            self._outlet.close()
            self._outlet = None

    def _day_file(self, suffix: str) -> Path:
        return self._folder / f"{time.strftime('%Y-%m-%d', time.gmtime(self._clock()))}.{suffix}"



def line_of(record: Record) -> str:
    """A line of JSON, with the names and forms that the management API uses."""
    line = {**record, "timestamp": timestamp_text(record["timestamp"]), "message": message_of(record)}
    return printable_json(json.dumps(line, ensure_ascii=False, separators=(",", ":"))) + "\n"


def _record(row: Row, proxy_name: str) -> Record:
    return dict(zip(LINE_FIELDS, (*row, proxy_name), strict=True))


def _lines_by(template: str) -> Callable[[Record], str]:
    """The function that writes a record by a template of `config.text.access_format`."""
    line = compiled(template, LINE_FIELDS)
    return lambda record: printable(line(record)) + "\n"


def _entry(record: Record) -> dict[str, object]:
    entry: dict[str, object] = {"MESSAGE": message_of(record), "PRIORITY": PRIORITIES[record["level"]]}
    for name, value in record.items():
        entry[f"PROXYFLEET_{name.upper()}"] = timestamp_text(value) if name == "timestamp" else value
    return entry
