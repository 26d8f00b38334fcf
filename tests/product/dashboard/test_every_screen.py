"""Each screen of the table of areas, with texts of others in every name: nothing of them becomes markup, axe finds no
violation in any theme, and pictures of every width obey the rules of `tests/kit/picture_rules.py`."""

from __future__ import annotations

import base64
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from config.model import json_patterns
from tests.kit.browser import SignIn
from tests.kit.dashboard_areas import Screen, screens
from tests.kit.hostile_texts import PLANTED, TEXTS
from tests.kit.picture_rules import broken
from tests.kit.ports import free_port
from tests.kit.product import PASSWORD, Product

THEMES: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "high contrast": {"color_scheme": "light", "contrast": "more"},
    "dark with high contrast": {"color_scheme": "dark", "contrast": "more"},
}
SHOWING = {
    *("/proxies", "/accounts", "/plans", "/webhooks", "/keys", "/logs", "/connections", "/audit"),
    *("/users", "/sessions", "/lists", "/policies", "/pools"),
}
"""Screens that have such names in any case."""
NO_ACCOUNT = str.maketrans("/:", "|;")
"""What no name of an account may have."""
TURNS = re.compile(f"[{json_patterns.TURNS}]")


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
    proxy = {**here, "tags": tags, "port": free_port(), "protocol": "http"}
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


@pytest.mark.parametrize("screen", screens(), ids=lambda screen: screen.name)
def test_a_screen_shows_hostile_texts_as_text_is_accessible_in_every_theme_and_fits_every_width(
    screen: Screen, hostile: Product, sign_in: SignIn, axe: Callable[[Page], None]
) -> None:
    page = sign_in(base_url=hostile.base_url)
    if screen.path == "/audit":
        _signs_in(hostile, TEXTS["handler"])  # the sign-ins of the tests before fill the list
    _open(page, screen)
    if screen.path in SHOWING:
        expect(page.get_by_role("main").get_by_text(PLANTED).first).to_be_visible()
    assert page.locator(f"#{PLANTED}").count() == 0
    assert not TURNS.search(page.evaluate("document.documentElement.textContent"))
    for theme in THEMES.values():
        page.emulate_media(**theme)
        axe(page)
    page.evaluate("document.documentElement.dataset.theme = 'contrast'")
    axe(page)
    assert broken(page) == {}


def _open(page: Page, screen: Screen) -> None:
    """Go there; to a screen about one object by the list of its area."""
    if not screen.needs_object:
        page.goto(f"/ui{screen.plain_path}")
    else:
        page.goto(f"/ui{_list_of(screen)}")
        _loaded(page)
        rows = page.get_by_role("main").locator("[data-index]")
        row = (rows.filter(has_text=PLANTED) if _list_of(screen) in SHOWING else rows).first
        row.focus()
        row.press("Enter")
        page.wait_for_url(screen.pattern)
        if screen.tab:
            page.goto(f"{page.url}/{screen.tab}")
    _loaded(page)


def _list_of(screen: Screen) -> str:
    return screen.path.partition("/:")[0]


def _loaded(page: Page) -> None:
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_role("status").filter(has_text="Loading")).to_have_count(0)
