"""Help of flags, which take no value: Typer's help at a terminal would add a type, `--yes <bool>`."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class FlagsWithoutTypes:
    """Mixed into a class of Typer: its parameters, flags without a type."""

    def get_params(self, ctx: Any) -> Any:
        """The parameters of the command or group."""
        params = super().get_params(ctx)  # type: ignore[misc]  # a mixin: its sibling is a command
        for each in params:
            if getattr(each, "is_flag", False):
                each.metavar = ""
        return params


class FlagsCommand(FlagsWithoutTypes, TyperCommand):
    """A command whose help has no types of flags."""


class FlagsGroup(FlagsWithoutTypes, TyperGroup):
    """A group of commands, likewise."""
