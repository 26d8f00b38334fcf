"""Signing in and out in a page, who is signed in, and what they may do."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from tests.kit.product import PASSWORD

SIGN_IN = "Sign in"
ENDED = "Your session has ended"
CHANGES = re.compile("^(Add|Create|Delete|Edit|End|New|Restart|Start|Stop)\\b")
"""The names of buttons that change something."""


def buttons(page: Page) -> Locator:
    """Those that change something, and links that look so."""
    main = page.get_by_role("main")
    return main.get_by_role("button", name=CHANGES).or_(main.get_by_role("link", name=CHANGES))


def fill_in(page: Page, username: str = "admin", password: str = PASSWORD) -> None:
    """Send the form."""
    page.get_by_label("User name").fill(username)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name=SIGN_IN).click()


def is_at(page: Page, title: str) -> None:
    """The screen with this title is there, in the frame of a session."""
    expect(page.get_by_role("heading", level=1, name=title, exact=True)).to_be_visible()
    expect(page.get_by_role("navigation", name="Main navigation")).to_be_visible()


def is_signed_out(page: Page) -> None:
    expect(page.get_by_role("button", name=SIGN_IN)).to_be_visible()


def sign_out(page: Page) -> None:
    page.get_by_role("button", name=re.compile("Your menu")).click()
    page.get_by_role("menuitem", name="Sign out").click()


def is_user(page: Page, name: str) -> None:
    """The page is in the session of this user."""
    expect(page.get_by_role("button", name=re.compile(f"Your menu.*{name}"))).to_be_visible()
