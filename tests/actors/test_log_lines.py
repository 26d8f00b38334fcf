"""The product's own log, for people and for programs."""

from __future__ import annotations

import json
import logging
import sys

from actors.log_lines import JsonLines, TextLines


def record(message: str, *arguments: object, broken: bool = False) -> logging.LogRecord:
    info = None
    if broken:
        try:
            raise ValueError("why")
        except ValueError:
            info = sys.exc_info()
    made = logging.LogRecord("some.logger", logging.WARNING, "file", 1, message, arguments, info)
    made.created = 0.0
    return made


def test_a_json_line_is_json_whatever_is_in_the_message() -> None:
    line = JsonLines().format(record("odd 'quotes' \"and\"\nlines %s", "é", broken=True))
    assert "\n" not in line
    told = json.loads(line)
    assert told["message"] == "odd 'quotes' \"and\"\nlines é"
    assert (told["time"], told["level"], told["logger"]) == ("1970-01-01T00:00:00.000Z", "warning", "some.logger")
    assert "ValueError: why" in told["exception"]


def test_a_text_line_has_its_time_in_utc() -> None:
    assert TextLines().format(record("hello")) == "1970-01-01T00:00:00.000Z WARNING some.logger: hello"
