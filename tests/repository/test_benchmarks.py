"""The pure parts of the benchmark: medians, bars, tables, who is left out, and growth over time."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from benchmarks import workers
from benchmarks.commands import MEASURES, chosen
from benchmarks.management import measures, servers
from benchmarks.processes import Missing, cpu_seconds
from benchmarks.report import OURS, PURE, Bar, Comparison, Row, cpu_rows, markdown, plain, save
from benchmarks.rounds import QUICK, Bench, Entrant, medians
from benchmarks.signin import REFERENCE, Outcome, rows_of, timed
from benchmarks.soak import Sample, growth

from api.services.proxy_cache import ProxyCache
from api.store import open_store
from config.files.paths import open_data_dir
from tests.kit.folders import FOLDERS

RESULTS = {
    OURS: {"cpu": 30.0, "actor": 28.0, "rate": 900.0},
    "tinyproxy": {"cpu": 300.0, "actor": 300.0, "rate": 90.0},
    "squid": {"cpu": 60.0, "actor": 60.0, "rate": 600.0},
}
RATE = ("rate", "requests/s")


@pytest.mark.parametrize(
    ("ours", "bar", "reached"),
    [
        (30.0, Bar(factor=0.5), True),
        (30.1, Bar(factor=0.5), False),
        (48.0, Bar(factor=0.8, at_least=True), True),
        (47.9, Bar(factor=0.8, at_least=True), False),
        (2.0, Bar(2.0), True),
        (2.1, Bar(2.0), False),
        (30.0, None, None),
        (None, Bar(2.0), None),
    ],
)
def test_a_bar_is_a_limit_or_a_factor_of_the_peer_from_above_or_below(
    ours: float | None, bar: Bar | None, reached: bool | None
) -> None:
    assert Row("measure", "us", ours, "squid", 60.0, bar).reached is reached


def test_nothing_is_judged_by_a_peer_that_was_left_out_and_the_table_says_so() -> None:
    without = {name: figure for name, figure in RESULTS.items() if name != "squid"}
    rows = Comparison("GET", "cpu", "us", {"squid": Bar(factor=0.6)}).rows(without)
    assert [(row.peer_name, row.peer, row.reached) for row in rows] == [
        ("squid", None, None),
        ("tinyproxy", 300.0, None),
    ]
    assert "left out" in plain(rows).splitlines()[2]


def test_the_judging_peer_comes_first_and_the_rate_stands_beside_the_cpu() -> None:
    first, *_, alone = cpu_rows("GET", "us", RESULTS, {"squid": Bar(factor=0.6)}, RATE)
    assert (first.peer_name, first.ratio, first.reached) == ("squid", 0.5, True)
    assert first.beside is not None
    assert (first.beside.ours, first.beside.peer) == (900.0, 600.0)
    assert (alone.measure, alone.ours, alone.reached) == ("GET, CPU of the actor alone", 28.0, None)


def test_every_row_is_a_line_of_the_plain_table_and_of_markdown() -> None:
    rows = cpu_rows("GET", "us", RESULTS, {"squid": Bar(factor=0.6)}, RATE)
    assert len(plain(rows).splitlines()) == len(markdown(rows).splitlines()) == 2 + len(rows)
    assert "| GET, CPU | us | 30 | squid | 60 | 0.50 | <= 0.6 x | yes | requests/s | 900 | 600 |" in markdown(rows)


def test_the_pure_version_stands_in_brackets_and_has_rows_of_its_own_for_its_goals() -> None:
    results = {**RESULTS, PURE: {"cpu": 45.0, "actor": 40.0, "rate": 700.0}}
    goals = {"squid": Bar(factor=0.5)}, RATE, {"squid": Bar(factor=0.7)}
    compiled, *others, pure, alone = cpu_rows("GET", "us", results, *goals)
    assert (compiled.ours, compiled.ratio, compiled.pure, compiled.pure_ratio) == (30.0, 0.5, 45.0, 0.75)
    assert "| GET, CPU | us | 30 (45) | squid | 60 | 0.50 (0.75) | <= 0.5 x | yes |" in markdown([compiled])
    assert [row.peer_name for row in others] == ["tinyproxy"]
    assert (pure.measure, pure.ours, pure.reached) == ("GET, CPU, pure", 45.0, False)
    assert (alone.ours, alone.pure) == (28.0, 40.0)


def test_a_goal_without_a_peer_is_judged_once() -> None:
    rows = Comparison("idle tunnel", "cpu", "KB", {"": Bar(35.0)}).rows(RESULTS)
    assert [(row.peer_name, row.reached) for row in rows] == [("", True), ("tinyproxy", None), ("squid", None)]


def test_a_name_of_a_measure_or_of_a_group_chooses_what_is_measured() -> None:
    assert chosen(["small", "bulk"], goals=False) == ["small", "connect", "socks5"]
    assert chosen(None, goals=False) == list(MEASURES)
    assert set(chosen(None, goals=True)) < set(MEASURES)


@pytest.mark.parametrize(("most", "reached"), [(1.5, None), (1.8, False)])
def test_the_rate_of_two_workers_is_judged_where_the_machine_leaves_room_for_it(
    most: float, reached: bool | None
) -> None:
    results = {OURS: {"rate": 150.0}, workers.ALONE: {"rate": 100.0, "most": 100.0 * most}}
    kind = workers.Kind("GET", lambda _bench, _subject: (1.0, 1.0), "us/request", 1e6, "requests/s")
    row = workers.rate_row("GET", kind, results)
    assert (row.ratio, row.reached) == (1.5, reached)
    assert row.beside is not None
    assert row.beside.ours == pytest.approx(most)


def test_json_holds_what_the_table_computes(tmp_path: Path) -> None:
    save([Row("GET", "us", 30.0, "squid", 60.0, Bar(factor=0.6))], {"machine": "this"}, tmp_path / "rows.json")
    saved = json.loads((tmp_path / "rows.json").read_text())
    row = saved["rows"][0]
    assert (saved["machine"], row["ratio"], row["bar_value"], row["reached"]) == ("this", 0.5, 36.0, True)


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

    bench = Bench(tmp_path, tmp_path, None, None, QUICK, 1024, {})  # type: ignore[arg-type]
    entrants = [Entrant("squid", missing), Entrant("bad", lambda: bad), Entrant("good", lambda: good)]  # type: ignore[arg-type, return-value]
    assert bench.in_turn(entrants, run, anew) == {"good": {"cpu": 1.0}}
    assert bench.versions == {"bad": "1.0", "good": "1.0"}
    assert (good.ended, bad.ended) == (1, 1)
    assert "left out: squid: squid is not installed" in capsys.readouterr().err


def _samples(values: list[int]) -> list[Sample]:
    return [Sample(float(at), value, 0, 0, 0, 0) for at, value in enumerate(values)]


def test_growth_after_warm_up_is_seen_and_growth_before_it_is_not() -> None:
    warming = [10 * min(at, 20) for at in range(101)]
    assert growth(_samples(warming), lambda sample: sample.uss) == pytest.approx((200, 0, 0))
    leaking = [value + max(0, at - 20) for at, value in enumerate(warming)]
    first, more, slope = growth(_samples(leaking), lambda sample: sample.uss)
    assert (first, more, slope) == pytest.approx((207.5, 65, 3600), abs=1)


def test_a_spike_is_no_growth() -> None:
    spiked = [100] * 101
    spiked[95] = 10_000
    assert growth(_samples(spiked), lambda sample: sample.uss)[1] == 0


def test_cpu_of_a_process_that_is_gone_counts_nothing() -> None:
    assert cpu_seconds([2**22 + 1]) == 0.0


def test_sign_ins_are_judged_by_the_two_medians_that_are_farthest_apart() -> None:
    taken = {REFERENCE: [0.1, 0.1, 9.0], "unknown name": [0.104, 0.104, 0.0], "disabled": [0.098, 0.098]}
    *kinds, judged = rows_of(taken)
    assert [(row.ours, row.peer) for row in kinds] == [(100.0, 100.0), (104.0, 100.0), (98.0, 100.0)]
    assert judged.ours == pytest.approx(6.12, abs=0.01)
    assert judged.reached is False
    assert rows_of({**taken, "disabled": [0.1]})[-1].reached is True


def test_each_kind_of_sign_in_is_tried_in_every_round_and_the_first_one_is_not_counted() -> None:
    order: list[str] = []

    def attempt(kind: str) -> Outcome:
        order.append(kind)
        return Outcome(401, kind)

    taken, answers = timed({"a": lambda: attempt("a"), "b": lambda: attempt("b")}, 3)
    assert {kind: len(times) for kind, times in taken.items()} == {"a": 3, "b": 3}
    assert [sorted(order[begin : begin + 2]) for begin in range(0, len(order), 2)] == [["a", "b"]] * 4
    assert answers == {"a": {Outcome(401, "a")}, "b": {Outcome(401, "b")}}


def test_the_bars_of_the_api_judge_ours_and_its_sign_ins_are_held_against_bcrypt_alone() -> None:
    figure = {f"{what} {name}": 10.0 for what in ("one", "page") for name in ("p99", "rate", "cpu")}
    figure |= {"create median": 61.0, "create worst": 90.0, "login p99": 50.0, "login rate": 900.0, "login refused": 0}
    figure |= {"login responded": 20.0, "login median": 99.0, "login most": 24.0, "login alone": 30.0}
    made = measures.rows({OURS: figure, measures.YARDSTICK: figure}, 10_000)
    reached = {(row.measure, row.peer_name): row.reached for row in made if row.bar}
    assert reached == {
        ("GET one proxy of 10,000, CPU", "fastapi"): True,
        ("GET one proxy of 10,000, p99", "fastapi"): True,
        ("GET one proxy of 10,000, 8 clients", "fastapi"): False,
        ("GET a page of 50 of 10,000, p99", "fastapi"): True,
        ("GET a page of 50 of 10,000, 8 clients", "fastapi"): False,
        ("create, durable, at 10,000", "fastapi"): False,
        ("GET one proxy during 20 sign-ins/s, p99", "fastapi"): True,
        ("sign-ins by 8 clients", "bcrypt alone"): True,
    }
    alone = measures.rows({OURS: figure}, 10_000)
    assert [row.reached for row in alone if row.measure == "create, durable, at 10,000"] == [False]


def test_proxies_that_the_benchmark_configures_are_those_of_the_product() -> None:
    with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as folder:
        ids = servers.configure(Path(folder) / "data", 5)
        store = open_store(open_data_dir(Path(folder) / "data"))
        found = ProxyCache(store).all()
        store.close()
    assert [proxy.record.id for proxy in found] == ids
    assert {proxy.record.status for proxy in found} == {"inactive"}
