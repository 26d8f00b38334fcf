"""What screens say, compared with what the API says, for a fleet that has everything: a working pool with a dead
upstream, one that nothing uses, a proxy of each kind of exit, one that sleeps, one that is stopped, a list that fails.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.kit.browser import show
from tests.kit.product import Product
from tests.kit.upstreams import closed_port
from tests.kit.wait import wait_until

WORDS = {"sleeping": "asleep", "up": "up", "down": "down", "unknown": "unknown"}
"""What the page calls states that it does not call as the API does."""
SHORT = 15_000
"""Milliseconds in which a screen has read the API again twice."""

Data = dict[str, Any]


class Fleet(NamedTuple):
    """Names of the objects, and ids of the proxies by what is special about them."""

    name: str
    proxies: dict[str, str]


class Row(NamedTuple):
    """At this screen `where` finds an element, whose text has what `said` makes of what the API responds at `api`.

    In both paths `{NAME}` stands for the objects of the fleet, `{pool}` and the like for the ids of proxies.
    """

    screen: str
    where: Callable[[Page], Locator]
    api: str
    said: Callable[[Data], str]


def step(name: str) -> Callable[[Page], Locator]:
    """Of the way of a request."""
    way = "Route of a request"
    return lambda page: page.get_by_role("list", name=way).get_by_role("listitem").filter(has_text=name)


def part(title: str) -> Callable[[Page], Locator]:
    """The innermost with this heading."""
    return lambda page: page.locator("section").filter(has=page.get_by_role("heading", name=title, exact=True)).last


def row(table: str, name: str) -> Callable[[Page], Locator]:
    """The row with this in one of its cells."""
    return lambda page: (
        page.get_by_role("grid", name=table)
        .get_by_role("row")
        .filter(has=page.get_by_role("gridcell"))
        .filter(has_text=name)
    )


def card(title: str) -> Callable[[Page], Locator]:
    return lambda page: page.locator("section").filter(has=page.get_by_role("heading", name=title, exact=True)).first


def usable(pool: Data) -> str:
    return f"{pool['status']['usable']} of {pool['upstream_count']}"


def exit_of(data: Data) -> str:
    """In words."""
    found = data["proxy"]["runtime"]["exit"]
    if found["kind"] == "direct":
        return "direct to targets"
    where = f"pool {found['pool']}" if found["kind"] == "pool" else "own upstreams"
    return f"{where}, {found['usable']} of {found['total']} usable"


def policy_of(data: Data) -> str:
    return data["proxy"]["policy"] or "none"


def pool_of(data: Data) -> Data:
    found: Data = data["pool"]
    return found


def upstream(data: Data, name: str) -> Data:
    return next(each for each in pool_of(data)["status"]["upstreams"] if each["name"] == name)


def listed(name: str, of: str) -> Callable[[Data], Data]:
    return lambda data: next(each for each in data[of] if each["name"] == name)


def state_of(data: Data) -> str:
    state = data["proxy"]["runtime"]["state"]
    return WORDS.get(state, state)


def rows(fleet: Fleet) -> Iterator[Row]:
    """Screen, element, path of the API, and what of its response the element says."""
    name, unused = fleet.name, f"{fleet.name}-unused"
    pools, lists = "/pools?limit=1000", "/lists?limit=1000"
    yield Row("/pools", row("Pools", f"{name} made"), pools, lambda data: usable(listed(name, "pools")(data)))
    yield Row(
        "/pools",
        row("Pools", f"{unused} made"),
        pools,
        lambda data: (
            f"{usable(found := listed(unused, 'pools')(data))}, {found['status']['unknown']} unknown, not in use"
        ),
    )
    yield Row("/pools/{NAME}", card("State"), "/pools/{NAME}", lambda data: f"Usable: {usable(pool_of(data))}")
    for kind in ("pools", "policies", "lists"):  # other screens lead to them by name
        yield Row(f"/{kind}/{{NAME}}", card("History"), f"/{kind}/{{NAME}}", lambda _: "created")
    for each in ("live", "dead"):
        yield Row(
            "/pools/{NAME}", row("State", each), "/pools/{NAME}", lambda data, each=each: upstream(data, each)["state"]
        )
    yield Row("/pools/{NAME}", card("State"), "/pools/{NAME}", lambda data: upstream(data, "dead")["last_error"])
    yield Row(
        "/pools/{NAME}-unused", card("State"), "/pools/{NAME}-unused", lambda data: f"Usable: {usable(pool_of(data))}"
    )
    yield Row(
        "/pools/{NAME}-unused",
        card("State"),
        "/pools/{NAME}-unused",
        lambda data: (
            ""
            if pool_of(data)["status"]["used"]
            else "No active proxy uses this pool, so it is not checked automatically."
        ),
    )
    for kind in ("pool", "own", "direct"):
        screen = f"/proxies/{{{kind}}}"
        yield Row(screen, step("Exit"), screen, exit_of)
        yield Row(screen, step("Rules"), screen, policy_of)
        yield Row(f"{screen}/rules", part("Policy of this proxy"), screen, policy_of)
    for index, each in enumerate(("live", "dead")):
        yield Row(
            "/proxies/{own}",
            row("Upstreams", each),
            "/proxies/{own}",
            lambda data, index=index: data["proxy"]["runtime"]["upstreams"][index]["state"],
        )
    yield Row(
        "/proxies/{own}",
        card("Upstreams"),
        "/proxies/{own}",
        lambda data: data["proxy"]["runtime"]["upstreams"][1]["last_error"],
    )
    for kind in fleet.proxies:
        yield Row(f"/proxies?q={name}-{kind}", row("Proxies", f"{name}-{kind}"), f"/proxies/{{{kind}}}", state_of)
    yield Row(
        "/lists",
        row("Lists", name),
        lists,
        lambda data: "failed" if listed(name, "lists")(data)["status"]["last_error"] else "",
    )


@pytest.fixture
def fleet(product: Product) -> Iterator[Fleet]:
    name, port = f"all-{secrets.token_hex(4)}", closed_port()
    live = product.proxy(name=f"{name}-live")
    made = [f"/proxies/{live['id']}"]
    upstreams = [
        {"name": each, "protocol": "http", "host": "127.0.0.1", "port": where}
        for each, where in (("live", live["port"]), ("dead", port))
    ]

    def put(collection: str, **body: Any) -> None:
        product.data("POST", f"/{collection}", {"name": name, **body})
        made.append(f"/{collection}/{body.get('name', name)}")

    put("pools", upstreams=upstreams, description=f"{name} made")
    put("pools", name=f"{name}-unused", upstreams=upstreams, description=f"{name}-unused made")
    put("lists", kind="domains", source={"url": f"http://127.0.0.1:{port}/", "format": "plain", "interval": 3600})
    put("policies", rules=[{"name": "all", "match": {}, "action": {"use": "deny"}}])
    proxies = {}
    for kind, fields in {
        "pool": {"pool": name, "policy": name},
        "own": {"upstreams": upstreams},
        "direct": {},
        "asleep": {"sleep_after": 1},
        "stopped": {},
    }.items():
        proxies[kind] = product.data(
            "POST", "/proxies", {"name": f"{name}-{kind}", "port": product.free_port(), "protocol": "http", **fields}
        )["proxy"]["id"]
        made.append(f"/proxies/{proxies[kind]}")
    product.data("POST", f"/proxies/{proxies['stopped']}/stop")

    def settled() -> bool:
        status = product.data("GET", f"/pools/{name}")["pool"]["status"]
        failing = product.data("GET", f"/lists/{name}")["list"]["status"]["last_error"]
        states = [
            product.data("GET", f"/proxies/{proxies[kind]}")["proxy"]["runtime"]["state"]
            for kind in ("own", "asleep", "stopped")
        ]
        counts = status["up"], status["down"]
        return counts == (1, 1) and bool(failing) and states == ["degraded", "sleeping", "stopped"]

    wait_until(settled, "everything is as it will be")
    yield Fleet(name, proxies)
    for path in reversed(made):
        product.api("DELETE", path)


def test_each_screen_says_what_the_api_says(page: Page, product: Product, fleet: Fleet) -> None:
    wrong, at = [], ""
    for screen, where, api, said in rows(fleet):
        place, path = (text.format(NAME=fleet.name, **fleet.proxies) for text in (screen, api))
        if place != at:
            show(page, place)
            at = place
        expected = said(product.data("GET", path))
        if not expected:
            wrong.append(f"{path}: the fleet is not as it should be")
            continue
        try:
            expect(where(page).first).to_contain_text(expected, timeout=SHORT)
        except AssertionError as error:
            wrong.append(f"{place}: {expected!r} of {path}: {str(error)[:400]}")
    assert not wrong, "\n".join(wrong)


def test_a_pool_that_nothing_uses_is_checked_by_its_button(page: Page, product: Product, fleet: Fleet) -> None:
    show(page, f"/proxies/pools/{fleet.name}-unused")
    state = card("State")(page)
    expect(state).to_contain_text("Usable: 0 of 2, 2 unknown, not in use")
    state.get_by_role("button", name="Check now").click()
    expect(state).to_contain_text("Usable: 1 of 2, not in use")
    status = product.data("GET", f"/pools/{fleet.name}-unused")["pool"]["status"]
    assert (status["usable"], status["up"], status["down"], status["used"]) == (1, 1, 1, False)
