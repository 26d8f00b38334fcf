"""The pictures: each screen in light, dark and on a phone; those that the documents have are a few of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from tests.kit.browser import PATIENCE
from tests.kit.product import PASSWORD, Product

LARGEST = 100_000
"""Bytes of one picture."""
FORMS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 800}, "color_scheme": "light", "has_touch": True},
}
SETTLED = 2_500
"""Milliseconds that a screen has to draw its charts and figures."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A file and what it has to show."""

    path: Path
    screen: str
    form: str


def take(browser: Browser, product: Product, screens: dict[str, str], folder: Path) -> Iterator[Picture]:
    """A picture of each screen (path below `/ui/` by name) in each form. Raises `ValueError` for a large one."""
    for form, options in FORMS.items():
        context = browser.new_context(base_url=product.base_url, locale="en-US", reduced_motion="reduce", **options)
        context.set_default_timeout(PATIENCE)
        body = {"username": "admin", "password": PASSWORD, "session": "cookie"}
        assert context.request.post("/api/v1/auth/login", data=body).ok
        page = context.new_page()
        for name, path in screens.items():
            yield _picture(page, name, path, form, folder / f"{name}-{form}.png")
        context.close()


def _picture(page: Page, name: str, path: str, form: str, file: Path) -> Picture:
    page.goto(f"/ui{path}")
    page.get_by_role("heading", level=1).wait_for()
    page.wait_for_timeout(SETTLED)
    size = len(page.screenshot(path=file, animations="disabled", caret="hide"))
    if size > LARGEST:
        raise ValueError(f"{file.name} has {size:,} bytes and may have {LARGEST:,}")
    return Picture(file, name, form)
