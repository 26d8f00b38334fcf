"""The command line as a whole: the order that help has, and what becomes of a line that can't be understood.

Typer's own messages are several lines of usage; ours are those of every other `CommandError`: what is wrong, what to do
next, and one JSON object for whoever asked for JSON.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from api.cli.commands import forget_output, unwritten
from api.cli.errors import CommandError, Status
from api.cli.flags import without_types
from api.cli.terminal.output import Output

UsageError: Any = typer.BadParameter.__mro__[1]
"""What all complaints about a command line are; where it lies differs between the releases of Typer."""

FIRST = ("serve", "check-config", "login", "logout", "whoami")
"""These come before the groups, everything else behind them."""

_HIDDEN = ("install_completion", "show_completion")
"""Typer's own ways to the completion, of which `proxyfleet completion` is the one that is documented."""
_OF_THE_LIBRARY = re.compile(r"Value error, |(?<=: )Input should be |, unable to parse .*")


class Commands(TyperGroup):
    """Groups stand where people look for them, and not behind all commands as Typer has them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names, in the order that help shows them in."""
        names = super().list_commands(ctx)
        groups = [name for name in names if isinstance(self.commands[name], TyperGroup)]
        last = [name for name in names if name not in FIRST and name not in groups]
        return [*(name for name in names if name in FIRST), *groups, *last]

    def get_params(self, ctx: Any) -> Any:
        """As it is, without two that nobody needs to see."""
        params = without_types(super().get_params(ctx))
        for each in params:
            if each.name in _HIDDEN and hasattr(each, "hidden"):
                each.hidden = True
        return params


def run(app: typer.Typer, arguments: Sequence[str] | None = None) -> int:
    """Do what a command line says; the exit status."""
    _open_missing_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = app(given, prog_name="proxyfleet", standalone_mode=False)
    except UsageError as error:
        return _refused(error, given)
    except OSError as error:  # of the help: commands tell what is wrong with theirs
        forget_output()
        Output().trouble(unwritten(error))
        return int(Status.FAILED)
    except typer.Abort:  # the end of standard input where something was asked
        return int(Status.INTERRUPTED)
    return status if isinstance(status, int) else int(Status.OK)


def _open_missing_streams() -> None:
    """Whoever started us may have closed some (`>&-`): Python has None there, and the next file takes the number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _refused(error: Any, given: Sequence[str]) -> int:
    if not given or type(error).__name__ == "NoArgsIsHelpError":  # its text is the help
        sys.stderr.write(error.format_message() + "\n")
        return int(Status.USAGE)
    command = error.ctx.command_path if error.ctx is not None else "proxyfleet"
    trouble = CommandError(_in_our_words(error.format_message()), f"See {command} --help", Status.USAGE)
    Output("json" if wants_json(given) else "table").trouble(trouble)
    return int(Status.USAGE)


def _in_our_words(text: str) -> str:
    return _OF_THE_LIBRARY.sub(lambda found: "must be " if found[0].startswith("Input") else "", text)


def wants_json(given: Sequence[str]) -> bool:
    """Is JSON asked for by a line that could not be read as a whole?"""
    pairs = zip(given, [*given[1:], ""], strict=True)
    return any((one, other) in _JSON or one in _JSON_IN_ONE for one, other in pairs)


_JSON = {("-o", "json"), ("--output", "json")}
_JSON_IN_ONE = ("-ojson", "--output=json")
