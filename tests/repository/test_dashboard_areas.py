"""The tables of the dashboard are read whole: else a screen would be left out of the tests of every screen."""

from __future__ import annotations

import re

from tests.kit.dashboard_areas import TABLE, screens


def test_each_screen_of_the_table_is_known_once() -> None:
    areas = TABLE.read_text().partition("AREAS: Area[]")[2]  # pages without the frame stand before it
    loaded = re.findall(r"import\(\"\./screens/", areas)
    routes = [(screen.area, screen.path) for screen in screens() if not screen.tab]
    assert len(routes) == len(set(routes)) == len(loaded) > 0


def test_each_name_of_a_screen_is_its_own() -> None:
    names = [screen.name for screen in screens()]
    assert len(set(names)) == len(names)


def test_what_a_screen_needs_is_its_own_permission_or_that_of_its_area() -> None:
    needed = {screen.name: screen.permission for screen in screens()}
    assert (needed["overview"], needed["proxies"], needed["proxies-id"]) == ("metrics.read", "proxy.read", "proxy.read")
