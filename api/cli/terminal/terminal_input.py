"""Single keys at a terminal, without echo and line editing. The terminal's mode is restored however the program ends:
SIGTERM and SIGHUP become `SystemExit`, so that the screen is released first.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

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
