"""The commands as Typer has made them, for tests of what all of them must have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

from api.cli.application import application


def all_commands() -> Iterator[tuple[str, Any]]:
    """Each with its whole name."""
    yield from _below("", typer.main.get_command(application()))


def options_of(command: Any) -> list[Any]:
    """Its options, without its arguments."""
    return [each for each in command.params if each.param_type_name == "option"]


def _below(prefix: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield prefix.strip(), command
        return
    for name, each in inner.items():
        yield from _below(f"{prefix} {name}", each)
