"""Passwords from people and programs: asked for without an echo, or a line of standard input.

There is no option with a password as its value: arguments are seen by everybody on the machine (`ps`), and stay in the
history of the shell.
"""

from __future__ import annotations

import getpass
import sys
from typing import Annotated

import typer

from api.cli.errors import CommandError, Status

StdinOption = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from the first line of standard input.")
]


def password(what: str, from_stdin: bool, twice: bool = False) -> str:
    """A password. Raises `CommandError` when there is neither a terminal nor `--password-stdin`."""
    if from_stdin:
        line = sys.stdin.readline().rstrip("\r\n")
        if not line:
            raise CommandError("Standard input has no password in its first line", status=Status.USAGE)
        return line
    return _asked(what, twice, "--password-stdin reads it from standard input")


def passphrase(what: str, twice: bool) -> str:
    """A passphrase, of commands with `--passphrase-file`. Raises `CommandError` when there is no terminal."""
    return _asked(what, twice, "--passphrase-file reads it from the first line of a file")


def _asked(what: str, twice: bool, otherwise: str) -> str:
    if not sys.stdin.isatty():
        raise CommandError(f"{what} is needed, and there is no terminal to ask at", otherwise, Status.USAGE)
    first = _ask(f"{what}: ")
    if twice and _ask("Once more: ") != first:
        raise CommandError("These are two different ones; nothing was done")
    return first


def _ask(prompt: str) -> str:
    try:
        return getpass.getpass(prompt, stream=sys.stderr)
    except EOFError as error:
        raise CommandError("Nothing was done") from error
