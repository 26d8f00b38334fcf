"""`proxyfleet logs`: searched, filtered and followed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.http_origins import Origin, serving
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.product.cli.shell import Shell

pytestmark = pytest.mark.product


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    server = Origin()
    with serving(server):
        yield server


def ask(product: Product, proxy: dict[str, Any], url: str) -> int:
    through = {"http": f"http://127.0.0.1:{proxy['port']}"}
    return product.session.get(url, proxies=through, timeout=60).status_code


def line_with(text: str) -> Callable[[str], bool]:
    """Is it in what was printed, with its whole line? Ctrl-C drops what was not read yet from a terminal."""
    return lambda seen: any(text in line and line.endswith("\n") for line in seen.splitlines(keepends=True))


def test_records_are_searched_and_filtered_by_the_name_of_a_proxy(
    shell: Shell, product: Product, proxy: dict[str, Any], origin: Origin
) -> None:
    for path in ("/hello", "/ip", "/missing"):
        ask(product, proxy, origin.url(path))
    of_proxy = ("logs", "--proxy", proxy["name"])
    wait_until(lambda: len(shell.good(*of_proxy).rows) == 3, "the records are found")
    targets = [row[5] for row in shell.good(*of_proxy).rows]
    assert targets == [origin.url(path) for path in ("/hello", "/ip", "/missing")]  # oldest first
    assert [row[5] for row in shell.good(*of_proxy, "--search", "missing").rows] == [origin.url("/missing")]
    for more in ("--status 404 --method get", "--status 4xx", "--target MISSING", "--outcome origin_error"):
        assert [row[5] for row in shell.good(*of_proxy, *more.split()).rows] == [origin.url("/missing")], more
    for none in ("--status 5xx", "--user alice", "--reason dns_error", "--method POST", "--outcome refused"):
        assert shell.good(*of_proxy, *none.split()).rows == [], none
    assert shell(*of_proxy, "--status", "6xx").status == 2
    assert shell.good(*of_proxy, "--since", "2020-01-01T00:00:00Z", "--until", "1h").rows == []
    fewer = shell.good(*of_proxy, "--limit", "2")
    assert ([row[5] for row in fewer.rows], "last 2 of 3" in fewer.err) == (targets[1:], True)
    assert [one["target_url"] for one in shell.good(*of_proxy, "-o", "json").data["logs"]] == targets


def test_all_records_of_a_search_are_exported_into_a_file(
    shell: Shell, product: Product, proxy: dict[str, Any], origin: Origin, tmp_path: Path
) -> None:
    for number in range(3):
        ask(product, proxy, origin.url(f"/hello?{number}"))
    wait_until(lambda: len(shell.good("logs", "--proxy", proxy["name"]).rows) == 3, "the records are found")
    file = tmp_path / "access.ndjson"
    done = shell.good("logs", "--proxy", proxy["name"], "--export", str(file))
    assert done.out == f"{file}: 3 records\n"
    assert [json.loads(line)["target_url"][-1] for line in file.read_text().splitlines()] == ["2", "1", "0"]
    assert shell.good("logs", "--proxy", proxy["name"], "--export", "-").out == file.read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"access.ndjson", "home"}
    assert shell("logs", "--status", "200", "--export", str(tmp_path / "no" / "x")).status == 1
    assert shell("logs", "--follow", "--export", str(tmp_path / "x")).status == 2


def test_what_comes_is_followed_each_record_once(
    shell: Shell, product: Product, proxy: dict[str, Any], origin: Origin
) -> None:
    ask(product, proxy, origin.url("/hello?before"))
    with shell.terminal("logs", "--follow", "--proxy", proxy["name"], "-o", "json") as terminal:
        wait_until(lambda: len(shell.good("logs", "--proxy", proxy["name"]).rows) == 1, "the first record is found")
        for number in range(3):
            ask(product, proxy, origin.url(f"/hello?{number}"))
            terminal.until(line_with(f"hello?{number}"))
        terminal.type("\x03")
        assert terminal.end() == 130
    entries = [json.loads(line) for line in terminal.text.splitlines() if line.startswith("{")]
    assert [entry["target_url"].partition("?")[2] for entry in entries] == ["before", "0", "1", "2"]


def test_following_goes_on_when_the_api_was_away(
    shell: Shell, product: Product, proxy: dict[str, Any], origin: Origin
) -> None:
    ask(product, proxy, origin.url("/hello?before"))
    wait_until(lambda: len(shell.good("logs", "--proxy", proxy["name"]).rows) == 1, "the first record is found")
    with shell.terminal("logs", "--follow", "--proxy", proxy["name"], "-o", "json") as terminal:
        terminal.until("before")
        before = product.actor("api").pid
        product.actor("api").kill()
        wait_until(lambda: product.actor("api").pid != before, "another API")
        product.wait_healthy()
        ask(product, proxy, origin.url("/hello?after"))
        terminal.until(line_with("hello?after"))
        terminal.type("\x03")
        assert terminal.end() == 130
    entries = [json.loads(line) for line in terminal.text.splitlines() if line.startswith("{")]
    assert [entry["target_url"].partition("?")[2] for entry in entries] == ["before", "after"]


@pytest.mark.parametrize("since", ["noon", "5", "5x", ""])
def test_a_time_that_can_not_be_read_is_a_matter_of_usage(shell: Shell, since: str) -> None:
    refused = shell("audit", "list", "--since", since or " ")
    assert (refused.status, "Such as 15m" in refused.err) == (2, True)


def test_records_name_their_proxy_and_the_line_for_people_does_too(shell: Shell, proxy: dict[str, Any]) -> None:
    shell("proxies", "test", proxy["name"], "--target", "http://127.0.0.1:1/named")
    table = wait_until(lambda: shell.good("logs", "--search", "named", "--proxy", proxy["id"]).rows, "the record")
    assert table[0][-1] == proxy["name"]
    printed = shell.screen("logs", "--search", "named", "--proxy", proxy["id"], NO_COLOR="1").out
    titles, line = printed.splitlines()[:2]
    assert titles.startswith("TIME (UTC)")
    assert f" 502  {proxy['name']}  127.0.0.1 " in line
    assert line.index("http://127.0.0.1:1/named") == titles.index("TARGET")


def test_who_may_read_records_alone_sees_the_names_of_their_proxies(shell: Shell, proxy: dict[str, Any]) -> None:
    shell("proxies", "test", proxy["name"], "--target", "http://127.0.0.1:1/idonly")
    wait_until(lambda: shell.good("logs", "--search", "idonly").rows, "the record")
    key = shell.good("keys", "create", "reader", "--permission", "metrics.read").out.strip()
    assert shell.good("logs", "--search", "idonly", "--key", key).rows[0][-1] == proxy["name"]
    shell.good("keys", "revoke", "reader", "--yes")
