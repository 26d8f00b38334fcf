"""Runs the command line: the order of commands in help, and errors of a line that can't be parsed.

Typer's own messages are several lines of usage. Here they are printed like every other `CommandError`: an error, a
hint, and one JSON object with `-o json`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from api.cli.commands import FlagsGroup, discard_output, output_error
from api.cli.errors import CommandError, Status
from api.cli.terminal.output import Output
from api.cli.terminal.streams import open_missing_streams

UsageError: Any = typer.BadParameter.__mro__[1]
"""The base class of parse errors; its module differs between releases of Typer."""

FIRST = ("serve", "check-config", "login", "logout", "whoami")
"""Commands before the groups; all others follow the groups."""

_HIDDEN = ("install_completion", "show_completion")
"""Typer's own options for completion; `proxyfleet completion` is the documented way."""
_LIBRARY_WORDS = re.compile(r"Value error, |(?<=: )Input should be |, unable to parse .*")


class CommandLine(FlagsGroup):
    """The top level, with groups between commands, where Typer has them last."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the help."""
        names = super().list_commands(ctx)
        groups = [name for name in names if isinstance(self.commands[name], TyperGroup)]
        last = [name for name in names if name not in FIRST and name not in groups]
        return [*(name for name in names if name in FIRST), *groups, *last]

    def get_params(self, ctx: Any) -> Any:
        """The options of the top level, with Typer's own hidden."""
        params = super().get_params(ctx)
        for each in params:
            if each.name in _HIDDEN and hasattr(each, "hidden"):
                each.hidden = True
        return params


def run(app: typer.Typer, arguments: Sequence[str] | None = None, obj: object = None) -> int:
    """Run a command line and return its exit status. Commands find `obj` in their context."""
    open_missing_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = app(given, prog_name="proxyfleet", standalone_mode=False, obj=obj)
    except UsageError as error:
        return _report_usage_error(error, given)
    except OSError as error:  # from the help; commands report errors of their output
        discard_output()
        Output().error(output_error(error))
        return int(Status.FAILED)
    except typer.Abort:  # standard input ended at a prompt
        return int(Status.INTERRUPTED)
    return status if isinstance(status, int) else int(Status.OK)


def _report_usage_error(error: Any, given: Sequence[str]) -> int:
    if not given or type(error).__name__ == "NoArgsIsHelpError":  # its text is the help
        sys.stderr.write(error.format_message() + "\n")
        return int(Status.USAGE)
    if getattr(error, "option_name", "") == "--file" and _takes_body(error.ctx):
        error.possibilities = ["--from"]  # by spelling alone the nearest would be --ca-file
    command = error.ctx.command_path if error.ctx is not None else "proxyfleet"
    message = _LIBRARY_WORDS.sub(
        lambda found: "must be " if found[0].startswith("Input") else "", error.format_message()
    )
    Output("json" if wants_json(given) else "table").error(CommandError(message, f"See {command} --help", Status.USAGE))
    return int(Status.USAGE)


def _takes_body(ctx: Any) -> bool:
    """True for a command whose `--from` is a file, not a time."""
    params = () if ctx is None else ctx.command.params
    return any("--from" in each.opts and each.metavar == "FILE" for each in params)


def wants_json(given: Sequence[str]) -> bool:
    """True if a line that can't be parsed asks for JSON."""
    pairs = zip(given, [*given[1:], ""], strict=True)
    return any((one, other) in _JSON or one in _JSON_IN_ONE for one, other in pairs)


_JSON = {("-o", "json"), ("--output", "json")}
_JSON_IN_ONE = ("-ojson", "--output=json")
