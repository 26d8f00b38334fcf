"""The application with `serve` alone. A start of the product has no time for the modules of all other commands."""

from __future__ import annotations

import os
import sys
from shutil import get_terminal_size
from typing import Annotated

import typer

from actors.compiled import runs_compiled
from api.cli.commands import RUN, guarded
from api.cli.errors import EXIT_STATUSES
from api.cli.flags import FlagsCommand
from api.cli.help import Commands
from api.cli.local.serve import serve
from api.cli.terminal.output import Output
from config import VERSION

WIDTH = 110
"""Columns of help in a pipe, where descriptions fit into a line; help at a narrower terminal has no panels."""


def new_application() -> typer.Typer:
    """An application with `serve`. Only a wide terminal gets help with panels: elsewhere it is searched and piped."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    wide = terminal and get_terminal_size().columns >= WIDTH
    app = typer.Typer(
        name="proxyfleet",
        cls=Commands,
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
    app.command(cls=FlagsCommand, rich_help_panel=RUN)(serve)
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
    compiled = runs_compiled()
    line = f"proxyfleet {VERSION} (compiled)" if compiled else f"proxyfleet {VERSION}"
    out.data({"version": VERSION, "compiled": compiled}, lambda: out.line(line))
