"""The pure parts of the benchmark: medians, goals, tables and who is left out."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from benchmarks import objects, traffic
from benchmarks.__main__ import ALL
from benchmarks.ours import OURS, PURE, store_proxies
from benchmarks.processes import BenchError, Missing, cpu_seconds
from benchmarks.rounds import QUICK, Bench, medians
from benchmarks.table import ROWS, Line, Row, lines_of, markdown, save

from actors.logs.record_schema import valid_rows
from api.objects.proxies.proxy_cache import ProxyCache
from api.store import open_store
from config.files.paths import open_data_dir
from tests.kit.folders import FOLDERS

RESULTS = {OURS: {"cpu": 30.0}, "haproxy-http": {"cpu": 20.0}, "squid": {"cpu": 60.0}}
ROW = Row("small", "cpu", "GET, CPU", "us", {"squid": "<= 0.6 x", PURE: "<= 0.7 x"})


def test_a_goal_is_a_limit_or_a_factor_of_the_peer_from_above_or_below() -> None:
    for ours, goal, reached in (
        (30.0, "<= 0.5 x", True),
        (30.1, "<= 0.5 x", False),
        (48.0, ">= 0.8 x", True),
        (47.9, ">= 0.8 x", False),
        (2.0, "<= 2", True),
        (2.1, "<= 2", False),
        (1000.0, ">= 1,000", True),
        (999.0, ">= 1,000", False),
        (30.0, "", None),
        (None, "<= 2", None),
    ):
        assert Line("measure", "us", ours, None, "squid", 60.0, goal).reached is reached, (ours, goal)


def test_every_goal_of_the_table_can_be_read_and_every_row_is_of_a_measure() -> None:
    for row in ROWS:
        assert row.measure in ALL
        for peer, goal in row.goals.items():
            line = Line(row.text, row.unit, 1.0, None, peer, 1.0, goal)
            assert (line.reached is None) is (goal == ""), row
    assert {row.measure for row in ROWS} == set(ALL)


def test_nothing_is_judged_by_a_peer_that_was_left_out_and_the_table_says_so() -> None:
    lines = list(ROW.lines({name: figure for name, figure in RESULTS.items() if name != "squid"}))
    found = {line.peer: (line.its, line.reached) for line in lines}
    assert found == {"squid": (None, None), "haproxy-http": (20.0, None)}
    assert "left out" in markdown(lines)


def test_every_line_is_one_of_the_table_in_markdown() -> None:
    lines = lines_of({"small": {name: {**figure, "p99": 1.0} for name, figure in RESULTS.items()}})
    assert len(markdown(lines).splitlines()) == 2 + len(lines)
    assert ["1 KiB GET keep-alive, CPU", "us/request", "30", "squid", "60", "0.50", "<= 0.5 x", "yes"] in cells(lines)


def cells(lines: list[Line]) -> list[list[str]]:
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in markdown(lines).splitlines()]


def test_the_pure_version_stands_in_brackets_and_has_a_line_of_its_own_for_its_goal() -> None:
    lines = list(ROW.lines({**RESULTS, PURE: {"cpu": 45.0}}))
    compiled = next(line for line in lines if line.peer == "squid" and line.pure)
    pure = next(line for line in lines if line.text == "GET, CPU, pure")
    assert (compiled.ours, compiled.ratio, compiled.pure, compiled.reached) == (30.0, 0.5, 45.0, True)
    assert cells([compiled])[-1][2:] == ["30 (45)", "squid", "60", "0.50", "<= 0.6 x", "yes"]
    assert (pure.ours, pure.reached) == (45.0, False)


def test_a_goal_without_a_peer_is_judged_once_and_a_figure_that_was_not_taken_has_no_line() -> None:
    row = Row("idle", "cpu", "idle tunnel", "KB", {"": "<= 35"})
    assert [(line.peer, line.reached) for line in row.lines(RESULTS)] == [
        ("", True),
        ("haproxy-http", None),
        ("squid", None),
    ]
    assert list(Row("idle", "memory", "idle tunnel", "KB", {"": "<= 35"}).lines(RESULTS)) == []


def test_the_rate_of_two_workers_is_judged_where_there_are_cores_for_them() -> None:
    two, one = {"rate": 150.0, "cpu": 21.0}, {"rate": 100.0, "cpu": 20.0}
    few = traffic.compared("kept", two, one, traffic.CORES - 1)
    assert few == {"kept cpu": 1.05, "kept rate": 1.5}
    assert traffic.compared("kept", two, one, traffic.CORES) == {**few, "kept judged": 1.5}


def test_json_holds_what_the_table_computes(tmp_path: Path) -> None:
    save([Line("GET", "us", 30.0, None, "squid", 60.0, "<= 0.6 x")], {"machine": "this"}, tmp_path / "rows.json")
    saved = json.loads((tmp_path / "rows.json").read_text())
    row = saved["rows"][0]
    assert (saved["machine"], row["ratio"], row["limit"], row["reached"]) == ("this", 0.5, 36.0, True)


def test_the_median_of_each_figure_is_taken_on_its_own() -> None:
    rounds = [{"cpu": 1.0, "rate": 9.0}, {"cpu": 3.0, "rate": 7.0}, {"cpu": 2.0, "rate": 1.0}]
    assert medians(rounds) == {"cpu": 2.0, "rate": 7.0}


class _Idle:
    """A subject that does nothing, and remembers that it was ended."""

    def __init__(self) -> None:
        self.ended = 0

    def version(self) -> str:
        return "1.0"

    def end(self) -> None:
        self.ended += 1


@pytest.mark.parametrize("anew", [False, True])
def test_a_peer_that_is_missing_or_fails_is_left_out_and_the_others_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], anew: bool
) -> None:
    good, bad = _Idle(), _Idle()

    def missing() -> _Idle:
        raise Missing("squid is not installed")

    def run(subject: object) -> dict[str, float]:
        if subject is bad:
            raise ConnectionResetError("by peer")
        return {"cpu": 1.0}

    bench = Bench(tmp_path, QUICK, 1024)
    entrants = {"squid": missing, "bad": lambda: bad, "good": lambda: good}
    assert bench.in_turn(entrants, run, anew) == {"good": {"cpu": 1.0}}
    assert bench.versions == {"bad": "1.0", "good": "1.0"}
    assert (good.ended, bad.ended) == (1, 1)
    assert "left out: squid: squid is not installed" in capsys.readouterr().err


def test_cpu_of_a_process_that_is_gone_counts_nothing() -> None:
    assert cpu_seconds([2**22 + 1]) == 0.0


def test_sign_ins_are_tried_in_every_round_and_judged_by_the_medians_that_are_farthest_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[str] = []

    def send(kind: str) -> tuple[int, str]:
        tried.append(kind)
        return (429 if kind.startswith("locked") else 401), "no"

    took = dict.fromkeys(objects.ATTEMPTS, 100.0) | {"unknown name": 104.0, "disabled": 98.0}
    monkeypatch.setattr(objects, "timed", lambda act: (took[act.args[0]], act()))
    assert objects.spread(send, 3) == pytest.approx(6.12, abs=0.01)
    assert sorted(tried) == sorted(4 * list(objects.ATTEMPTS))
    with pytest.raises(BenchError, match="different responses"):
        objects.spread(lambda kind: (401, kind), 1)


def test_proxies_that_the_benchmark_stores_are_those_of_the_product() -> None:
    bodies = [{"name": f"p-{number}", "port": 1024 + number, "protocol": "http"} for number in range(5)]
    with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as folder:
        ids = store_proxies(Path(folder) / "data", bodies, "inactive")
        store = open_store(open_data_dir(Path(folder) / "data"))
        found = ProxyCache(store).all()
        store.close()
    assert [proxy.record.id for proxy in found] == ids
    assert {proxy.record.status for proxy in found} == {"inactive"}


def test_records_that_the_benchmark_indexes_are_those_of_the_product() -> None:
    (batch,) = objects.records(objects.BATCH)
    assert len(valid_rows(batch)) == objects.BATCH
