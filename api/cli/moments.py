"""Times as people type them: `15m`, `2h`, `7d`, or ISO 8601 (without an offset: UTC, as the API reads it)."""

from __future__ import annotations

import re
import time
from typing import Annotated

import typer

from api.cli.trouble import Status, Trouble
from config.units import parse_moment, timestamp_text

_SPAN = re.compile(r"([0-9]{1,6})([smhdwy])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}

SinceOption = Annotated[
    str | None,
    typer.Option("--since", help="Not before: 15m, 2h, 7d ago, or an ISO 8601 date and time; an hour unless said."),
]
PERIOD = {"start_time": "--since", "end_time": "--until"}
"""How the API calls them."""

UntilOption = Annotated[str | None, typer.Option("--until", help="Not after: the same; now unless said.")]


def ago(text: str, option: str = "--since") -> str:
    """The moment that lies so long back, or is named, as ISO 8601. Raises `Trouble`."""
    return _moment(text, -1, option)


def from_now(text: str, option: str = "--expires") -> str:
    """The moment that lies so far ahead, or is named, as ISO 8601. Raises `Trouble`."""
    return _moment(text, 1, option)


def _moment(text: str, direction: int, option: str) -> str:
    span = _SPAN.fullmatch(text)
    if span:
        return timestamp_text(time.time() + direction * int(span[1]) * _SECONDS[span[2]])
    try:
        return timestamp_text(parse_moment(text))
    except ValueError as error:
        hint = "Such as 15m, 2h, 7d, or 2030-01-31T12:00:00Z"
        raise Trouble(f"{option} {text!r}: is no span of time and no date", hint, Status.USAGE) from error
