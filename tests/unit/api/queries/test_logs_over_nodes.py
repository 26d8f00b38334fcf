"""Access records of a fleet: each node searches its own, and pages, tails, counts and exports are of all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.bus.messages.common import LOGS
from actors.bus.messages.records import CountLogs, LogPage, LogTailPage, QueryLogs, TailLogs
from actors.bus.records import RecordBatch
from api.bus_bridge import NodeMissing, on_node
from api.queries.records.logs_over_nodes import tail_of, tail_text
from tests.kit.clocks import Clock
from tests.kit.records import NOON, SearchedIndex, row
from tests.kit.tables import table
from tests.unit.api.objects.nodes.staged_nodes import FleetApi, two_nodes

NYC = on_node("nod_nyc", LOGS)
TIMES = "start_time=2027-01-01T00:00:00Z&end_time=2028-01-01T00:00:00Z"


class Indexer:
    """The log indexer of a node, on a real index."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.index = stack.enter_context(closing(SearchedIndex(folder, Clock(NOON))))
        self._batches = 0
        self.is_away = False
        self.slow_at: int | None = None
        """Its next page has had no time to read below these microseconds."""

    def add(self, *numbers: int) -> None:
        """Records of these seconds after noon."""
        self._batches += 1
        rows = [list(row(each, timestamp=NOON + each, user=f"u{each % 2}")) for each in numbers]
        self.index.commit(RecordBatch("s", 1, self._batches, 1, rows))

    def __call__(self, message: Any) -> Any:
        if self.is_away:
            return NodeMissing(NYC, "no response within 10 s")
        if isinstance(message, CountLogs):
            return self.index.count(message)
        if isinstance(message, TailLogs):
            newest = self.index.find(QueryLogs(0, 1e12, 1, 0, None, None, None)).upto
            return self.index.tail(message.query, newest if message.after is None else message.after)
        page = self.index.find(message)
        if self.slow_at is None:
            return page
        at, self.slow_at = self.slow_at, None
        kept = [each for each in zip(page.keys, page.rows, strict=True) if each[0][0] > at]
        return LogPage(
            tuple(each for _key, each in kept), page.total, True, (at, 2**63 - 1), page.upto, tuple(k for k, _ in kept)
        )


class Stage:
    def __init__(self, fra: FleetApi, folder: Path, stack: ExitStack) -> None:
        self.api = fra
        self.fra, self.nyc = (Indexer(folder / name, stack) for name in ("fra", "nyc"))
        fra.fleet.others |= {LOGS: self.fra, NYC: self.nyc}
        self.fra.add(*range(0, 20, 2))
        self.nyc.add(*range(1, 20, 2))

    def ask(self, path: str) -> Any:
        status, data = self.api.ask("GET", path)
        assert status == 200, data
        return data

    def pages(self, query: str = "", before_each: dict[int, Any] | None = None) -> Iterator[Any]:
        data = self.ask(f"/logs?{TIMES}&limit=4{query}")
        yield data
        while data["next_cursor"]:
            data = self.ask(f"/logs?limit=4{query}&cursor={data['next_cursor']}")
            yield data


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with two_nodes() as (fra, _nyc), ExitStack() as stack:
        yield Stage(fra, tmp_path, stack)


def numbers(data: Any) -> list[int]:
    return [int(each["target_url"].partition(":")[2]) for each in data["logs"]]


def test_pages_are_merged_by_time(stage: Stage) -> None:
    pages = list(stage.pages())
    assert [number for page in pages for number in numbers(page)] == list(range(19, -1, -1))
    assert {(page["total"], len(page["logs"])) for page in pages} == {(20, 4)}
    assert pages[0]["meta"] == {"missing_nodes": []}
    assert [each["node"] for each in pages[0]["logs"]] == ["nyc", "fra", "nyc", "fra"]


def test_records_that_come_meanwhile_are_on_no_page(stage: Stage) -> None:
    found = []
    for page in stage.pages():
        found += numbers(page)
        stage.fra.add(19 - len(found), 30)
        stage.nyc.add(19 - len(found), 31)
    assert found == list(range(19, -1, -1))


@table(
    "changed",
    [
        {"proxy_id": None},
        {"timestamp": 1e300},
        {"timestamp": "now"},
        {"detail": 5},
        {"duration": float("nan")},
        {"more": b"octets"},
    ],
)
def test_a_node_that_replies_what_no_node_has_recorded_is_missing(stage: Stage, changed: dict[str, Any]) -> None:
    def reply(message: Any) -> Any:
        page = stage.nyc(message)
        return replace(page, rows=tuple({**each, **changed} for each in page.rows))

    stage.api.fleet.others[NYC] = reply
    data = stage.ask(f"/logs?{TIMES}")
    assert {each["node"] for each in data["logs"]} == {"fra"}
    assert data["meta"] == {"missing_nodes": [{"node": "nyc", "reason": "unexpected reply LogPage"}]}


@table("node, found", [("nyc", 1), ("nod_nyc", 1), ("self", 0), ("fra", 0)])
def test_records_of_one_node_are_those_of_it(stage: Stage, node: str, found: int) -> None:
    assert [number for page in stage.pages(f"&node={node}") for number in numbers(page)] == list(
        range(18 + found, -1, -2)
    )


def test_a_page_may_begin_in_the_middle(stage: Stage) -> None:
    data = stage.ask(f"/logs?{TIMES}&limit=4&offset=7")
    assert (numbers(data), data["total"]) == ([12, 11, 10, 9], 20)
    assert numbers(stage.ask(f"/logs?limit=4&cursor={data['next_cursor']}")) == [8, 7, 6, 5]
    data = stage.ask(f"/logs?{TIMES}&limit=4&offset=70")
    assert (data["logs"], data["total"], data["has_more"]) == ([], 20, False)


@table("away", [[0], [1], [0, 1], [2, 3], [1, 3]])
def test_a_node_that_is_missing_for_some_pages_is_named_and_nothing_is_repeated_or_left_out(
    stage: Stage, away: list[int]
) -> None:
    found: list[int] = []
    cursor = ""
    for which in range(40):
        stage.nyc.is_away = which in away
        data = stage.ask(f"/logs?limit=2{cursor or '&' + TIMES}")
        missing = [{"node": "nyc", "reason": "no response within 10 s"}] if which in away else []
        assert data["meta"] == {"missing_nodes": missing}
        found += numbers(data)
        if not data["next_cursor"]:
            break
        cursor = f"&cursor={data['next_cursor']}"
    assert sorted(found) == list(range(20))


def test_what_a_node_had_no_time_for_is_not_overtaken(stage: Stage) -> None:
    stage.nyc.slow_at = int((NOON + 17) * 1e6)
    pages = list(stage.pages())
    assert numbers(pages[0]) == [19, 18]
    assert [number for page in pages for number in numbers(page)] == list(range(19, -1, -1))


def test_a_tail_has_what_is_new_on_any_node(stage: Stage) -> None:
    data = stage.ask("/logs?limit=1")
    stage.nyc.add(40)
    stage.fra.add(41)
    tail = stage.ask(f"/logs/tail?timeout=0&cursor={data['tail_cursor']}")
    assert [(each["node"], number) for each, number in zip(tail["logs"], numbers(tail), strict=True)] == [
        ("nyc", 40),
        ("fra", 41),
    ]
    stage.nyc.is_away = True
    stage.nyc.add(42)
    stage.fra.add(43)
    tail = stage.ask(f"/logs/tail?timeout=0&cursor={tail['next_cursor']}")
    assert numbers(tail) == [43]
    assert [each["node"] for each in tail["meta"]["missing_nodes"]] == ["nyc"]
    stage.nyc.is_away = False
    assert numbers(stage.ask(f"/logs/tail?timeout=0&cursor={tail['next_cursor']}")) == [42]


def test_counts_are_sums(stage: Stage) -> None:
    data = stage.ask(f"/logs/histogram?{TIMES}&buckets=500")
    assert (data["total"], sum(data["records"]), data["exact"]) == (20, 20, True)
    data = stage.ask(f"/logs/values?{TIMES}&field=user")
    assert [(each["value"], each["records"]) for each in data["values"]] == [("u0", 10), ("u1", 10)]
    stage.nyc.is_away = True
    data = stage.ask(f"/logs/histogram?{TIMES}")
    assert (data["total"], [each["node"] for each in data["meta"]["missing_nodes"]]) == (10, ["nyc"])
    data = stage.ask(f"/logs/histogram?{TIMES}&node=nyc")
    assert (data["total"], data["records"], data["exact"]) == (0, [], False)


def test_an_export_streams_the_merge(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.queries.records.log_search.EXPORT_PAGE_OF_NODES", 3)
    done = stage.api.client.simulate_get(f"/api/v1/logs/export?{TIMES}", headers=stage.api.headers)
    lines = [json.loads(each) for each in done.text.splitlines()]
    assert numbers({"logs": lines}) == list(range(19, -1, -1))
    assert {each["node"] for each in lines} == {"fra", "nyc"}
    stage.nyc.is_away = True
    done = stage.api.client.simulate_get(f"/api/v1/logs/export?{TIMES}", headers=stage.api.headers)
    assert (len(done.text.splitlines()), done.headers["X-Missing-Nodes"]) == (10, "nyc")


def test_cursors_of_one_machine_and_of_several_are_not_confused(stage: Stage) -> None:
    assert tail_of(tail_text({"nod_a": 7})) == {"nod_a": 7}
    for path in ("/logs?cursor=lwHLQdrSdIAAAADLQdrSeAQAAADPAAZlFyiYgAAFCc4AvGFO", "/logs/tail?cursor=kgIC"):
        status, *_ = stage.api.ask("GET", path)
        assert status == 400
    assert isinstance(stage.fra.index.tail(QueryLogs(0, 1, 1, 0, None, None, None), 0), LogTailPage)
