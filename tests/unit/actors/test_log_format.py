"""The product's own log, for people and for programs."""

from __future__ import annotations

import json
import logging
import sys

from actors.log_lines import JsonFormatter, TextFormatter, set_subject
from tests.kit.tables import table


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
    line = JsonFormatter().format(record("odd 'quotes' \"and\"\nlines %s", "é", broken=True))
    assert "\n" not in line
    parsed = json.loads(line)
    assert parsed["message"] == "odd 'quotes' \"and\"\nlines é"
    assert (parsed["time"], parsed["level"], parsed["logger"]) == ("1970-01-01T00:00:00.000Z", "warning", "some.logger")
    assert "ValueError: why" in parsed["exception"]


def test_a_text_line_has_its_time_in_utc() -> None:
    assert TextFormatter().format(record("hello")) == "1970-01-01T00:00:00.000Z WARNING some.logger: hello"


def test_messages_begin_with_the_subject_of_the_process() -> None:
    set_subject("100% office (3128)")
    try:
        assert TextFormatter().format(record("hello %s", "x")).endswith(" some.logger: 100% office (3128): hello x")
        assert json.loads(JsonFormatter().format(record("hello")))["message"] == "100% office (3128): hello"
    finally:
        set_subject("")
    assert TextFormatter().format(record("hello")).endswith(" some.logger: hello")


UNSAFE = ["\n", "\r", "\x1b[2J", "\x9b31m", "\x7f", "\x85", "\u2028", "\u2029", "\u202e", "\u2066", "\u200b", "\ufeff"]


@table("text", UNSAFE, ids=ascii)
@table("lines", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_no_message_makes_a_second_line_or_orders_a_terminal(lines: logging.Formatter, text: str) -> None:
    line = lines.format(record("before %s after", text))
    assert len(line.splitlines()) == 1
    assert line.isprintable()
    if isinstance(lines, JsonFormatter):
        assert json.loads(line)["message"] == f"before {text} after"


def test_letters_of_all_languages_stay_as_they_are() -> None:
    assert TextFormatter().format(record("Grüße, 世界")).endswith("Grüße, 世界")


def test_lines_of_a_traceback_are_indented_and_without_orders() -> None:
    try:
        raise ValueError("why\n2026-01-01T00:00:00.000Z ERROR forged: line\x1b[2J")
    except ValueError:
        made = logging.LogRecord("some.logger", logging.WARNING, "file", 1, "message", (), sys.exc_info())
    first, *others = TextFormatter().format(made).split("\n")
    assert first.endswith("some.logger: message")
    assert all(line.startswith("  ") and line.isprintable() for line in others)
