"""Debian's Chromium for tests, pictures and measurements, and what a page in it does wrong."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from tests.kit.product import PASSWORD

if TYPE_CHECKING:  # the group `dashboard` is optional
    from playwright.sync_api import (
        Browser,
        BrowserContext,
        ConsoleMessage,
        Dialog,
        Locator,
        Page,
        Playwright,
        ViewportSize,
        WebError,
    )

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser")
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
NEVER_IDLE = "globalThis.requestIdleCallback = () => 0"
"""A page loads the screen that it shows alone, and no others beforehand: each load of it would cost twice as much."""
BLANK = "about:blank"
NOWHERE = "Page not found"
"""The title of the screen of an address that has none."""
SHOW = """async ([path, nowhere, patience]) => {
  const end = performance.now() + patience;
  const rested = Object.hasOwn(document, 'hidden') && delete document.hidden;
  if (rested) document.dispatchEvent(new Event('visibilitychange'));
  document.querySelectorAll('.toasts [aria-label=Dismiss]').forEach((each) => each.click());
  const follow = async (to, shown) => {
    const link = Object.assign(document.createElement('a'), { href: `/ui${to}` });
    document.body.append(link);
    link.click();
    link.remove();
    for (;;) {
      const title = [...document.querySelectorAll('h1')].find((each) => each.checkVisibility());
      if (title && title.textContent.includes(nowhere) === shown) return;
      if (performance.now() > end) throw new Error(`${to} is not shown, but ${title?.textContent}`);
      await new Promise(requestAnimationFrame);
    }
  };
  await follow('/-', true);
  if (path !== '/-') await follow(path, false);
}"""
REST = """() => {
  if (document.querySelector('dialog[open], [role=menu], main [role=status]')) return false;
  Object.defineProperty(document, 'hidden', { value: true, configurable: true });
  return document.dispatchEvent(new Event('visibilitychange'));
}"""
"""Ask for nothing any more, as a tab that is not looked at; unless something is left of a test."""
UNTOUCHED = "() => !localStorage.length && document.querySelector('nav[id=navigation]') !== null"
"""Whether someone is signed in, and chose nothing that the page keeps."""
LOADED = """() => [...document.querySelectorAll('h1')].filter((each) => each.checkVisibility()).length === 1 &&
  ![...document.querySelectorAll('[role=status]')].some((each) => each.textContent.includes('Loading'))"""
SETTLED = """async () => {
  const ending = document.getAnimations().filter((each) => each.effect.getComputedTiming().endTime !== Infinity);
  await Promise.allSettled(ending.map((each) => each.finished));
}"""
ELSEWHERE = "path => location.pathname !== path || document.activeElement?.closest('dialog[open]') !== null"
VIEWPORT: ViewportSize = {"width": 1280, "height": 800}
"""Of every page, unless a test has another."""
NO_SESSION = re.compile(r"/api/v1/(auth/refresh|me/resume): .* 401 ")
"""Chromium's line about a page that asks for a session where there is none."""
ASKED_AGAIN = re.compile(r"/api/v1/logs/\S+: .* 429 ")
"""That about counts of a log while others are under way: the page asks again."""


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


def log_in(context: BrowserContext, username: str) -> None:
    """A user who has `PASSWORD` gets the cookie of a session."""
    body = {"username": username, "password": PASSWORD, "session": "cookie"}
    response = context.request.post("/api/v1/auth/login", data=body)
    assert response.ok, response.text()


def show(page: Page, path: str) -> None:
    """Show the screen of a path below `/ui`, made anew, without messages of before: by the router of a page that is
    loaded, which is a third of the work."""
    if page.url == BLANK:
        page.goto(f"/ui{path}")
    else:
        page.evaluate(SHOW, [path, NOWHERE, PATIENCE])


def wait_until_loaded(page: Page) -> None:
    """The title of the screen is there, and nothing says that it is still loading."""
    page.wait_for_function(LOADED)


def open_row(row: Locator) -> None:
    """Open the screen of what a row of a list is about, by keys: where it opens beside the list first, once more."""
    page = row.page
    before = page.evaluate("location.pathname")
    row.focus()
    row.press("Enter")
    page.wait_for_function(ELSEWHERE, arg=before)
    if page.evaluate("location.pathname") == before:
        page.keyboard.press("Enter")


def look(page: Page) -> None:
    """The tab is looked at again: it asks anew for all that it shows."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def settle(page: Page) -> None:
    """Wait until what moves has arrived: else colours are between two themes."""
    page.evaluate(SETTLED)


def leave(page: Page, *, blank: bool = False) -> None:
    """Put back what a test may have set: the next one finds the page blank or, unless it must be, loaded and at no
    screen (`show`)."""
    for other in page.context.pages:
        if other != page:
            other.close()
    if page.is_closed():
        return
    page.context.unroute_all()
    page.unroute_all()
    page.context.clear_permissions()
    page.context.set_offline(False)
    page.on("dialog", _accept)  # what was typed is lost
    if page.url != BLANK and (blank or not page.evaluate(UNTOUCHED) or not _rests(page)):
        # by the page itself: the browser would end its process, and begin another one for the next test
        page.evaluate(f"localStorage.clear(); location.assign('{BLANK}')")
        page.wait_for_url(BLANK)
    page.remove_listener("dialog", _accept)
    page.set_viewport_size(VIEWPORT)
    page.emulate_media(media="screen", color_scheme="light", contrast="no-preference")


def _accept(dialog: Dialog) -> None:
    dialog.accept()


def _rests(page: Page) -> bool:
    """Whether it is at no screen now, with nothing of a test."""
    show(page, "/-")
    return bool(page.evaluate(REST))


class Problems:
    """Errors of the pages of some contexts: on the console, uncaught, and against the content security policy."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget what was found and allowed so far."""
        self._found: list[str] = []
        self._allowed = [NO_SESSION, ASKED_AGAIN]

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
    """Opens a page in the session of a user with a role: the one that tests share or, with `options`, one in a context
    of its own, which has them."""

    def __call__(self, role: str = "administrator", **options: Any) -> Page: ...
