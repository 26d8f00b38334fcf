"""Tables: each action of each row by keys alone (the grid and menu button patterns of ARIA, the letters of the help),
what opens beside a list and the way back to a place in it, columns by choice and by need, what each row did lately,
all that match, and paper."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect

from config.passwords import hash_password
from tests.kit import tables
from tests.kit.browser import Problems, SignIn, open_row, show
from tests.kit.name_servers import ScriptedNameServer, zone
from tests.kit.product import PASSWORD, Product
from tests.kit.wait import wait_until
from tests.kit.wire import Client, basic

USER = "keys-only"
NAME = "cached.example"
STOPS = 60
"""Presses of Tab until the list has the focus, and of an arrow until a row or an action has, at most."""
MANY = 105
"""More than a page of the API."""
FEW = 8
LOW: ViewportSize = {"width": 1280, "height": 420}
ON_ROW = "() => document.activeElement?.matches('[data-index]') ?? false"
ROW_TEXT = "() => document.activeElement?.closest('[data-index]')?.textContent ?? ''"
INDEX = "() => Number(document.activeElement.closest('[data-index]').dataset.index)"
SIDEWAYS = """() => [document.querySelector('[role=grid] .body'), document.documentElement]
  .map((each) => each.scrollWidth > each.clientWidth)"""
CUT = """() => [...document.querySelectorAll('[role=gridcell]')]
  .filter((each) => each.scrollWidth > each.clientWidth && getComputedStyle(each).overflow !== 'visible')
  .map((each) => each.textContent)"""
ON_PAPER = """() =>
  [...document.querySelectorAll('nav, .bar, [role=search], button:not(.value, [role=columnheader] *)')]
  .filter((each) => each.checkVisibility())
  .map((each) => each.outerHTML.slice(0, 120))"""
FOCUSED = "() => document.activeElement?.textContent?.trim() ?? ''"


@dataclass(frozen=True)
class Row:
    """A row of a list. Each of its actions has a letter, or none, and what is seen when it is done: a text of the page,
    or a part of another address."""

    path: str
    grid: str
    text: str
    actions: dict[str, tuple[str, str]]


ROWS = {
    "connection": Row(
        "/live",
        "Connections",
        "{target}",
        {
            "Only this client": ("", "client="),
            "Only this user": ("", "user="),
            "Only this target": ("", "target="),
            "Open the log of this client": ("l", "/ui/logs?client="),
            "Explain the decision": ("x", "/rules/try?proxy="),
            "Block 127.0.0.1": ("", "Block a host"),
            "Limit": ("", "Limit requests"),
            f"Disable {USER}": ("", "and its connections end at once"),
            "End": ("e", "Connection of 127.0.0.1 ended"),
        },
    ),
    "record": Row(
        "/logs",
        "Logs",
        "denied.example",
        {
            "Only Status: 403": ("", "status=403"),
            "Only Reason: ": ("", "reason="),
            "Only Method: GET": ("", "method=GET"),
            "Only Client: 127.0.0.1": ("", "client="),
            f"Only User: {USER}": ("", "user="),
            "Only Proxy: ": ("", "proxy="),
            "Explain the decision": ("x", "/rules/try?proxy="),
            "Live connections of this client": ("", "/ui/live?client="),
            "Block denied.example": ("", "Block a host"),
            "Limit": ("", "Limit requests"),
            f"Disable {USER}": ("", "and its connections end at once"),
        },
    ),
    "proxy": Row(
        "/proxies",
        "Proxies",
        "the-other-one",
        {"Restart": ("", "the-other-one restarted"), "Stop": ("", "the-other-one stopped")},
    ),
    "stopped proxy": Row("/proxies", "Proxies", "the-stopped-one", {"Start": ("", "the-stopped-one started")}),
    "account of a proxy": Row(
        "/proxies/{proxy}/accounts?kind=own",
        "Accounts",
        "removed",
        {
            "Edit": ("", "edit="),
            "Reset usage": ("", "Usage of removed reset"),
            "Explain a request": ("x", "/rules/try?proxy="),
            "Requests of this account": ("l", "/ui/logs?user="),
            "Delete": ("", "removed deleted"),
        },
    ),
    "credential": Row(
        "/accounts/{account}/credentials", "Credentials", "one job", {"Revoke one job": ("", "one job revoked")}
    ),
    "API key": Row(
        "/settings/api-keys",
        "API keys",
        "of a script",
        {"Replace": ("", "New API key"), "History": ("", "of a script"), "Revoke": ("", "of a script revoked")},
    ),
    "session": Row("/account", "Sessions", "curl", {"End session": ("e", "Session ended")}),
    "cached name": Row(
        "/settings/resolver", "Cached results", "{name}", {"Remove {name} from the cache": ("", "results removed")}
    ),
    "upstream": Row("/proxies/pools/exits", "State", "exit", {"Ban: exit": ("", "exit banned")}),
}
"""Actions that take the row away stand last."""
FORMS = ("Block ", "Limit", "Disable ")
"""How actions begin that open a form, which is not sent here."""
OPENED = {
    "/proxies": "Proxies",
    "/accounts": "Accounts",
    "/accounts/plans": "Plans",
    "/settings/users": "Users",
    "/settings/webhooks": "Webhooks",
    "/rules/lists": "Lists",
    "/rules": "Policies",
    "/proxies/pools": "Pools",
}
"""Lists whose rows are opened with Enter, longer than the window."""
BESIDE = {"/proxies": "the-running-one", "/accounts": "many-000", "/proxies/pools": "exits"}
"""Lists whose rows open beside them first, and a row of each."""
STATES = re.compile("^(running|active|.* of 1.*)$")


class Keyboard:
    """Moves about in a list without a mouse."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def press(self, *keys: str) -> None:
        for each in keys:
            self.page.keyboard.press(each)

    def to_list(self, grid: str) -> None:
        """Past the navigation, and by Tab."""
        self.rows(grid).first.wait_for()
        self.page.get_by_role("link", name="Skip to content").press("Enter")
        self._until("Tab", lambda: bool(self.page.evaluate(ON_ROW)), "the list")

    def to_row(self, grid: str, text: str, by_keys: bool = True) -> None:
        row = self.rows(grid).filter(has_text=text).first
        row.wait_for()
        if not by_keys:
            row.focus()
            return
        self.to_list(grid)
        self.press("Home")
        self._until("ArrowDown", lambda: text in self.page.evaluate(ROW_TEXT), f"the row of {text}", now=True)

    def menu(self, key: str = "Shift+F10") -> list[str]:
        """Open it; its actions."""
        self.press(key)
        items = self.page.get_by_role("menuitem")
        expect(items.first).to_be_focused()
        return [each.locator("span").last.inner_text() for each in items.all()]

    def choose(self, action: str) -> None:
        """In the menu that is open."""
        self._until("ArrowDown", lambda: self.page.evaluate(FOCUSED).startswith(action), action, now=True)
        self.press("Enter")

    def confirm(self, dialog: Locator, action: str) -> None:
        """What a dialog wants to have typed, and its button."""
        typed = dialog.get_by_role("textbox", name="Type ")
        if typed.count():
            expect(typed).to_be_focused()
            label = dialog.get_by_text("to confirm").inner_text()
            self.page.keyboard.type(label.removeprefix("Type ").removesuffix(" to confirm"))
        button = dialog.locator("button[type=submit]")
        self._until("Tab", lambda: button.evaluate("each => each === document.activeElement"), action, now=True)
        self.press("Enter")

    def rows(self, grid: str) -> Locator:
        return self.page.get_by_role("grid", name=grid).locator("[data-index]")

    def _until(self, key: str, done: Callable[[], bool], what: str, now: bool = False) -> None:
        if now and done():
            return
        for _ in range(STOPS):
            self.press(key)
            if done():
                return
        pytest.fail(f"{STOPS} times {key} lead to {self.page.evaluate(FOCUSED)[:80]!r}, not to {what}")


@dataclass(frozen=True)
class Fleet:
    product: Product
    names: dict[str, str]
    port: int
    targets: list[int]

    def path(self, row: Row) -> str:
        return row.path.format(**self.names)


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    """One product with something of each kind, more accounts, lists and records than a page has, and open
    connections."""
    with ExitStack() as open_ones:
        server = open_ones.enter_context(ScriptedNameServer(zone({NAME: ("127.0.0.1",)}, ttl=600)))
        environment = {
            "PROXYFLEET_WEBHOOKS__ALLOW_PRIVATE": "true",
            "PROXYFLEET_PROXY__DNS__SERVERS": json.dumps([server.address]),
            "PROXYFLEET_PROXY__DNS_ALLOW": '["127.0.0.0/8"]',
        }
        product = open_ones.enter_context(Product(environment))
        names = _made(product)
        port = int(names["port"])
        targets = []
        for _ in range(3):
            origin = open_ones.enter_context(socket.create_server(("127.0.0.1", 0)))
            targets.append(origin.getsockname()[1])
            client = open_ones.enter_context(Client(port))
            head = client.connect(f"127.0.0.1:{targets[-1]}", basic(USER, PASSWORD))
            assert b" 200 " in head, head
        names["target"] = f"127.0.0.1:{targets[1]}"
        with Client(port) as client:
            client.get(f"http://{NAME}:9/", basic(USER, PASSWORD))
            for number in range(MANY):
                client.get(f"http://denied.example/{number}", basic(USER, PASSWORD))
        wait_until(lambda: product.data("GET", "/logs?limit=1")["total"] >= MANY, "the records are there")
        yield Fleet(product, names, port, targets)


def _made(product: Product) -> dict[str, str]:
    account = {"username": USER, "password": PASSWORD}
    proxy = product.proxy(
        name="the-running-one",
        accounts=[account, {**account, "username": "removed"}],
        access={"deny_destinations": ["denied.example"]},
    )
    product.proxy(name="the-other-one")
    stopped = product.proxy(name="the-stopped-one")
    product.data("POST", f"/proxies/{stopped['id']}/stop")
    names = [f"named-{number}" for number in range(10)]
    upstreams = [{"protocol": "http", "host": "127.0.0.1", "port": 9}]
    hook = {"url": "http://127.0.0.1:9/", "events": ["account.expired"]}
    asleep = [
        {"name": each, "port": product.free_port(), "protocol": "http", "sleep_after": 60} for each in names[:FEW]
    ]
    document = {
        "kind": "proxyfleet.config",
        "version": 1,
        "proxies": asleep,
        "plans": [{"name": each} for each in names],
        "pools": [{"name": each, "upstreams": upstreams} for each in names],
        "policies": [{"name": each, "rules": []} for each in names],
        "webhooks": [{"name": each, **hook} for each in names],
        "lists": [{"name": f"list-{each}", "kind": "domains", "entries": ["a.example"]} for each in range(MANY)],
    }
    product.data("POST", "/config/import", document)
    for each in names:
        product.data("POST", "/users", {"username": each, "password": PASSWORD})
    hashed = hash_password(PASSWORD)
    many = [{"username": f"many-{each:03}", "password_hash": hashed, "proxies": {"all": True}} for each in range(MANY)]
    product.data("POST", "/accounts/batch", {"create": many})
    of_fleet = product.data(
        "POST", "/accounts", {"username": "with-a-job", "password": PASSWORD, "proxies": {"all": True}}
    )["account"]
    product.data("POST", f"/accounts/{of_fleet['id']}/credentials", {"name": "one job", "ttl": 3600})
    product.data("POST", "/api-keys", {"name": "of a script", "permissions": ["proxy.read"]})
    exits = [{"name": "exit", "protocol": "http", "host": "127.0.0.1", "port": 9}]
    product.data("POST", "/pools", {"name": "exits", "upstreams": exits})
    return {"proxy": proxy["id"], "port": str(proxy["port"]), "account": of_fleet["id"], "name": NAME}


@pytest.mark.parametrize("kind", ROWS)
def test_each_action_of_a_row_is_done_by_keys_alone(
    kind: str, fleet: Fleet, sign_in: SignIn, problems: Problems
) -> None:
    problems.allow("/logs/.* 429 ")  # counts, which the page asks for again
    row = ROWS[kind]
    page = sign_in(base_url=fleet.product.base_url)
    if kind == "session":
        _sign_in_again(fleet.product)
    failing: list[str] = []
    for number, (action, (letter, then)) in enumerate(row.actions.items()):
        with tables.Row(action, failing):
            show(page, fleet.path(row))
            _act(Keyboard(page), row, fleet.names, action, letter, by_keys=not number)
            if "=" in then:
                page.wait_for_url(lambda url, then=then: then in url)
            else:
                expect(page.get_by_text(then).first).to_be_visible()
    if failing:
        pytest.fail("\n\n".join(failing), pytrace=False)


def _act(keyboard: Keyboard, row: Row, names: dict[str, str], action: str, letter: str, by_keys: bool) -> None:
    """By the menu of the row or, where it has one, by the letter of the action. The way to the row is the same for all
    of its actions: one of them goes it `by_keys`."""
    keyboard.to_row(row.grid, row.text.format(**names), by_keys)
    wanted = [each.format(**names) for each in row.actions]
    found = keyboard.menu()
    assert len(found) == len(wanted)
    assert all(one.startswith(other) for one, other in zip(sorted(found), sorted(wanted), strict=True)), found
    if letter:
        keyboard.press("Escape")
        assert keyboard.page.evaluate(ON_ROW)  # the focus is back
        keyboard.press(letter)
    else:
        keyboard.choose(action.format(**names))
    dialog = keyboard.page.get_by_role("dialog")
    if not action.startswith(FORMS) and dialog.locator("button[type=submit]").count():
        keyboard.confirm(dialog, action)


def _sign_in_again(product: Product) -> None:
    body = {"username": "admin", "password": PASSWORD, "session": "cookie"}
    login = f"{product.base_url}/api/v1/auth/login"
    assert product.session.post(login, json=body, headers={"User-Agent": "curl/8"}, timeout=60).ok


def test_values_of_a_row_are_filters_by_keys_and_escape_leads_back_to_the_row(fleet: Fleet, sign_in: SignIn) -> None:
    page = sign_in(base_url=fleet.product.base_url)
    show(page, "/logs")
    keyboard = Keyboard(page)
    keyboard.to_row("Logs", "denied.example")
    row = page.evaluate(INDEX)
    keyboard.press("ArrowRight", "ArrowRight", "ArrowRight")
    assert page.evaluate(FOCUSED) != "403"
    keyboard.press("ArrowLeft")
    assert page.evaluate(FOCUSED) == "403"
    keyboard.press("ArrowDown")
    assert page.evaluate(FOCUSED) == "403"
    assert page.evaluate(INDEX) == row + 1
    keyboard.press("Escape")
    assert page.evaluate(ON_ROW)
    keyboard.press("ArrowRight", "ArrowRight", "Enter")
    page.wait_for_url(lambda url: "status=403" in url)


def test_after_the_end_of_a_connection_the_focus_is_on_the_next_row_and_no_second_one_ends(
    fleet: Fleet, sign_in: SignIn
) -> None:
    with ExitStack() as open_ones:
        origins = [open_ones.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        targets = sorted(f"127.0.0.1:{each.getsockname()[1]}" for each in origins)
        for target in targets:
            open_ones.enter_context(Client(fleet.port)).connect(target, basic(USER, PASSWORD))
        page = sign_in(base_url=fleet.product.base_url)
        show(page, "/live?sort=target")
        keyboard = Keyboard(page)
        keyboard.to_row("Connections", targets[0])
        after = page.evaluate(
            "() => document.activeElement.nextElementSibling.querySelector('[role=gridcell]').textContent"
        )
        keyboard.menu("Enter")
        keyboard.choose("End")
        expect(keyboard.rows("Connections").filter(has_text=targets[0])).to_have_count(0)
        page.wait_for_function("text => document.activeElement?.matches('[data-index]') && text", arg=after)
        assert after in page.evaluate(ROW_TEXT)
        keyboard.press("Enter")
        expect(page.get_by_role("menu", name="Actions: 127.0.0.1")).to_be_visible()
        keyboard.press("Escape")
        expect(keyboard.rows("Connections").filter(has_text=targets[1])).to_have_count(1)


@tables.table("path", OPENED)
def test_back_leads_to_the_place_in_the_list_and_to_its_row(path: str, fleet: Fleet, sign_in: SignIn) -> None:
    page = sign_in(base_url=fleet.product.base_url)
    page.set_viewport_size(LOW)
    show(page, path)
    keyboard = Keyboard(page)
    keyboard.to_list(OPENED[path])
    wanted = MANY - 1 if path in ("/accounts", "/rules/lists") else FEW
    more = page.locator(".older")
    wait_until(lambda: _last(page, keyboard) >= wanted and not more.count(), "all pages are loaded")
    keyboard.press("ArrowUp", "ArrowUp")
    place = page.evaluate("() => [scrollY, document.activeElement.dataset.index, document.activeElement.textContent]")
    assert place[0] > 0
    open_row(page.locator(":focus"))
    page.wait_for_function("path => !location.pathname.endsWith(path)", arg=path)
    expect(page.get_by_role("main").get_by_role("heading", level=1)).to_be_visible()
    page.go_back()
    if path in BESIDE:
        expect(page.get_by_role("dialog")).to_be_visible()  # as it was
        page.wait_for_function("top => Math.abs(scrollY - top) < 4", arg=place[0])  # a key ends the way to it
        keyboard.press("Escape")
    page.wait_for_function(  # elements of rows are used again: for a moment one has the number of the next row
        "([_top, index, text]) => document.activeElement?.dataset.index === index &&"
        " text.includes(document.activeElement.querySelector('[role=gridcell]:nth-child(2)').textContent)",
        arg=place,
    )
    page.wait_for_function("top => Math.abs(scrollY - top) < 4", arg=place[0])


def _last(page: Page, keyboard: Keyboard) -> int:
    """The index of the last row that is loaded now, which gets the focus."""
    keyboard.press("End")
    page.wait_for_function(ON_ROW)
    return int(page.evaluate(INDEX))


def test_each_column_that_is_ticked_is_there_and_the_table_scrolls_sideways_in_its_own_box(
    fleet: Fleet, sign_in: SignIn
) -> None:
    page = sign_in(base_url=fleet.product.base_url)
    show(page, "/logs?hidden=-")
    grid = page.get_by_role("grid", name="Logs")
    expect(grid.get_by_role("button", name="target denied").first).to_be_visible()
    page.get_by_role("button", name="Columns").click()
    ticked = page.get_by_role("menuitemcheckbox", checked=True).all_inner_texts()
    assert len(ticked) > 8
    titles = [each.strip() for each in grid.get_by_role("columnheader").all_inner_texts()]
    assert titles == [*map(str.strip, ticked), "Actions"]
    assert page.evaluate(SIDEWAYS) == [True, False]
    last = grid.get_by_role("columnheader", name=ticked[-1].strip())
    last.scroll_into_view_if_needed()
    expect(last).to_be_in_viewport()
    moved = "() => [...document.querySelectorAll('.head, [role=grid] .body')].map((each) => each.scrollLeft)"
    page.wait_for_function(f"() => {{ const [one, other] = ({moved})(); return one > 0 && one === other; }}")


@tables.table("path", BESIDE)
def test_a_row_opens_beside_the_list_and_the_way_back_and_escape_lead_to_it(
    path: str, fleet: Fleet, sign_in: SignIn, axe: Callable[..., None]
) -> None:
    page = sign_in(base_url=fleet.product.base_url)
    show(page, path)
    keyboard, beside = Keyboard(page), page.get_by_role("dialog", name=BESIDE[path])
    keyboard.to_row(OPENED[path], BESIDE[path], by_keys=False)
    keyboard.press("Enter")
    expect(beside).to_be_visible()
    expect(beside.get_by_text("Loading")).to_have_count(0)
    axe(page)
    address = page.url
    assert "open=" in address
    page.go_back()
    _is_back_at(page, BESIDE[path])
    page.go_forward()
    expect(beside).to_be_visible()
    keyboard.press("Escape")
    _is_back_at(page, BESIDE[path])
    keyboard.rows(OPENED[path]).filter(has_text=BESIDE[path]).get_by_text(STATES).first.click()
    expect(beside).to_be_visible()
    page.goto(address)  # from elsewhere
    expect(beside).to_be_visible()
    keyboard.rows(OPENED[path]).filter(has_text=BESIDE[path]).wait_for()  # what is beside the list may come before it
    keyboard.press("Escape")
    _is_back_at(page, BESIDE[path])
    assert "open=" not in page.url


def _is_back_at(page: Page, row: str) -> None:
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.wait_for_function(ON_ROW)
    assert row in page.evaluate(ROW_TEXT)


def test_columns_are_chosen_kept_by_the_browser_sent_with_the_address_and_reset(fleet: Fleet, sign_in: SignIn) -> None:
    page = sign_in(base_url=fleet.product.base_url)
    show(page, "/proxies?q=one")
    _columns_are(page, chosen=False)
    _choose_columns(page, "Created", "Address")
    _columns_are(page, chosen=True)
    assert re.search(r"q=one&columns=[\w%]*created", page.url)
    address = page.url
    page.goto("/ui/proxies")
    _columns_are(page, chosen=True)
    _choose_columns(page, "Reset columns")
    _columns_are(page, chosen=False)
    page.goto(address)
    _columns_are(page, chosen=True)
    page.goto("/ui/proxies")
    _columns_are(page, chosen=False)


def _columns_are(page: Page, chosen: bool) -> None:
    """*Created* in place of *Address*, or the other way."""
    head = page.get_by_role("grid", name="Proxies").get_by_role("columnheader")
    expect(head.filter(has_text="Created")).to_have_count(int(chosen))
    expect(head.filter(has_text="Address")).to_have_count(int(not chosen))


def _choose_columns(page: Page, *titles: str) -> None:
    for each in titles:
        page.get_by_role("button", name="Columns").click()
        page.get_by_role("menu", name="Columns").get_by_text(each, exact=True).click()


TOPS = "row => [...row.querySelectorAll('.cell:not(.box)')].map((cell) => Math.round(cell.getBoundingClientRect().top))"


def test_columns_are_as_wide_as_what_is_in_them(fleet: Fleet, sign_in: SignIn) -> None:
    page = sign_in(base_url=fleet.product.base_url)
    show(page, "/proxies?q=one")
    expect(page.get_by_role("grid").locator("[data-index]")).to_have_count(3)
    page.wait_for_function(f"() => ({CUT})().length === 0")
    name, state = (page.get_by_role("columnheader", name=each).bounding_box() for each in ("Name", "State"))
    assert name is not None
    assert state is not None
    assert state["width"] < 130 < name["width"]
    row = page.get_by_role("grid").locator("[data-index]").first
    before = row.evaluate(TOPS)
    row.locator("a").evaluate("name => { name.textContent = 'longer than all before '.repeat(40) }")
    first, *others = zip(before, row.evaluate(TOPS), strict=True)
    assert [now - then for then, now in others] == [0] * len(others), "a text that outgrows its column moves no other"
    assert abs(first[1] - first[0]) < 20, "and begins where it was"


@tables.table(
    ("path", "column", "clicks", "first"),
    [("/proxies?columns=name%2Crequests", "Requests", 1, "the-running-one"), ("/proxies/pools", "Name", 2, "named-9")],
)
def test_rows_are_in_the_order_of_any_number(
    path: str, column: str, clicks: int, first: str, fleet: Fleet, sign_in: SignIn
) -> None:
    page = sign_in(base_url=fleet.product.base_url)
    show(page, path)
    head = page.get_by_role("columnheader", name=column)
    for _ in range(clicks):
        head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    expect(page.get_by_role("grid").locator("[data-index]").first).to_contain_text(first)
    assert "sort=-" in page.url


def test_each_row_says_what_was_refused_in_the_last_hour(fleet: Fleet, sign_in: SignIn) -> None:
    page = sign_in(base_url=fleet.product.base_url)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "metrics/realtime" in request.url else None)
    show(page, "/proxies")
    rows = page.get_by_role("grid", name="Proxies").locator("[data-index]")
    refused = rows.filter(has_text="the-running-one").get_by_role("img")
    expect(refused).to_have_accessible_name(re.compile(r"^(?!0 )\d+ of \d+ refused or failed in the last hour"))
    expect(rows.filter(has_text="the-stopped-one").get_by_role("img")).to_have_accessible_name(
        re.compile(r"^0 of \d+ refused")
    )
    assert len([each for each in asked if each.count("recent=") > 2]) == len(asked) <= 3  # one for all rows
    show(page, f"/accounts?q={USER}")
    row = page.get_by_role("grid", name="Accounts").locator("[data-index]").filter(has_text=USER)
    expect(row.get_by_role("img")).to_have_accessible_name(re.compile(r"^(?!0 )\d+ of \d+ refused or failed"))


def test_all_accounts_that_match_are_selected_whether_they_are_loaded_or_not(fleet: Fleet, sign_in: SignIn) -> None:
    page = sign_in(base_url=fleet.product.base_url)
    show(page, "/accounts?q=many")
    page.get_by_role("checkbox", name="Select many-000").check()
    page.get_by_role("region", name="1 selected").get_by_role("button", name="Select all that match").click()
    chosen = page.get_by_role("region", name=f"{MANY} selected")
    expect(chosen).to_be_visible()
    chosen.get_by_role("button", name="Disable").click()
    expect(page.get_by_text(f"Done: {MANY} accounts")).to_be_visible()
    assert not fleet.product.data("GET", "/accounts?q=many-104")["accounts"][0]["enabled"]


@tables.table(
    "path", ["/accounts/usage?by=account", "/proxies/{proxy}/rules?target=http%3A%2F%2Fdenied.example%2F", "/accounts"]
)
def test_on_paper_are_all_loaded_rows_and_neither_navigation_nor_buttons(
    path: str, fleet: Fleet, sign_in: SignIn
) -> None:
    page = sign_in(base_url=fleet.product.base_url)
    show(page, path.format(**fleet.names))
    expect(page.get_by_role("main").locator(".card").first).to_be_visible()
    if path == "/accounts":
        expect(page.get_by_role("grid").locator("[data-index]").first).to_be_visible()
        assert page.get_by_role("grid").locator("[data-index]").count() < MANY
    page.emulate_media(media="print")
    page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(ON_PAPER) == []
    if path == "/accounts":
        assert page.get_by_role("grid").locator("[data-index]").count() >= 100
    page.evaluate("() => dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
