"""Screens are parts of the program: what is not loaded yet, can't be, or was replaced by another version."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext, Page, Request, expect

from tests.kit.browser import Problems, log_in

PART = re.compile(r"/ui/assets/system-[^/]*\.js$")
ANY = re.compile(r"/ui/")
OUTDATED = "A new version of the dashboard is available"


@pytest.fixture
def page(new_context: Callable[..., BrowserContext]) -> Page:
    """Nothing is loaded yet; all screens are, once it is idle."""
    context = new_context(idle=True)
    log_in(context, "admin")
    return context.new_page()


def is_at(page: Page, title: str) -> None:
    expect(page.get_by_role("heading", level=1, name=title)).to_be_visible()


def is_loaded(page: Page) -> None:
    """The screen of changes, which only its own part of the program has."""
    expect(page.get_by_role("grid", name="Changes")).to_be_visible()
    expect(page.get_by_text("Could not load this screen")).to_have_count(0)
    expect(page.get_by_text(OUTDATED)).to_have_count(0)


def changes(page: Page) -> None:
    page.get_by_role("navigation").get_by_role("link", name="Changes").click()


LOST = "net::ERR_(INTERNET_DISCONNECTED|CONNECTION_RESET|SOCKET_NOT_CONNECTED|NETWORK_CHANGED)"
"""How Chromium names what it could not load, also of what was under way when it went offline."""


def test_all_screens_are_loaded_while_the_browser_is_idle(page: Page, problems: Problems) -> None:
    problems.allow(LOST)
    with page.expect_response(PART):
        page.goto("/ui/")
    is_at(page, "Overview")
    page.context.set_offline(True)
    changes(page)
    expect(page.get_by_text("The service can't be reached").first).to_be_visible()
    expect(page.get_by_text(OUTDATED)).to_have_count(0)
    page.context.set_offline(False)
    is_loaded(page)


def test_a_screen_that_was_not_loaded_before_the_network_was_gone_comes_when_it_is_back(
    page: Page, problems: Problems
) -> None:
    problems.allow("net::ERR_FAILED|Failed to fetch dynamically imported module")
    page.route(PART, lambda route: route.abort())
    page.goto("/ui/")
    is_at(page, "Overview")
    page.route(ANY, lambda route: route.abort())
    changes(page)
    expect(page.get_by_text("Could not load this screen. Retrying automatically.")).to_be_visible()
    expect(page.get_by_text(OUTDATED)).to_have_count(0)
    page.unroute(ANY)
    page.unroute(PART)
    is_loaded(page)


def test_a_screen_whose_connection_was_lost_comes_by_itself(page: Page, problems: Problems) -> None:
    problems.allow("net::ERR_FAILED|Failed to fetch dynamically imported module")
    loaded: list[Request] = []
    page.on("request", lambda request: loaded.append(request) if request.is_navigation_request() else None)
    page.route(PART, lambda route: route.abort() if len(loaded) < 2 else route.continue_())  # until it is loaded again
    page.goto("/ui/changes")
    is_loaded(page)


def test_a_screen_that_another_version_has_replaced_says_so(page: Page, problems: Problems) -> None:
    problems.allow("status of 404|Failed to fetch dynamically imported module")
    page.route(PART, lambda route: route.fulfill(status=404))
    page.goto("/ui/")
    is_at(page, "Overview")
    changes(page)
    expect(page.get_by_text(OUTDATED)).to_be_visible()
    page.unroute(PART)
    page.get_by_role("button", name="Reload").click()
    is_loaded(page)
