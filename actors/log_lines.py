"""The lines of the product's own log: text for people, one JSON object a line for programs. Times are UTC."""

from __future__ import annotations

import json
import logging

from config.units import timestamp_text

LEVELS = ("debug", "info", "warning", "error", "critical")


def levels_from(level: str) -> frozenset[str]:
    """`level` and all that matters more."""
    return frozenset(LEVELS[LEVELS.index(level) :])


class TextLines(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO logger: message`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        """ISO 8601 with milliseconds."""
        return timestamp_text(record.created)


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
        return json.dumps(line, ensure_ascii=False)
