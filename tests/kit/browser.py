"""Debian's Chromium for tests, pictures and measurements, and what a page in it does wrong."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # the group `dashboard` is optional
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, WebError

PROGRAMS = ("chromium", "chromium-browser")
ARGUMENTS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)
"""Nothing but this machine can be reached."""
PATIENCE = 60_000
"""Milliseconds that an action or an expectation may take: waits are no longer than they must be."""
REPORT_VIOLATIONS = """
addEventListener('securitypolicyviolation', (event) =>
  console.error(`content security policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`))
"""
NO_SESSION = re.compile(r"/api/v1/(auth/refresh|me/resume): .* 401 ")
"""Chromium's line about a page that asks for a session where there is none."""


def program() -> str | None:
    """The path of the browser; None where there is none."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@contextmanager
def chromium(playwright: Playwright, *more: str) -> Iterator[Browser]:
    """A running browser without a window; `more` are arguments of it. Raises `FileNotFoundError`."""
    path = program()
    if path is None:
        raise FileNotFoundError(f"none of {', '.join(PROGRAMS)} is installed")
    browser = playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS, *more], timeout=3 * PATIENCE)
    try:
        yield browser
    finally:
        browser.close()


class Problems:
    """Errors of the pages of some contexts: on the console, uncaught, and against the content security policy."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self._allowed = [NO_SESSION]

    def watch(self, context: BrowserContext) -> None:
        """Note what goes wrong in its pages from now on."""
        context.add_init_script(REPORT_VIOLATIONS)
        context.on("console", self._console)
        context.on("weberror", self._uncaught)

    def allow(self, pattern: str) -> None:
        """Expect errors whose line, `URL: text`, has a match of this regular expression."""
        self._allowed.append(re.compile(pattern))

    @property
    def unexpected(self) -> list[str]:
        """Lines about all that was not allowed."""
        return [line for line in self._found if not any(pattern.search(line) for pattern in self._allowed)]

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._found.append(f"{message.location['url']}: {message.text}")

    def _uncaught(self, error: WebError) -> None:
        at = error.page.url if error.page else ""
        self._found.append(f"{at}: uncaught: {error.error}")


class SignIn(Protocol):
    """Opens a page in the session of a user with a role; `options` are those of its context."""

    def __call__(self, role: str = "administrator", **options: Any) -> Page: ...
