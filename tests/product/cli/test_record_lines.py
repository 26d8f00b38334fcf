"""Access records at a terminal: aligned, whole targets, and what is left out where there is no room."""

from __future__ import annotations

import io
from typing import Any

import pytest

from api.cli.remote.records import LINES, RecordPrinter
from api.cli.terminal import Output


def entry(**fields: Any) -> dict[str, Any]:
    return {
        "timestamp": "2020-01-31T12:00:00.123Z",
        "status_code": 200,
        "proxy_name": "the prx_1",
        "client_ip": "192.0.2.1",
        "user": "",
        "method": "GET",
        "target_url": "http://example.com/",
        "duration": 5,
        "bytes_in": 131,
        "bytes_out": 2048,
        "reason": "",
        "parent": "",
        **fields,
    }


def lines_of(*pages: list[dict[str, Any]], width: int = 200) -> tuple[list[str], RecordPrinter]:
    made = RecordPrinter(Output(out=io.StringIO()), width)
    return [line for page in pages for line in made.lines(page)], made


def test_records_of_several_nodes_say_which_has_them() -> None:
    made = RecordPrinter(Output(out=io.StringIO()), 200, {"meta": {"missing_nodes": []}})
    titles, line = made.lines([entry(node="fra1")])
    assert titles.split()[:2] == ["NODE", "TIME"]
    assert line.startswith("fra1  2020-01-31")


def test_records_stand_under_titles_with_their_day_and_units() -> None:
    (titles, *lines), _ = lines_of([entry(), entry(user="alice", status_code=502, reason="dns_error", parent="p1")])
    assert titles.split() == " ".join(each.title for each in LINES).split()
    assert lines[0].startswith("2020-01-31 12:00:00.123   200  the prx_1  192.0.2.1  -      GET     ")
    assert lines[0].endswith("   5  131 B  2.05 kB  http://example.com/")
    assert lines[1].endswith("http://example.com/ (dns_error) via p1")
    assert {line.index("http://") for line in lines} == {titles.index("TARGET")}


def test_later_records_stay_aligned_and_titles_come_once() -> None:
    lines, _ = lines_of([entry()], [entry()], [entry(user="a very long name")], [entry()])
    assert sum("TARGET" in line for line in lines) == 1
    assert lines[1] == lines[2]
    assert lines[3].index("http") == lines[4].index("http")


@pytest.mark.parametrize(("width", "left_out"), [(200, []), (110, ["IN"]), (80, ["MS", "IN", "OUT"])])
def test_figures_give_way_to_the_target(width: int, left_out: list[str]) -> None:
    (_, line), made = lines_of([entry()], width=width)
    assert made.left_out == left_out
    assert line.endswith("http://example.com/")


def test_what_a_terminal_would_obey_is_escaped() -> None:
    (_, line), _ = lines_of([entry(user="evil\x1b[2J", target_url="http://x/\u202e")])
    assert "\x1b" not in line
    assert r"evil\x1b[2J" in line
