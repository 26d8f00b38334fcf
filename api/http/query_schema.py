"""Query parameters as data: what an operation reads is declared here, and only what is declared can be read.

`Query` refuses to read an undeclared name, so the description of the API can't forget one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from config.model import json_patterns


@dataclass(frozen=True, slots=True)
class Parameter:
    """One query parameter: its name, its JSON schema and what it does. `example` is a value that is accepted."""

    name: str
    schema: dict[str, Any]
    summary: str
    example: Any = None
    required: bool = False


def integer(name: str, summary: str, lowest: int, highest: int, default: int | None = None) -> Parameter:
    """A whole number within limits."""
    schema: dict[str, Any] = {"type": "integer", "minimum": lowest, "maximum": highest}
    if default is not None:
        schema["default"] = default
    return Parameter(name, schema, summary, lowest if default is None else default)


def choice(name: str, summary: str, allowed: Collection[str], default: str | None = None) -> Parameter:
    """A value out of a few."""
    schema: dict[str, Any] = {"type": "string", "enum": list(allowed)}
    if default is not None:
        schema["default"] = default
    return Parameter(name, schema, summary, default or next(iter(allowed)))


def text(name: str, summary: str, example: str, highest: int = 500, lowest: int = 0) -> Parameter:
    """Free text."""
    schema: dict[str, Any] = {"type": "string", "maxLength": highest}
    if lowest:
        schema["minLength"] = lowest
    return Parameter(name, schema, summary, example)


def moment(name: str, summary: str, example: str = "2026-01-31T12:00:00Z") -> Parameter:
    """A date and time, ISO 8601."""
    return Parameter(name, json_patterns.MOMENT, summary, example)


def one_address(name: str, summary: str, example: str = "192.0.2.7") -> Parameter:
    """One address."""
    return Parameter(name, {"type": "string", "pattern": json_patterns.ADDRESS}, summary, example)


def address(name: str, summary: str, example: str = "192.0.2.0/24") -> Parameter:
    """An address or a network."""
    return Parameter(name, {"type": "string", "pattern": json_patterns.NETWORK}, summary, example)
