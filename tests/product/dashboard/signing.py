"""Signing in and out in a page, and who is signed in."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.kit.product import PASSWORD

SIGN_IN = "Sign in"


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
