"""The lines of the product's own log: text for people, one JSON object a line for programs. Times are UTC."""

from __future__ import annotations

import json
import logging

from config.model.choices import LOG_LEVELS
from config.text.escaping import printable, printable_json
from config.text.formatting import timestamp_text

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
        """Line breaks, orders to terminals and the like are escaped (`config.text.escaping`)."""
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
