"""The pictures: each screen in light, dark and on a phone; those that the documents have are a few of them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from tests.kit.browser import PATIENCE
from tests.kit.dashboard_areas import Screen
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


def take(browser: Browser, product: Product, screens: list[Screen], folder: Path) -> Iterator[Path]:
    """A picture of each screen in each form. Raises `ValueError` for a large one."""
    for form, options in FORMS.items():
        context = browser.new_context(base_url=product.base_url, locale="en-US", reduced_motion="reduce", **options)
        context.set_default_timeout(PATIENCE)
        body = {"username": "admin", "password": PASSWORD, "session": "cookie"}
        assert context.request.post("/api/v1/auth/login", data=body).ok
        page = context.new_page()
        for screen in screens:
            yield _picture(page, screen, folder / f"{screen.name}-{form}.png")
        context.close()


def _picture(page: Page, screen: Screen, file: Path) -> Path:
    _open(page, screen)
    page.wait_for_timeout(SETTLED)
    file.write_bytes(smaller(page.screenshot(animations="disabled", caret="hide")))
    if (size := file.stat().st_size) > LARGEST:
        raise ValueError(f"{file.name} has {size:,} bytes and may have {LARGEST:,}; with Pillow it would be smaller")
    return file


def smaller(png: bytes) -> bytes:
    """The picture with a palette of 128 colours, which is enough for a page; as it is where Pillow is missing."""
    if find_spec("PIL") is None:
        return png
    from PIL import Image

    reduced = Image.open(io.BytesIO(png)).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    written = io.BytesIO()
    reduced.save(written, "png", optimize=True)
    return written.getvalue()


def _open(page: Page, screen: Screen) -> None:
    """Go there; to a screen about one object by the first row of the list."""
    if not screen.needs_object:
        page.goto(f"/ui{screen.plain_path}")
    else:
        page.goto(f"/ui{screen.path.partition('/:')[0]}")
        row = page.get_by_role("main").get_by_role("row").nth(1)
        row.focus()
        row.press("Enter")
        page.wait_for_url(screen.pattern)
        if screen.tab:
            page.goto(f"{page.url}/{screen.tab}")
    page.get_by_role("heading", level=1).wait_for()
