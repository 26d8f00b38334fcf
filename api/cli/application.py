"""The application: all commands, or those that a command line needs.

Most of the time of a call is that of loading modules and of making commands of functions, so a line that names a
command gets this one alone. For help, completion and what is mistyped there are all of them.
"""

from __future__ import annotations

import copy
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from shutil import get_terminal_size
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from api.cli.commands import OTHER, TOP, FlagsGroup, discard_output, guarded, local_command, output_error
from api.cli.errors import EXIT_STATUSES, CommandError, Status
from api.cli.options import argument
from api.cli.terminal import Output
from config import VERSION

WIDTH = 110
"""Columns of help in a pipe, where descriptions fit into a line; help at a narrower terminal has no panels."""

MODULES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("local.commands", ("serve", "check-config", "config", "cluster")),
    ("remote.proxies", ("proxies",)),
    ("remote.proxy_tests", ("proxies",)),
    ("remote.certificates", ("certificates",)),
    ("remote.accounts", ("accounts", "plans")),
    ("remote.account_csv", ("accounts",)),
    ("remote.objects", ("lists", "pools", "policies")),
    ("remote.accounts", ("credentials",)),
    ("remote.system", ("connections", "dns")),
    ("remote.users", ("login", "logout", "whoami", "users", "sessions", "keys")),
    ("remote.run", ("run",)),
    ("remote.objects", ("block", "unblock")),
    ("remote.objects", ("webhooks",)),
    ("remote.nodes", ("nodes",)),
    ("remote.records", ("logs",)),
    ("remote.system", ("settings", "search", "status", "metrics")),
    ("remote.top", ("top",)),
    ("remote.system", ("usage",)),
    ("remote.import_export", ("export", "import", "apply", "convert")),
    ("remote.history", ("history", "rollback", "audit")),
    ("local.commands", ("backup", "restore", "upgrade", "reset-settings", "rotate-signing-key", "reset-password")),
)
"""Modules with the commands and groups that they add to `TOP`, in the order of the help."""
COMMANDS = tuple(dict.fromkeys(name for _, names in MODULES for name in names))

_OWN = ("completion", "version")
"""The commands in this module."""

USUAL = ("list", "show", "create", "mint", "update", "rotate", "revoke", "delete")
"""Commands of a kind, in the order of help; others follow."""


def application(words: Sequence[str] = ()) -> typer.Typer:
    """The application for a command line of these words. Without any it has all commands."""
    named = words[0] if words else None
    wanted = (named,) if named in COMMANDS else () if named in _OWN else COMMANDS
    for module, names in MODULES:
        if not {*names}.isdisjoint(wanted):
            import_module(f"api.cli.{module}")
    app, order = _without_commands(), (*wanted, *_OWN)
    commands = [each for each in TOP.registered_commands if each.name in order]
    app.registered_commands = sorted(commands, key=lambda each: order.index(each.name))
    groups = [copy.copy(each) for each in TOP.registered_groups if each.name in wanted]
    app.registered_groups = sorted(groups, key=lambda each: wanted.index(each.name))
    for group in app.registered_groups:
        if group.typer_instance is not None:
            group.typer_instance = _narrowed(group.typer_instance, words[1:] if group.name == named else ())
    return app


def _narrowed(group: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """The group with the command that the first of the words names; with all, in order, where it names none."""
    found = [each for each in group.registered_commands if words and each.name == words[0]]
    usual = sorted(
        group.registered_commands, key=lambda one: USUAL.index(one.name) if one.name in USUAL else len(USUAL)
    )
    narrowed = copy.copy(group)
    narrowed.registered_commands = found or usual
    return narrowed


def _without_commands() -> typer.Typer:
    """Only a wide terminal gets help with panels: in a pipe or a narrow one it is searched."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    wide = terminal and get_terminal_size().columns >= WIDTH
    app = typer.Typer(
        name="proxyfleet",
        cls=CommandLine,
        help="A forward-proxy service with a management API.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown" if wide and not os.environ.get("NO_COLOR") else None,
        context_settings={
            "help_option_names": ["-h", "--help"],
            **({} if terminal or os.environ.get("COLUMNS") else {"terminal_width": WIDTH}),
        },
        epilog=f"Sign in first: proxyfleet login. Exit statuses: {EXIT_STATUSES}.",
    )
    app.callback()(_top_level_options)
    return app


def _print_version(given: bool) -> None:
    if given:
        guarded(Output(), lambda: version(Output()))
        raise typer.Exit


def _top_level_options(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Options before a command."""


@local_command(TOP, "version", rich_help_panel=OTHER)
def version(out: Output) -> None:
    """Print the version, and whether the forwarding path is compiled."""
    from actors.compiled import runs_compiled

    compiled = runs_compiled()
    line = f"proxyfleet {VERSION} (compiled)" if compiled else f"proxyfleet {VERSION}"
    out.data({"version": VERSION, "compiled": compiled}, lambda: out.line(line))


_SHELL = argument("SHELL", "Your shell.", Literal["bash", "zsh", "fish"], default="bash")


@local_command(TOP, "completion", {"shell": _SHELL}, rich_help_panel=OTHER)
def completion(out: Output, shell: str) -> None:
    """Print the completion for a shell. For bash: eval "$(proxyfleet completion bash)" in ~/.bashrc."""
    from api.cli.options import script_of

    script = script_of(shell)
    out.data({"shell": shell, "script": script}, lambda: out.line(script))


# --- running a command line ---
# Typer's own messages about a line that can't be parsed are several lines of usage. Here they are printed like every
# other `CommandError`: an error, a hint, and one JSON object with `-o json`.

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
