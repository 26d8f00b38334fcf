"""Help of flags, which take no value: Typer shows them with a type, `--yes <bool>`, where it draws help."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


def without_types(params: list[Any]) -> list[Any]:
    """The same parameters, flags without a type."""
    for each in params:
        if getattr(each, "is_flag", False):
            each.metavar = ""
    return params


class FlagsCommand(TyperCommand):
    """A command whose flags are shown without a type."""

    def get_params(self, ctx: Any) -> Any:
        """As they are, without types of flags."""
        return without_types(super().get_params(ctx))


class FlagsGroup(TyperGroup):
    """A group of commands, likewise."""

    def get_params(self, ctx: Any) -> Any:
        """As they are, without types of flags."""
        return without_types(super().get_params(ctx))
