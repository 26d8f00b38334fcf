"""Chromium with a signed-in page of the product, and what Chromium itself says about that page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from benchmarks.ours import PASSWORD, Product
from benchmarks.processes import Missing
from tests.kit.browser import PATIENCE, chromium

SLOWER = 4
"""Times that a page is slowed down."""
WINDOW = {"width": 1280, "height": 800}


class Visitor:
    """A browser in which the administrator is signed in."""

    def __init__(self, browser: Browser, product: Product) -> None:
        self._browser = browser
        self._origin = f"http://127.0.0.1:{product.port}"

    @contextmanager
    def context(self) -> Iterator[BrowserContext]:
        """A new one: nothing is cached, and the cookie of a session is there."""
        context = self._browser.new_context(base_url=self._origin, viewport=WINDOW, locale="en-US")
        context.set_default_timeout(6 * PATIENCE)
        try:
            body = {"username": "admin", "password": PASSWORD, "session": "cookie"}
            response = context.request.post("/api/v1/auth/login", data=body)
            assert response.ok, response.text()
            yield context
        finally:
            context.close()

    @contextmanager
    def page(self, slower: int = 1) -> Iterator[Page]:
        """A blank page in a context of its own."""
        with self.context() as context:
            page = context.new_page()
            if slower > 1:
                context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": slower})
            yield page

    def trace(self, page: Page, categories: list[str], act: Callable[[], object]) -> list[dict[str, Any]]:
        """Events of Chromium's tracing while `act` runs."""
        self._browser.start_tracing(page=page, categories=categories)
        try:
            act()
        finally:
            recorded = self._browser.stop_tracing()
        return list(json.loads(recorded)["traceEvents"])


@contextmanager
def visitor(product: Product) -> Iterator[Visitor]:
    """A running browser. Raises `Missing`."""
    with sync_playwright() as playwright:
        try:
            with chromium(playwright) as browser:
                yield Visitor(browser, product)
        except FileNotFoundError as error:
            raise Missing(str(error)) from error
