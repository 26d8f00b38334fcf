"""The application: all commands, or those that a command line needs.

Most of the time of a call is that of loading modules and of making commands of functions, so a line that names a
command gets this one alone. For help, completion and what is mistyped there are all of them.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from shutil import get_terminal_size
from typing import Annotated, Literal

import typer

from api.cli.commands import OTHER, guarded, local_command
from api.cli.errors import EXIT_STATUSES
from api.cli.help import CommandLine
from api.cli.options import argument
from api.cli.terminal.output import Output
from config import VERSION

WIDTH = 110
"""Columns of help in a pipe, where descriptions fit into a line; help at a narrower terminal has no panels."""

MODULES: dict[str, tuple[str, ...]] = {
    "local.start": ("serve", "check-config", "config"),
    "remote.proxies": ("proxies",),
    "remote.accounts": ("accounts", "plans"),
    "remote.shared_objects": ("lists", "pools", "policies"),
    "remote.credentials": ("credentials",),
    "remote.connections": ("connections", "dns"),
    "remote.users": ("login", "logout", "whoami", "users", "sessions", "keys"),
    "remote.run": ("run",),
    "remote.webhooks": ("webhooks",),
    "remote.records": ("logs",),
    "remote.system": ("settings", "status", "metrics"),
    "remote.top": ("top",),
    "remote.usage": ("usage",),
    "remote.import_export": ("export", "import", "apply", "convert"),
    "remote.history": ("history", "rollback"),
    "remote.audit": ("audit",),
    "local.upkeep": ("backup", "restore", "upgrade", "reset-settings", "rotate-signing-key", "reset-password"),
}
"""The commands and groups that `add_commands` of each module adds, in the order of the help."""

_OWN = ("completion", "version")
"""The commands in this module."""


def application(words: Sequence[str] = ()) -> typer.Typer:
    """The application for a command line of these words. Without any it has all commands."""
    app = _without_commands()
    named = words[0] if words else None
    of_named = [module for module, names in MODULES.items() if named in names]
    for module in of_named if of_named or named in _OWN else MODULES:
        import_module(f"api.cli.{module}").add_commands(app)
    shell = argument("SHELL", "Your shell.", Literal["bash", "zsh", "fish"], default="bash")
    local_command(app, "completion", {"shell": shell}, rich_help_panel=OTHER)(completion)
    local_command(app, "version", rich_help_panel=OTHER)(version)
    for group in app.registered_groups:
        if group.name == named and group.typer_instance is not None:
            group.typer_instance = _narrowed(group.typer_instance, words[1:])
    return app


def _narrowed(group: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """The group with the command that the first of the words names; with all where it names none."""
    found = [each for each in group.registered_commands if words and each.name == words[0]]
    if not found:
        return group
    narrowed = copy.copy(group)
    narrowed.registered_commands = found
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
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Options before a command."""


def version(out: Output) -> None:
    """Print the version, and whether the forwarding path is compiled."""
    from actors.compiled import runs_compiled

    compiled = runs_compiled()
    line = f"proxyfleet {VERSION} (compiled)" if compiled else f"proxyfleet {VERSION}"
    out.data({"version": VERSION, "compiled": compiled}, lambda: out.line(line))


def completion(out: Output, shell: str) -> None:
    """Print the completion for a shell. For bash: eval "$(proxyfleet completion bash)" in ~/.bashrc."""
    from api.cli.terminal.completion import script_of

    script = script_of(shell)
    out.data({"shell": shell, "script": script}, lambda: out.line(script))
