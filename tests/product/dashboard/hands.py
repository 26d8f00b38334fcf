"""Two ways to use the page, each of which counts what it does: with a mouse beside the keyboard, and by keys alone.

A click takes two seconds, a field one and a half, a key a fifth of one: the keystroke-level model, by which ways
through the page are compared. What a field costs has the click into it. Nothing here reaches what its user could not:
the `Mouse` clicks what is visible, the `Keyboard` presses Tab until that has the focus.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from playwright.sync_api import Locator, Page, expect

PALETTE = "Search or run a command"
STOPS = 60
"""Presses of a key until the focus is where it is wanted, at most."""
HAS_FOCUS = "each => each === document.activeElement"
GROUP_HAS_FOCUS = "each => each.name === document.activeElement.name"
IS_BEFORE_FOCUS = "each => !!(document.activeElement.compareDocumentPosition(each) & Node.DOCUMENT_POSITION_PRECEDING)"
FOCUSED = "() => document.activeElement?.outerHTML.slice(0, 120)"


@dataclass
class Count:
    """Clicks, fields that were filled in, the letters in them, and all other keys: a shortcut of two keys is two."""

    clicks: int = 0
    fields: int = 0
    letters: int = 0
    keys: int = 0

    @property
    def seconds(self) -> float:
        return 2 * self.clicks + 1.5 * self.fields + 0.2 * (self.letters + self.keys)


class Hands(ABC):
    """Those of one who uses the page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.count = Count()

    def press(self, *keys: str) -> None:
        for each in keys:
            self.page.keyboard.press(each)
            self.count.keys += 1

    def type(self, text: str) -> None:
        """Into the field that has the focus."""
        self.page.keyboard.type(text)
        self.count.fields += 1
        self.count.letters += len(text)

    def find(self, words: str, title: str) -> None:
        """Take what the palette has for these words, once it is the one with this title."""
        self.open_palette()
        field = self.page.get_by_role("combobox", name=PALETTE)
        expect(field).to_be_focused()
        self.type(words)
        expect(self.page.get_by_role("option", selected=True).locator(".title")).to_have_text(title)
        self.press("Enter")
        expect(field).to_have_count(0)

    def rows(self, grid: str) -> Locator:
        return self.page.get_by_role("grid", name=grid).locator("[data-index]")

    @abstractmethod
    def open_palette(self) -> None: ...

    @abstractmethod
    def go(self, place: str, *keys: str) -> None:
        """To a place of the navigation, which has these keys."""

    @abstractmethod
    def push(self, button: Locator) -> None:
        """A button, a link, or a field for files."""

    @abstractmethod
    def fill(self, field: Locator, text: str) -> None:
        """An empty field."""

    @abstractmethod
    def pick(self, choice: Locator) -> None:
        """One of several."""

    @abstractmethod
    def tick(self, box: Locator) -> None: ...

    @abstractmethod
    def take_row(self, grid: str) -> None:
        """The first row of a list gets the focus; where it opens nothing beside the list, a letter acts on it then."""

    @abstractmethod
    def open_row(self, grid: str) -> None:
        """The first row of a list that opens beside it."""


class Mouse(Hands):
    """Clicks; types into fields, and presses Enter in them."""

    def open_palette(self) -> None:
        self.push(self.page.get_by_role("button", name="Search or run"))

    def go(self, place: str, *keys: str) -> None:
        self.push(self.page.get_by_role("navigation", name="Main navigation").get_by_role("link", name=place))

    def push(self, button: Locator) -> None:
        button.click()
        self.count.clicks += 1

    def fill(self, field: Locator, text: str) -> None:
        field.click()
        self.type(text)

    def pick(self, choice: Locator) -> None:
        self.push(choice.locator(".."))  # its label

    def tick(self, box: Locator) -> None:
        self.push(box)

    def take_row(self, grid: str) -> None:
        self.rows(grid).first.click(position={"x": 2, "y": 2})
        self.count.clicks += 1

    def open_row(self, grid: str) -> None:
        self.take_row(grid)


class Keyboard(Hands):
    """Has no mouse."""

    def open_palette(self) -> None:
        self.press("Control+k")

    def go(self, place: str, *keys: str) -> None:
        self.press(*keys)

    def push(self, button: Locator) -> None:
        self._reach(button)
        self.press("Enter")

    def fill(self, field: Locator, text: str) -> None:
        self._reach(field)
        self.type(text)

    def pick(self, choice: Locator) -> None:
        self._reach(choice, GROUP_HAS_FOCUS)
        self._until("ArrowDown", lambda: bool(choice.evaluate(HAS_FOCUS)))

    def tick(self, box: Locator) -> None:
        self._reach(box)
        self.press("Space")

    def take_row(self, grid: str) -> None:
        self.rows(grid).first.wait_for()
        self.press("j")
        expect(self.page.locator("[data-index]:focus")).to_have_count(1)

    def open_row(self, grid: str) -> None:
        self.take_row(grid)
        self.press("Enter")

    def _reach(self, target: Locator, reached: str = HAS_FOCUS) -> None:
        expect(target).to_be_enabled()
        key = "Shift+Tab" if target.evaluate(IS_BEFORE_FOCUS) else "Tab"
        self._until(key, lambda: bool(target.evaluate(reached)))

    def _until(self, key: str, done: Callable[[], bool]) -> None:
        for _ in range(STOPS):
            if done():
                return
            self.press(key)
        pytest.fail(f"{STOPS} times {key} led to {self.page.evaluate(FOCUSED)}")
