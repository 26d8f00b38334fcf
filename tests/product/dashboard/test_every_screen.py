"""Each screen of the table of areas, with texts of others in every name: nothing of them becomes markup, axe finds no
violation, nor too little contrast in another theme, and pictures of every width obey the rules of
`tests/kit/picture_rules.py`."""

from __future__ import annotations

import base64
import re
import socket
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from config.model import json_patterns
from tests.kit.browser import Problems, SignIn, open_row, settle, show, wait_until_loaded
from tests.kit.dashboard_areas import Screen, screens
from tests.kit.hostile_texts import PLANTED, TEXTS
from tests.kit.picture_rules import broken
from tests.kit.ports import free_port
from tests.kit.product import PASSWORD, Product
from tests.kit.tables import Row

AREAS = {area: list(of_area) for area, of_area in groupby(screens(), key=lambda screen: screen.area)}
COLOURS = ("color-contrast", "link-in-text-block")
"""Rules of axe that depend on the theme."""
PAIRS = """() => {
  const known = new Map([[null, { behind: '', faint: '' }]]);
  const around = (each) => {
    if (!known.has(each)) {
      const { backgroundColor, backgroundImage, opacity, filter } = getComputedStyle(each);
      const outer = around(each.parentElement);
      const faint = opacity === '1' && filter === 'none' ? outer.faint : `${opacity} ${filter} in ${outer.faint}`;
      let { behind } = outer;
      if (/^rgb\\(/.test(backgroundColor)) behind = backgroundColor; // nothing is seen through it
      else if (!/, 0\\)$/.test(backgroundColor)) behind = `${backgroundColor} on ${behind}`;
      if (backgroundImage !== 'none') behind = `${backgroundImage} on ${behind}`;
      known.set(each, { behind, faint });
    }
    return known.get(each);
  };
  const says = (each) => each.checkVisibility() && (each.matches('input, select, textarea') ||
    [...each.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim()));
  const pair = (each) => {
    const { color, fontSize, fontWeight, textDecorationLine } = getComputedStyle(each);
    const size = parseFloat(fontSize);
    const large = size >= 24 || (size >= 18 && fontWeight >= 700); // for which less will do
    const beside = each.matches('a') ? `${getComputedStyle(each.parentElement).color} ${textDecorationLine}` : '';
    const { behind, faint } = around(each);
    return [color, large, beside, behind, faint].join('; ');
  };
  return [...new Set([...document.body.querySelectorAll('*')].filter(says).map(pair))];
}"""
"""The colours of the texts of a page and of what is behind them: what their contrast depends on."""
SHOWING = {
    *("/proxies", "/proxies/pools", "/accounts", "/accounts/plans", "/rules", "/rules/policies", "/rules/lists"),
    *("/live", "/logs", "/changes", "/account"),
    *("/settings/users", "/settings/api-keys", "/settings/webhooks"),
}
"""Screens that have such names in any case."""
RUNNING = 3
"""Proxies up to this number have a process: by creation and by name the first one, whose screens are visited."""
NO_ACCOUNT = str.maketrans("/:", "|;")
"""What no name of an account may have."""
TURNS = re.compile(f"[{json_patterns.TURNS}]")


@pytest.fixture(scope="module")
def seen() -> set[str]:
    """Pairs of colours in which a screen had enough contrast."""
    return set()


@pytest.fixture(scope="module")
def hostile() -> Iterator[Product]:
    """A product whose objects, records and live connections have hostile names."""
    with Product({"PROXYFLEET_WEBHOOKS__ALLOW_PRIVATE": "true"}) as product, socket.create_server(("", 0)) as origin:
        for number, text in enumerate(TEXTS.values()):
            for path, body in _objects(text, number):
                made = product.api("POST", path, body)
                assert made.status_code in (201, 400), f"{path}: {made.text}"
        user = f"{TEXTS['handler']} of one proxy"
        proxy = {"accounts": [{"username": user, "password": PASSWORD}], "settings": {"timeout": 3_600}}
        port = product.proxy(name=user, **proxy)["port"]
        for text in TEXTS.values():
            _refused(port, text)
            _signs_in(product, text)
        with _tunnel(port, user, origin.getsockname()[1]):
            yield product


def _objects(text: str, number: int) -> list[tuple[str, dict[str, Any]]]:
    """One of each kind with this name. Not every kind takes every text."""
    tags, here = [text[:64]], {"name": text, "description": text}
    shared = {"name": f"shared-{number}", "description": text}
    proxy = {**here, "tags": tags, "port": free_port(), "protocol": "http", "sleep_after": 60 * (number > RUNNING)}
    account = {
        "username": text.translate(NO_ACCOUNT),
        "proxies": {"all": True},
        "metadata": {"note": text},
        "tags": tags,
    }
    return [
        ("/proxies", proxy),
        ("/plans", here),
        ("/users", {"username": text[:64], "password": PASSWORD}),
        ("/accounts", account),
        ("/api-keys", {"name": text, "permissions": ["proxy.read"]}),
        (
            "/pools",
            {
                **shared,
                "upstreams": [{"protocol": "http", "host": "127.0.0.1", "port": 9, "labels": {"at": text[:64]}}],
            },
        ),
        ("/lists", {**shared, "kind": "domains", "entries": [f"{PLANTED}.example"]}),
        (
            "/policies",
            {**shared, "rules": [{"name": text[:64], "match": {}, "action": {"use": "deny", "reason": text}}]},
        ),
        ("/webhooks", {"name": text, "url": f"http://127.0.0.1:9/{number}", "events": ["account.expired"]}),
    ]


def _refused(port: int, text: str) -> None:
    """A request with such a user, target and program, which leaves a record."""
    path = text.encode("ascii", "ignore").decode().replace(" ", "+")
    head = f"GET http://x.test/{path} HTTP/1.1\r\nHost: x.test\r\n{_credentials(text)}User-Agent: {path}\r\n"
    with socket.create_connection(("127.0.0.1", port), 60) as client:
        client.sendall(f"{head}Connection: close\r\n\r\n".encode())
        client.recv(65_536)


def _signs_in(product: Product, text: str) -> None:
    """A session of a program that says so of itself, and a sign-in under this name, which fails."""
    for username, status in (("admin", 200), (text, 401)):
        program = {"User-Agent": text.encode("ascii", "ignore").decode()}
        body = {"username": username, "password": PASSWORD if status == 200 else "wrong"}
        response = product.session.post(f"{product.base_url}/api/v1/auth/login", json=body, headers=program, timeout=30)
        assert response.status_code == status, response.text


def _tunnel(port: int, user: str, target: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), 60)
    client.sendall(f"CONNECT 127.0.0.1:{target} HTTP/1.1\r\nHost: x\r\n{_credentials(user)}\r\n".encode())
    assert b" 200 " in client.recv(65_536)
    return client


def _credentials(user: str) -> str:
    return f"Proxy-Authorization: Basic {base64.b64encode(f'{user}:{PASSWORD}'.encode()).decode()}\r\n"


@pytest.mark.parametrize("area", AREAS)
def test_screens_show_hostile_texts_as_text_are_accessible_in_every_theme_and_fit_every_width(
    area: str, hostile: Product, sign_in: SignIn, axe: Callable[..., None], seen: set[str], problems: Problems
) -> None:
    page = sign_in(base_url=hostile.base_url)
    failing: list[str] = []
    objects: dict[str, str] = {}
    for screen in AREAS[area]:
        with Row(screen.name, failing):
            before = len(problems.unexpected)
            _open(page, screen, objects)
            _shows_texts_alone(page, screen)
            _is_accessible(page, axe, seen)
            assert broken(page) == {}
            assert problems.unexpected[before:] == []
    if failing:
        pytest.fail("\n\n".join(failing), pytrace=False)


def _shows_texts_alone(page: Page, screen: Screen) -> None:
    if screen.path in SHOWING:
        expect(page.get_by_role("main").get_by_text(PLANTED).first).to_be_visible()
    assert page.locator(f"#{PLANTED}").count() == 0
    assert not TURNS.search(page.evaluate("document.documentElement.textContent"))


def _is_accessible(page: Page, axe: Callable[..., None], seen: set[str]) -> None:
    """By all rules of axe; in the other themes by those of colours, if texts have some that no screen had before."""
    try:
        axe(page)
        for theme in ("dark", "contrast"):
            page.evaluate("(theme) => { document.documentElement.dataset.theme = theme }", theme)
            settle(page)
            pairs = set(page.evaluate(PAIRS))
            if not pairs <= seen:
                axe(page, *COLOURS)
                seen |= pairs
    finally:
        page.evaluate("delete document.documentElement.dataset.theme")


@pytest.mark.parametrize(
    ("preference", "shown"),
    [
        ({"color_scheme": "dark"}, "getComputedStyle(document.body).color"),
        ({"contrast": "more"}, "getComputedStyle(document.documentElement).getPropertyValue('--muted')"),
    ],
    ids=["dark", "contrast"],
)
def test_the_preference_of_the_system_selects_a_theme_with_enough_contrast(
    page: Page, axe: Callable[..., None], preference: dict[str, Any], shown: str
) -> None:
    show(page, "/proxies")
    wait_until_loaded(page)
    usual = page.evaluate(shown)
    page.emulate_media(**preference)
    assert page.evaluate(shown) != usual
    axe(page, *COLOURS)


def _open(page: Page, screen: Screen, objects: dict[str, str]) -> None:
    """Go there; to a screen about one object by the list of its area, or by its path in `objects`."""
    if not screen.needs_object:
        objects[screen.path] = screen.plain_path
    elif screen.path not in objects:
        show(page, _list_of(screen))
        wait_until_loaded(page)
        rows = page.get_by_role("main").locator("[data-index]")
        row = (rows.filter(has_text=PLANTED) if _list_of(screen) in SHOWING else rows).first
        open_row(row)
        page.wait_for_url(screen.pattern)
        wait_until_loaded(page)
        objects[screen.path] = page.url.partition("/ui")[2]
        if not screen.tab:
            return
    show(page, "/".join(filter(None, (objects[screen.path], screen.tab))))
    wait_until_loaded(page)


def _list_of(screen: Screen) -> str:
    return screen.path.partition("/:")[0]
