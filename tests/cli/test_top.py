"""`proxyfleet top`: the rates that it works out, its keys, and the screen at a real terminal."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from api.cli.client import Allowance
from api.cli.top import View, sparkline
from tests.cli.shell import Shell
from tests.e2e.origins import Origin, serving
from tests.product import Product

NOW = dict.fromkeys(
    (
        *("requests_per_second", "active_connections", "error_rate", "response_time_avg", "response_time_p95"),
        *("bandwidth_in", "bandwidth_out", "cpu_usage", "memory_usage"),
    ),
    0.0,
)


def proxy(name: str, requests: int, bytes_out: int = 0) -> dict[str, Any]:
    stats = {"active_connections": 1, "total_requests": requests, "errors": 0, "bytes_in": 0, "bytes_out": bytes_out}
    return {"id": name, "name": name, "protocol": "http", "host": "::1", "port": 1, "runtime": None, "stats": stats}


def test_rates_are_what_counters_grew_by_between_two_looks() -> None:
    view = View()
    view.look(NOW, [proxy("a", 100), proxy("b", 5)], 10.0)
    assert [row["requests"] for row in view.rows] == [0, 0]
    view.look(NOW, [proxy("a", 104, 4096), proxy("b", 3), proxy("new", 7)], 12.0)
    assert {row["name"]: (row["requests"], row["out"]) for row in view.rows} == {
        "a": (2.0, 2048.0),
        "b": (0.0, 0.0),  # its counters began anew
        "new": (0.0, 0.0),
    }


def test_keys_sort_turn_round_scroll_and_end() -> None:
    view = View()
    view.look(NOW, [proxy("a", 0), proxy("b", 0)], 1.0)
    view.look(NOW, [proxy("a", 1), proxy("b", 9)], 2.0)
    assert [row["name"] for row in view.sorted_rows()] == ["b", "a"]
    assert view.pressed(b"r")
    assert [row["name"] for row in view.sorted_rows()] == ["a", "b"]
    while view.sort != "name":
        view.pressed(b"s")
    assert [row["name"] for row in view.sorted_rows()] == ["b", "a"]
    for _ in range(5):
        view.pressed(b"\x1b[B")
    assert view.offset == 1
    assert not view.pressed(b"q")


def test_a_sparkline_has_its_highest_bar_for_the_greatest() -> None:
    assert sparkline([0, 1, 2, 4]) == "▁▃▅█"
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"


def test_looks_are_as_far_apart_as_the_rate_limit_allows() -> None:
    assert Allowance(1000, time.time() + 60).pause(2.0, 2) == 2.0
    assert 100 < Allowance(30, time.time() + 3600).pause(2.0, 2) <= 360
    assert Allowance(0, time.time() + 30).pause(2.0, 1) > 29
    assert Allowance(0, time.time() - 1).pause(2.0, 1) == 2.0


@pytest.mark.product
def test_the_screen_shows_what_happens_and_is_left_as_it_was_found(
    shell: Shell, product: Product, proxy: dict[str, Any]
) -> None:
    server = Origin()
    with serving(server), shell.terminal("top", "--interval", "0.5") as terminal:
        terminal.until(lambda text: proxy["name"] in text and "q quit" in text)
        assert "\x1b[?1049h" in terminal.text  # the other screen
        busy = re.compile(re.escape(proxy["name"]) + r"[^\n]*running[^\n]*\b[0-9.]*[1-9][0-9.]*  [^\n]*KB")
        through = {"http": f"http://127.0.0.1:{proxy['port']}"}

        def traffic(text: str) -> bool:
            product.session.get(server.url("/megabyte"), proxies=through, timeout=10)
            return bool(busy.search(text)) or "MB" in text

        terminal.until(traffic)
        terminal.type("s")
        terminal.until("CONNECTIONS ▼")
        terminal.type("q")
        assert terminal.end() == 0
    assert "\x1b[?1049l" in terminal.text


@pytest.mark.product
def test_without_a_terminal_there_is_a_table_once(shell: Shell, proxy: dict[str, Any]) -> None:
    refused = shell("top")
    assert (refused.status, "--once" in refused.err) == (2, True)
    rows = shell.good("top", "--once", "--interval", "0.5").rows
    assert proxy["name"] in [row[0] for row in rows]
    assert proxy["name"] in [
        row["name"] for row in shell.good("top", "--once", "--interval", "0.5", "-o", "json").data["proxies"]
    ]
    assert shell("top", "--sort", "colour").status == 2
