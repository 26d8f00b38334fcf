"""The command line in tests: run in this process, or as a process of its own with or without a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import io
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import typer.main

from api.cli.application import application, run
from tests.kit.product import PASSWORD, Product

OURS = "PROXYFLEET_"
FORMS = ("NO_COLOR", "TERM", "COLUMNS", "LINES")
"""Variables that change how things are printed."""


@cache
def program() -> Any:
    """All commands. A process has one to run, tests have hundreds."""
    return typer.main.get_command(application())


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
    """The command line of one user, with a home of its own."""

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
        """In this process, which costs no start of an interpreter; in pipes."""
        out, err = Stream(), Stream()
        return Ran(self._run(arguments, env, Stream(stdin), out, err), out.text, err.text)

    def screen(self, *arguments: str, **env: str) -> Ran:
        """In this process, with streams that are a terminal of 200 columns for the command; `out` has both."""
        screen = Stream(terminal=True)
        return Ran(self._run(arguments, {"COLUMNS": "200", **env}, Stream(), screen, screen), screen.text, "")

    def _run(self, arguments: Sequence[str], env: dict[str, str], stdin: Stream, out: Stream, err: Stream) -> int:
        before, stdin_before = dict(os.environ), sys.stdin
        os.environ.clear()
        os.environ.update({**self.env, **env})
        sys.stdin = stdin
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                return run(program(), arguments)
        except SystemExit as end:  # as of a process
            return int(end.code or 0)
        finally:
            sys.stdin = stdin_before
            os.environ.clear()
            os.environ.update(before)

    def good(self, *arguments: str, stdin: str = "", **env: str) -> Ran:
        """As a call, and it must succeed."""
        ran = self(*arguments, stdin=stdin, **env)
        assert ran.status == 0, f"{arguments}: {ran.status} {ran.out} {ran.err}"
        return ran

    def login(self) -> None:
        self.good("login", "--password-stdin", stdin=f"{PASSWORD}\n")

    def process(self, *arguments: str, stdin: str = "", **env: str) -> Ran:
        """As a process of its own, in pipes."""
        line = [sys.executable, "-m", "supervisor", *arguments]
        ended = subprocess.run(line, input=stdin, capture_output=True, text=True, timeout=180, env={**self.env, **env})
        return Ran(ended.returncode, ended.stdout, ended.stderr)

    def terminal(self, *arguments: str, **env: str) -> Terminal:
        """As a process of its own at a terminal."""
        return Terminal([sys.executable, "-m", "supervisor", *arguments], {**self.env, **env})


def shell_of(product: Product, home: Path) -> Shell:
    """The command line of the administrator, who has just signed in."""
    shell = Shell(home, product.base_url)
    shell.login()
    return shell


_kept: dict[str, str] = {}
"""The file of the last sign-in at each address."""


def signed_in(product: Product, home: Path) -> Shell:
    """As `shell_of`, but by a sign-in that other tests use, too, as long as it is good: one costs more than most
    commands. A test that renews or ends its sign-in takes `shell_of`."""
    kept = _kept.get(product.base_url)
    if kept is None or not _is_good(product, kept):
        made = shell_of(product, home)
        _kept[product.base_url] = made.credentials.read_text()
        return made
    shell = Shell(home, product.base_url)
    shell.credentials.parent.mkdir(mode=0o700, parents=True)
    shell.credentials.write_text(kept)
    shell.credentials.chmod(0o600)
    return shell


def _is_good(product: Product, kept: str) -> bool:
    """Whether the access token is, and will be for longer than a test takes."""
    (tokens,) = json.loads(kept)["servers"].values()
    headers = {"Authorization": f"Bearer {tokens['access_token']}"}
    if tokens["expires_at"] < time.time() + 600:
        return False
    return product.session.get(f"{product.base_url}/api/v1/auth/test", headers=headers, timeout=60).status_code == 200


class Stream(io.TextIOWrapper):
    """A standard stream in memory."""

    def __init__(self, content: str = "", terminal: bool = False) -> None:
        super().__init__(io.BytesIO(content.encode()), encoding="utf-8", newline="")
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    @property
    def text(self) -> str:
        """All that was written."""
        self.flush()
        return self.buffer.getvalue().decode()  # type: ignore[attr-defined]


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
        self.hang_up()

    def hang_up(self) -> None:
        """Close the terminal, as when its window is closed."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    @property
    def modes(self) -> list[object]:
        """How the terminal treats what is typed: echo, whole lines, keys that send signals."""
        return termios.tcgetattr(self._master)

    def resize(self, rows: int, columns: int) -> None:
        """Change the size, which signals the process."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def until(self, there: str | Callable[[str], bool], seconds: float = 120.0) -> str:
        """Read until `there` is in what it wrote; all that it wrote."""
        deadline = time.monotonic() + seconds
        found = (lambda text: there in text) if isinstance(there, str) else there
        while not found(self.text):
            left = deadline - time.monotonic()
            assert left > 0, f"{there!r} did not come: {self.text!r}"
            if not self._read(left):
                assert found(self.text), f"ended without {there!r}: {self.text!r}"
        return self.text

    def end(self, seconds: float = 120.0) -> int:
        """Read until it ends; its exit status."""
        deadline = time.monotonic() + seconds
        while self._read(max(0.0, deadline - time.monotonic())):
            assert time.monotonic() < deadline, f"does not end: {self.text!r}"
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    def _read(self, seconds: float) -> bool:
        """Read one piece; False when the other side is closed."""
        poll = select.poll()  # select(2) takes no descriptor above 1,023, which a process of many tests may have
        poll.register(self._master, select.POLLIN)
        if not poll.poll(1000 * seconds):
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
