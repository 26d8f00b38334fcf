"""Input at a terminal: passwords, and single keys without echo and line editing.

The terminal's mode is restored however the program ends: SIGTERM and SIGHUP become `SystemExit`, so that the screen is
released first.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import select
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

from api.cli.errors import CommandError, Status
from api.cli.options import file_option, flag

ESCAPE = b"\x1b"
END = b""
"""Read from a terminal that has been closed."""
REST = 0.05
"""Seconds to wait for the rest of an arrow key, which may arrive after its escape over a slow line."""

_KEY = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)

Pressed = Callable[[float], list[bytes]]
"""Waits up to so many seconds for keys; the keys that were pressed, none after a change of the window's size."""


def split(data: bytes) -> list[bytes]:
    """The keys in `data`; an arrow is one key of several bytes."""
    return _KEY.findall(data) or [END]


@contextlib.contextmanager
def keyboard() -> Iterator[Pressed]:
    """Read keys of standard input, which must be a terminal. Ctrl-Z is a key, Ctrl-C raises `KeyboardInterrupt`."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    with _signals() as resized:
        try:
            tty.setcbreak(descriptor)
            _without_suspending(descriptor)
            yield lambda seconds: _wait(descriptor, resized, seconds)
        finally:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _without_suspending(descriptor: int) -> None:
    import termios

    mode = termios.tcgetattr(descriptor)
    mode[6][termios.VSUSP] = b"\0"  # _POSIX_VDISABLE of Linux
    termios.tcsetattr(descriptor, termios.TCSANOW, mode)


def _wait(descriptor: int, resized: int, seconds: float) -> list[bytes]:
    readable, _, _ = select.select([descriptor, resized], [], [], seconds)
    if resized in readable:
        os.read(resized, 512)
    if descriptor not in readable:
        return []
    data = _read(descriptor)
    if data.endswith(ESCAPE) and select.select([descriptor], [], [], REST)[0]:
        data += _read(descriptor)
    return split(data)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 64)
    except OSError:
        return END  # EIO: Linux reports a closed terminal so


@contextlib.contextmanager
def _signals() -> Iterator[int]:
    """A descriptor that is readable after a change of the window's size; SIGTERM and SIGHUP unwind the stack."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def changed(_signal: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(BlockingIOError):  # the pipe is full of the same message
            os.write(writer, b"r")

    handlers = {signal.SIGWINCH: changed, signal.SIGTERM: _end, signal.SIGHUP: _end}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield reader
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


# --- passwords and passphrases: from a prompt without an echo, standard input or a file ---
# No option has a password as its value: every user of the machine sees arguments (`ps`), and shells keep them.

PASSPHRASE_FILE = file_option("--passphrase-file", "Its first line is the passphrase; else it is asked for.")
PASSWORD_STDIN = flag("--password-stdin", "Read the password from the first line of standard input.")


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
