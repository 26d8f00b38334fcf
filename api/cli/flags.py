"""The commands and groups of Typer, with parameters that suit ours.

Typer's help at a terminal would add a type to flags, which take no value: `--yes <bool>`. And it judges every value by
models of pydantic, the absent ones, too: loading that takes longer than all the rest of a short command.
"""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

from typer.core import TyperCommand, TyperGroup


def _adapted(params: list[Any]) -> list[Any]:
    """The parameters of a command or group: flags have no type, and values that need no conversion get none."""
    for each in params:
        if getattr(each, "is_flag", False):
            each.metavar = ""
        usual = getattr(each, "get_runtime_param", None)  # other releases have no such models
        if usual is not None and not isinstance(getattr(usual, "__self__", None), _Conversion):
            each.get_runtime_param = _Conversion(each).itself
    return params


class _Conversion:
    """Converts the values of a parameter as Typer does, and leaves to it what needs a look at the value."""

    def __init__(self, parameter: Any) -> None:
        self._usual = parameter.get_runtime_param
        self._annotation = parameter.type_descriptor.annotation

    def itself(self) -> _Conversion:
        """In place of Typer's own object for the parameter."""
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value that the function of the command gets."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        found = converted(self._annotation, value)
        return self._usual().coerce(value, param=param, ctx=ctx) if found is None else found


def converted(annotation: Any, value: Any) -> Any:
    """What Typer makes of `value`, where that depends on its type alone; else None. A number is a default already."""
    if get_origin(annotation) is list and isinstance(value, (list, tuple)):
        found = [converted(get_args(annotation)[0], each) for each in value]
        return None if None in found else found
    if get_origin(annotation) is Literal:
        return value if value in get_args(annotation) else None
    return value if annotation in (str, bool, int, float) and type(value) is annotation else None


class FlagsCommand(TyperCommand):
    """A command of ours."""

    def get_params(self, ctx: Any) -> Any:
        """See `_adapted`."""
        return _adapted(super().get_params(ctx))


class FlagsGroup(TyperGroup):
    """A group of commands of ours."""

    def get_params(self, ctx: Any) -> Any:
        """See `_adapted`."""
        return _adapted(super().get_params(ctx))
