"""`proxyfleet top`: the rates that it works out, its keys, and the screen at a real terminal."""

from __future__ import annotations

import io
import re
import signal
import time
from typing import Any

import psutil
import pytest
from rich.console import Console

from api.cli.client import Window
from api.cli.remote.top import TopView, drawn, sparkline, split, totals
from tests.kit.http_origins import Origin, serving
from tests.kit.product import Product
from tests.kit.tables import table
from tests.kit.wait import wait_until
from tests.product.cli.shell import Shell

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


def test_rates_are_what_counters_grew_by_between_two_polls() -> None:
    view = TopView()
    view.update(NOW, [proxy("a", 100), proxy("b", 5)], 10.0)
    assert [row["requests"] for row in view.rows] == [0, 0]
    view.update(NOW, [proxy("a", 104, 4096), proxy("b", 3), proxy("new", 7)], 12.0)
    assert {row["name"]: (row["requests"], row["out"]) for row in view.rows} == {
        "a": (2.0, 2048.0),
        "b": (0.0, 0.0),  # its counters began anew
        "new": (0.0, 0.0),
    }


def test_keys_sort_turn_round_scroll_and_end() -> None:
    view = TopView()
    view.update(NOW, [proxy("a", 0), proxy("b", 0)], 1.0)
    view.update(NOW, [proxy("a", 1), proxy("b", 9)], 2.0)
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


def window(limit: int, remaining: int, seconds: float) -> Window:
    return Window(limit, remaining, time.monotonic() + seconds)


def test_polls_are_as_far_apart_as_the_rate_limit_allows() -> None:
    assert window(600, 600, 60).pause(2.0) == 2.0
    assert window(1000, 550, 3000).pause(2.0) == pytest.approx(10.0, rel=0.01)  # a quarter is left to other commands
    assert window(100, 100, -1).pause(2.0) == 2.0


@table("remaining", [0, 1, 10, 250])
def test_no_poll_waits_longer_than_until_the_window_opens(remaining: int) -> None:
    assert 2750 < window(1000, remaining, 2797).pause(2.0) <= 2797


@table("width", [30, 60, 80, 120, 200])
def test_totals_are_never_broken_and_take_no_line_that_is_too_long(width: int) -> None:
    busy = {**NOW, "requests_per_second": 12345.67, "bandwidth_out": 123456789.0, "active_connections": 12345}
    lines = totals(busy, width)
    assert max(map(len, lines)) <= width
    assert len(lines) <= {30: 6, 60: 3, 80: 2, 120: 2, 200: 1}[width]
    assert "12345 connections" in "   ".join(lines)


def screen(view: TopView, width: int, height: int, unicode: bool = True) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    console.print(drawn(view, "http://127.0.0.1:8080", width, height, unicode), end="")
    assert isinstance(console.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue()).splitlines()


@table(("width", "height"), [(80, 24), (200, 50), (40, 12), (120, 8)])
def test_the_screen_fits_its_terminal_however_many_proxies_there_are(width: int, height: int) -> None:
    view = TopView()
    view.update(NOW, [proxy(f"proxy-{number}", number) for number in range(100)], 1.0)
    lines = screen(view, width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert "q quit" in lines[-1]
    if width >= 80:
        assert "of 100" in lines[-1]


def test_a_screen_of_80_columns_says_whole_how_far_apart_the_polls_are() -> None:
    view = TopView(pause=2797.0)
    view.update(NOW, [proxy("a", 1)], 1.0)
    assert "One poll in 2797 s: the rate limit allows no more" in "\n".join(screen(view, 80, 24))


def test_a_long_name_takes_the_place_of_no_figure() -> None:
    view = TopView()
    view.update(NOW, [proxy("n" * 100, 1), proxy("世" * 60, 1), proxy("evil\x1b[2J", 1)], 1.0)
    text = "\n".join(screen(view, 80, 24))
    assert text.count("unknown") == 3
    assert " 0 B    0 B" in text
    assert r"evil\x1b[2J" in text


def test_the_reasons_of_a_state_take_the_place_of_no_figure() -> None:
    view = TopView()
    runtime = {"state": "degraded", "problems": [{"reason": "certificate"}, {"reason": "upstreams"}]}
    view.update(NOW, [{**proxy("secure", 1), "runtime": runtime}], 1.0)
    lines = screen(view, 80, 24)
    assert "OUT/S" in "".join(lines)
    row = next(line for line in lines if line.startswith("secure"))
    assert "degraded" in row
    assert row.rstrip().endswith(" 0 B    0 B")
    assert "degraded (certificate, upstreams)" in "".join(screen(view, 120, 24))


def test_a_terminal_of_ascii_gets_ascii() -> None:
    view = TopView()
    view.update(NOW, [proxy("n" * 100, 1)], 1.0)
    assert "\n".join(screen(view, 80, 24, unicode=False)).isascii()


def test_keys_that_come_at_once_are_distinguished_and_a_gone_terminal_is_the_end() -> None:
    assert split(b"sr\x1b[A\x1bOBq") == [b"s", b"r", b"\x1b[A", b"\x1bOB", b"q"]
    assert split(b"\x1b[5~j") == [b"\x1b[5~", b"j"]
    assert split(b"\x1b") == [b"\x1b"]
    assert not TopView().pressed(split(b"")[0])


@pytest.mark.product
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_ends_it_and_the_terminal_is_as_it_was(shell: Shell, number: int, status: int) -> None:
    with shell.terminal("top") as terminal:
        before = terminal.modes
        terminal.until("q quit")
        assert terminal.modes != before
        terminal.process.send_signal(number)
        assert terminal.end() == status
        assert "\x1b[?1049l" in terminal.text
        assert terminal.modes == before
    assert "Traceback" not in terminal.text


@pytest.mark.product
def test_a_suspended_one_gives_the_terminal_back_and_draws_anew_when_continued(shell: Shell) -> None:
    with shell.terminal("top") as terminal:
        before = terminal.modes
        terminal.until("q quit")
        terminal.type("\x1a")
        stopped = psutil.Process(terminal.process.pid)
        wait_until(lambda: stopped.status() == psutil.STATUS_STOPPED, "it is suspended")
        assert terminal.modes == before
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until(lambda text: "q quit" in text.rpartition("\x1b[?1049h")[2] and text.count("\x1b[?1049h") == 2)
        terminal.type("q")
        assert terminal.end() == 0


@pytest.mark.product
def test_another_size_of_the_window_is_drawn_at_once(shell: Shell) -> None:
    with shell.terminal("top", "--interval", "1000") as terminal:
        terminal.until("q quit")
        assert "ADDRESS" in terminal.text
        seen = len(terminal.text)
        terminal.resize(24, 60)
        terminal.until(lambda text: "q quit" in text[seen:])
        assert "ADDRESS" not in terminal.text[seen:]


@pytest.mark.product
def test_the_screen_shows_what_happens_and_is_left_as_it_was_found(
    shell: Shell, product: Product, proxy: dict[str, Any]
) -> None:
    server = Origin()
    with serving(server), shell.terminal("top", "--interval", "0.5") as terminal:
        terminal.until(lambda text: proxy["name"] in text and "q quit" in text)
        assert "\x1b[?1049h" in terminal.text  # the other screen
        busy = re.compile(re.escape(proxy["name"]) + r"[^\n]*running[^\n]*\b[0-9.]*[1-9][0-9.]*  [^\n]*kB")
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
