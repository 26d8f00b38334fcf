"""The command line in tests: run in this process, or as a process of its own with or without a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from typer.testing import CliRunner

from supervisor import app
from tests.kit.product import PASSWORD, Product

OURS = "PROXYFLEET_"
FORMS = ("NO_COLOR", "TERM", "COLUMNS", "LINES")
"""Variables that change how things are printed."""


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """What `-o json` printed."""
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """The cells of a table in a pipe, without its titles."""
        return [line.split("\t") for line in self.out.splitlines()[1:]]

    @property
    def details(self) -> dict[str, str]:
        """Names and values of one thing."""
        return dict(line.split("\t") for line in self.out.splitlines())


class Shell:
    """Somebody at a command line, with a home of their own."""

    def __init__(self, home: Path, url: str | None = None, **env: str) -> None:
        self.home = home
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(OURS) and not name.lower().endswith("_proxy") and name not in FORMS
        }
        where = {f"{OURS}URL": url} if url else {}
        self.env = {**clean, "XDG_CONFIG_HOME": str(home), "TERM": "xterm-256color", **where, **env}

    @property
    def credentials(self) -> Path:
        return self.home / "proxyfleet" / "credentials.json"

    def __call__(self, *arguments: str, stdin: str = "", **env: str) -> Ran:
        """In this process, which costs no start of an interpreter."""
        before = dict(os.environ)
        try:
            os.environ.clear()
            os.environ.update({**self.env, **env})
            result = CliRunner().invoke(app, list(arguments), input=stdin)
        finally:
            os.environ.clear()
            os.environ.update(before)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    def good(self, *arguments: str, stdin: str = "", **env: str) -> Ran:
        """As a call, and it must succeed."""
        ran = self(*arguments, stdin=stdin, **env)
        assert ran.status == 0, f"{arguments}: {ran.status} {ran.out} {ran.err}"
        return ran

    def login(self) -> None:
        self.good("login", "--password-stdin", stdin=f"{PASSWORD}\n")

    def process(self, *arguments: str, stdin: str = "", **env: str) -> Ran:
        """As a process of its own, in pipes."""
        command = [sys.executable, "-m", "supervisor", *arguments]
        ended = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=60, env={**self.env, **env}
        )
        return Ran(ended.returncode, ended.stdout, ended.stderr)

    def terminal(self, *arguments: str, **env: str) -> Terminal:
        """As a process of its own at a terminal."""
        return Terminal([sys.executable, "-m", "supervisor", *arguments], {**self.env, **env})


def shell_of(product: Product, home: Path, **env: str) -> Shell:
    """Somebody who is signed in as the administrator."""
    shell = Shell(home, product.base_url, **env)
    shell.login()
    return shell


class Terminal:
    """A process at a pseudo-terminal of 200 columns. What it wrote so far is `text`."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        self.resize(40, 200)
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env,
            start_new_session=True,
            preexec_fn=_at_terminal,  # noqa: PLW1509
        )
        os.close(slave)
        self.text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)

    @property
    def modes(self) -> list[object]:
        """How the terminal treats what is typed: echo, whole lines, keys that send signals."""
        return termios.tcgetattr(self._master)

    def resize(self, rows: int, columns: int) -> None:
        """Give it another size, of which the process hears."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def until(self, there: str | Callable[[str], bool], seconds: float = 30.0) -> str:
        """Read until `there` is in what it wrote; all that it wrote."""
        deadline = time.monotonic() + seconds
        found = (lambda text: there in text) if isinstance(there, str) else there
        while not found(self.text):
            left = deadline - time.monotonic()
            assert left > 0, f"{there!r} did not come: {self.text!r}"
            if not self._read(left):
                assert found(self.text), f"ended without {there!r}: {self.text!r}"
        return self.text

    def end(self, seconds: float = 30.0) -> int:
        """Read until it ends; its exit status."""
        deadline = time.monotonic() + seconds
        while self._read(max(0.0, deadline - time.monotonic())):
            assert time.monotonic() < deadline, f"does not end: {self.text!r}"
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    def _read(self, seconds: float) -> bool:
        """One piece; False when nobody holds the other side any more."""
        readable, _, _ = select.select([self._master], [], [], seconds)
        if not readable:
            return True
        try:
            piece = os.read(self._master, 65536)
        except OSError:
            return False  # EIO: how Linux says that the other side is closed
        self.text += piece.decode(errors="replace")
        return bool(piece)


def _at_terminal() -> None:
    """Take standard input as the controlling terminal, whose Ctrl-C a suite in the background has to obey, too."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
