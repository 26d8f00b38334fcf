"""The screens of the dashboard, by the tables of its areas (`areas.ts`) and of the tabs of an object (`tabs.ts`)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.kit.folders import ROOT

TABLE = ROOT / "api" / "ui" / "source" / "src" / "areas.ts"


@dataclass(frozen=True, slots=True)
class Screen:
    """A route. `path` is below `/ui` and may have parameters, such as `/proxies/:id/:tab?`."""

    area: str
    path: str
    permission: str | None
    """What the area and the route need; None: every user may see it."""
    tab: str = ""
    """The last part of the address; empty for the first tab, and where there are none."""

    @property
    def needs_object(self) -> bool:
        """Whether it is a screen about one object."""
        return re.search(r":\w+(?!\w*\?)(/|$)", self.path) is not None

    @property
    def plain_path(self) -> str:
        """Without the parameters that may be left out."""
        return re.sub(r"/:\w+\?", "", self.path) or "/"

    @property
    def pattern(self) -> re.Pattern[str]:
        """Of the paths that show it."""
        return re.compile("/ui" + re.sub(r":\w+", r"[^/?]+", self.plain_path) + r"(\?.*)?")

    @property
    def name(self) -> str:
        """Short and its own, such as `proxies` and `proxies-id`."""
        words = [*re.findall(r"\w+", self.plain_path), self.tab]
        return "-".join(filter(None, words)) or self.area


def screens() -> list[Screen]:
    """All of them, in order."""
    return _read(TABLE.read_text())


def _read(source: str) -> list[Screen]:
    table = source.partition("AREAS: Area[] = [")[2]
    areas = re.split(r"\bkey: \"", table)[1:]
    return [screen for area in areas for screen in _of(area)]


def _of(area: str) -> list[Screen]:
    key = area.partition('"')[0]
    head, _, routes = area.partition("routes: [")
    needed = _permission(head)
    each = re.findall(r"\{ *path: \"([^\"]+)\"([^{}]*)", routes)
    return [Screen(key, path, _permission(rest) or needed, tab) for path, rest in each for tab in _tabs(key, path)]


def _tabs(area: str, path: str) -> list[str]:
    file = TABLE.parent / "screens" / area / "tabs.ts"
    if not path.endswith("/:tab?") or not file.exists():
        return [""]
    keys: list[str] = re.findall(r"\{ *key: \"([\w-]+)\"", file.read_text())
    return ["", *keys[1:]]


def _permission(text: str) -> str | None:
    found = re.search(r"permission: \"([^\"]+)\"", text)
    return found[1] if found else None
