"""Passwords and passphrases: from a prompt without an echo, standard input or a file.

No option has a password as its value: every user of the machine sees arguments (`ps`), and shells keep them in their
history.
"""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from api.cli.errors import CommandError, Status

StdinOption = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from the first line of standard input.")
]


def password(what: str, from_stdin: bool, twice: bool = False) -> str:
    """Read a password, `twice` to compare. Raises `CommandError` if there is neither a terminal nor
    `--password-stdin`."""
    if from_stdin:
        line = sys.stdin.readline().rstrip("\r\n")
        if not line:
            raise CommandError("The first line of standard input holds no password", status=Status.USAGE)
        return line
    return _prompt(what, twice, "--password-stdin reads it from standard input")


def passphrase(what: str, file: Path | None, twice: bool) -> str:
    """The first line of `--passphrase-file`, else from a prompt. Raises `CommandError` if there is neither."""
    if file is None:
        return _prompt(what, twice, "--passphrase-file reads it from the first line of a file")
    try:
        return file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--passphrase-file: {file}: {error}", status=Status.USAGE) from error


def _prompt(what: str, twice: bool, otherwise: str) -> str:
    if not sys.stdin.isatty():
        raise CommandError(f"{what} is needed, and there is no terminal to ask at", otherwise, Status.USAGE)
    first = _read_hidden(f"{what}: ")
    if twice and _read_hidden("Once more: ") != first:
        raise CommandError("The two entries differ; nothing was done")
    return first


def _read_hidden(prompt: str) -> str:
    try:
        return getpass.getpass(prompt, stream=sys.stderr)
    except EOFError as error:
        raise CommandError("Nothing was done") from error
