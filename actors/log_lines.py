"""The lines of the product's own log: text for people, one JSON object a line for programs. Times are UTC."""

from __future__ import annotations

import json
import logging

from config.printable import printable, printable_json
from config.units import timestamp_text

LEVELS = ("debug", "info", "warning", "error", "critical")


def levels_from(level: str) -> frozenset[str]:
    """`level` and all that matters more."""
    return frozenset(LEVELS[LEVELS.index(level) :])


class TextLines(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO logger: message`.

    One line, whatever is in the message; those of a traceback are indented, so that none looks like a message.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Line breaks, orders to terminals and the like are escaped (`config.printable`)."""
        line = f"{timestamp_text(record.created)} {record.levelname} {record.name}: {record.getMessage()}"
        trace = self.formatException(record.exc_info).split("\n") if record.exc_info else []
        return "\n  ".join(map(printable, (line, *trace)))


class JsonLines(logging.Formatter):
    """`{"time", "level", "logger", "message"}`, with `exception` when there is one.

    What a caller gave as `extra={"fields": {...}}` stands beside them.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever is in the message."""
        line = {
            "time": timestamp_text(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return printable_json(json.dumps(line, ensure_ascii=False))
