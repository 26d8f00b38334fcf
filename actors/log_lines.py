"""The lines of the product's own log: text for people, one JSON object a line for programs, and entries of systemd's
journal. Times are UTC.

The journal has a native protocol: one datagram an entry. An entry is lines `NAME=value`; a value with a line feed is
`NAME`, a line feed, its length as 64 bits (little-endian), the value and a line feed (systemd's
JOURNAL_NATIVE_PROTOCOL). So no value can forge a field. An entry that is too large for a datagram goes as a sealed
memory file whose descriptor is sent instead. Nothing here waits for the journal.

Recurring errors are logged when they begin, when they change, once per period while they last, and at their end.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import re
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from config.model.choices import LOG_LEVELS
from config.text.formatting import printable, printable_json, timestamp_text

_subject = ""


def levels_from(level: str) -> frozenset[str]:
    """`level` and all above it."""
    return frozenset(LOG_LEVELS[LOG_LEVELS.index(level) :])


def set_subject(subject: str) -> None:
    """Begin every message of this process with `subject` and a colon from now on; with none when it is empty."""
    global _subject  # of the process, as the log itself
    _subject = subject


def message_of(record: logging.LogRecord) -> str:
    """The message with its arguments, and with the subject of the process before it."""
    return f"{_subject}: {record.getMessage()}" if _subject else record.getMessage()


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO logger: message`.

    One line, whatever the message contains; those of a traceback are indented, so that none looks like a message.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Line breaks, orders to terminals and the like are escaped (`config.text.formatting`)."""
        line = f"{timestamp_text(record.created)} {record.levelname} {record.name}: {message_of(record)}"
        trace = self.formatException(record.exc_info).split("\n") if record.exc_info else []
        return "\n  ".join(map(printable, (line, *trace)))


class JsonFormatter(logging.Formatter):
    """`{"time", "level", "logger", "message"}`, with `exception` when there is one.

    The fields that a caller passes as `extra={"fields": {...}}` are added.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the message contains."""
        line = {
            "time": timestamp_text(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message_of(record),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return printable_json(json.dumps(line, ensure_ascii=False))


SOCKET = Path("/run/systemd/journal/socket")
IDENTIFIER = "proxyfleet"
BUFFER = 1024**2
"""Bytes that may wait for the journal; it reads them within milliseconds, or is away."""
PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
"""Of syslog, by our levels."""
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_NAME = re.compile(r"[A-Z0-9][A-Z0-9_]{0,63}", re.ASCII)


class Journal:
    """A socket to the journal. `send` raises `OSError` when it isn't there, or is full at the moment."""

    def __init__(self, path: Path = SOCKET) -> None:
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)

    def send(self, fields: Mapping[str, object]) -> None:
        """Send an entry; a field without value is left out. Raises `ValueError` for a name that isn't in capitals."""
        entry = entry_of({"SYSLOG_IDENTIFIER": IDENTIFIER, **fields})
        try:
            self._socket.sendto(entry, self._path)
        except OSError as error:
            if error.errno not in (errno.EMSGSIZE, errno.ENOBUFS):
                raise
            self._send_file(entry)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _send_file(self, entry: bytes) -> None:
        file = os.memfd_create("journal-entry", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        try:
            with open(file, "wb", closefd=False) as whole:
                whole.write(entry)
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", file))
            self._socket.sendmsg([], [rights], 0, self._path)
        finally:
            os.close(file)


def entry_of(fields: Mapping[str, object]) -> bytes:
    """An entry in the native format."""
    return b"".join(_field(name, str(value)) for name, value in fields.items() if value not in ("", None))


def _field(name: str, value: str) -> bytes:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a field of the journal")
    data = value.encode("utf-8", "replace")
    if "\n" not in value:
        return name.encode() + b"=" + data + b"\n"
    return name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"


class JournalHandler(logging.Handler):
    """Log records into the journal; on standard error when that fails."""

    def __init__(self, path: Path = SOCKET) -> None:
        super().__init__()
        self._journal = Journal(path)

    def emit(self, record: logging.LogRecord) -> None:
        """Send one; its time is the journal's own."""
        fields: dict[str, object] = {
            "MESSAGE": printable(message_of(record)),
            "PRIORITY": PRIORITIES.get(record.levelname.lower(), 6),
            "PROXYFLEET_LOGGER": record.name,
        }
        if record.exc_info:
            fields["PROXYFLEET_EXCEPTION"] = logging.Formatter().formatException(record.exc_info)
        for name, value in getattr(record, "fields", {}).items():
            fields[f"PROXYFLEET_{name.upper()}"] = value
        try:
            self._journal.send(fields)
        except (OSError, ValueError):
            sys.stderr.write(self.format(record) + "\n")

    def close(self) -> None:
        """Close the socket."""
        self._journal.close()
        super().close()


PERIOD = 60.0
"""Seconds between two lines about the same error."""


class LogThrottle:
    """Which of many like events get a log line: the first, one with another key, and one per `period` seconds.

    `clock` is monotonic. With a period of infinity an event is logged again only after `reset` or another key.
    """

    def __init__(self, period: float = PERIOD, clock: Callable[[], float] = time.monotonic) -> None:
        self._period = period
        self._clock = clock
        self._last: tuple[float, str] | None = None

    def due(self, key: str = "") -> bool:
        """True if an event with this key is to be logged now."""
        now = self._clock()
        if self._last is not None and self._last[1] == key and now - self._last[0] < self._period:
            return False
        self._last = now, key
        return True

    def reset(self) -> bool:
        """The next event is due. Returns whether one was logged since the last reset."""
        logged, self._last = self._last is not None, None
        return logged


class ThrottledLog:
    """One kind of error; a line is `what: error`. `recovery` is the line at its end, `what: recovered` by default."""

    def __init__(
        self,
        log: logging.Logger,
        what: str,
        period: float = PERIOD,
        clock: Callable[[], float] = time.monotonic,
        recovery: str = "",
    ) -> None:
        self._log = log
        self._what = what
        self._recovery = recovery or f"{what}: recovered"
        self._throttle = LogThrottle(period, clock)
        self._suppressed = 0

    def error(self, error: object, level: int = logging.ERROR, key: str | None = None) -> None:
        """The error occurred (again). Its text tells one error from another, unless there is a `key`."""
        text = str(error)
        if not self._throttle.due(text if key is None else key):
            self._suppressed += 1
            return
        more = f" ({self._suppressed} more since last logged)" if self._suppressed else ""
        self._log.log(level, "%s: %s%s", self._what, text, more)
        self._suppressed = 0

    def recovered(self) -> None:
        """What failed has succeeded; logged if its error was."""
        if self._throttle.reset():
            self._log.info("%s", self._recovery)
            self._suppressed = 0
