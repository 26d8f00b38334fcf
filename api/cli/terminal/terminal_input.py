"""Single keys at a terminal, without echo and lines; whatever ends us, the terminal is as it was afterwards.

A signal that ends other programs at once becomes `SystemExit` here, so that what holds the screen lets go of it first.
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
"""What is read from a terminal that is gone."""
REST = 0.05
"""Seconds in which the rest of an arrow key comes, which over a slow line is not one with its escape."""

_KEY = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)

Pressed = Callable[[float], list[bytes]]
"""Waits so many seconds for keys: those that were pressed, none when the window has another size now."""


def split(data: bytes) -> list[bytes]:
    """The keys in what was read; an arrow is one key of several bytes."""
    return _KEY.findall(data) or [END]


@contextlib.contextmanager
def keyboard() -> Iterator[Pressed]:
    """Keys of standard input, which must be a terminal. Ctrl-Z comes as a key, Ctrl-C as ever."""
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
        return END  # EIO: how Linux says that the terminal is gone


@contextlib.contextmanager
def _signals() -> Iterator[int]:
    """A descriptor that can be read after a change of the window's size; SIGTERM and SIGHUP unwind the stack."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def changed(_signal: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(BlockingIOError):  # it is full of the same message
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
