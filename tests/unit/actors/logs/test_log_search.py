"""Searches of the log compared with the plainest implementation: every record is read, every text is compared."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.bus.messages.records import CountLogs, LogPage, QueryLogs
from actors.bus.records import RecordBatch
from actors.logs import blocks, dayfile, index, search
from config.model.choices import LOG_LEVELS
from config.text.access_fields import ACCESS_FIELDS, message_of
from tests.kit.clocks import Clock
from tests.kit.folders import FOLDERS
from tests.kit.records import NOON, SearchedIndex, row

Record = dict[str, Any]
DAY = 86_400.0
EVER = {"start": 0.0, "end": NOON * 2, "limit": 100, "offset": 0, "level": None, "search": None, "proxy_ids": None}


class Log:
    """An index with small blocks, and beside it a list of all that is in it."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS)
        self.clock = Clock(NOON)
        self.index = SearchedIndex(Path(self.folder.name) / "logs", self.clock)
        self.records: list[Record] = []
        self._batches = 0

    def store(self, *rows: tuple[object, ...]) -> None:
        self._batches += 1
        self.index.commit(RecordBatch("s", 1, self._batches, 1, [list(each) for each in rows]))
        self.records += [dict(zip(ACCESS_FIELDS, each, strict=True)) for each in rows]

    def find(self, **query: Any) -> LogPage:
        return self.index.find(QueryLogs(**{**EVER, **query}))

    def expected(self, **query: Any) -> list[Record]:
        """The records to be found, newest first, later ones of one time first."""
        found = [record for record in self.records[::-1] if fits(record, {**EVER, **query})]
        return sorted(found, key=lambda record: -record["timestamp"])

    def walk(self, **query: Any) -> list[Record]:
        """All pages by cursor."""
        page = self.find(**query)
        rows = list(page.rows)
        while page.next is not None:
            page = self.find(**query, before=page.next, upto=page.upto)
            rows += page.rows
        return rows

    def close(self) -> None:
        self.index.close()
        self.folder.cleanup()


def fits(record: Record, query: Record) -> bool:
    """The contract, word by word."""
    names = ("level", "client_ip", "status_code", "user", "method", "reason", "credential", "request_id", "listen_port")
    exact = {name: query.get(name) for name in names}
    least = LOG_LEVELS.index(query.get("min_level") or "debug")
    return (
        query["start"] <= record["timestamp"] <= query["end"]
        and all(value is None or record[name] == value for name, value in exact.items())
        and LOG_LEVELS.index(record["level"]) >= least
        and record["status_code"] // 100 == (query.get("status_class") or record["status_code"] // 100)
        and folded(query.get("target") or "") in folded(record["target_url"])
        and folded(query.get("tls_name") or "") in record["tls_name"]
        and (query.get("alpn") is None or query["alpn"] in record["alpn"].split(","))
        and (query["proxy_ids"] is None or record["proxy_id"] in query["proxy_ids"])
        and all(any(folded(word) in folded(text) for text in texts(record)) for word in words(query["search"]))
    )


def texts(record: Record) -> list[str]:
    """The message among them, which holds method, target, status and reason."""
    return [message_of(record), *(str(record[name]) for name in ("client_ip", "proxy_id", "user"))]


def words(text: str | None) -> list[str]:
    return (text or "").split()


def folded(text: str) -> str:
    """As SQL's LIKE: the case of A to Z alone doesn't count."""
    return text.translate({upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)})


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    for module in (dayfile, index, blocks):
        monkeypatch.setattr(module, "BLOCK_ROWS", 8)
    made = Log()
    yield made
    made.close()


HOSTS = st.sampled_from(["example.com", "EXAMPLE.org", "a.b.example.com", "é.example", "host-1", "10.0.0.1", "ample"])
PATHS = st.text("abcxyz019/?=&%._-", max_size=12)
ROWS = st.builds(
    lambda at, level, proxy, client, user, method, host, path, status, reason, credential, request, port, tls: row(
        0,
        timestamp=NOON + at / 4,
        level=level,
        proxy_id=proxy,
        client_ip=client,
        user=user,
        method=method,
        target_url=f"http://{host}/{path}",
        status_code=status,
        reason=reason,
        credential=credential,
        request_id=request,
        listen_port=port,
        **dict(zip(("tls_name", "alpn", "tls_version"), tls, strict=True)),
    ),
    st.integers(0, 40),
    st.sampled_from(LOG_LEVELS),
    st.sampled_from(["prx_1", "prx_12", "prx_2"]),
    st.sampled_from(["10.0.0.1", "10.0.0.11", "::1"]),
    st.sampled_from(["", "alice", "Alice", "alicea"]),
    st.sampled_from(["GET", "CONNECT"]),
    HOSTS,
    PATHS,
    st.sampled_from([200, 404, 502]),
    st.sampled_from(["", "dns_error", "destination_denied"]),
    st.sampled_from(["", "crd_1", "crd_12"]),
    st.sampled_from(["request-1", "request-12", "request-2"]),
    st.sampled_from([0, 20001, 20002]),
    st.sampled_from(
        [("", "", ""), ("a.example.com", "h2,http/1.1", "1.3"), ("b.example", "h2c", "1.2"), ("", "http/1.1,h2", "1.3")]
    ),
)
PIECES = st.one_of(
    st.sampled_from(
        ["exam", "EXAMPLE", "ple.c", "com/", "/", ":", "0.1", "prx_1", "connect", "(dns_e", "ror)", "404", "É", "é"]
    ),
    st.text("abcxyz019/.", min_size=1, max_size=6),
)
QUERIES = st.fixed_dictionaries(
    {},
    optional={
        "search": st.lists(PIECES, max_size=3).map(" ".join),
        "level": st.sampled_from(LOG_LEVELS),
        "min_level": st.sampled_from(LOG_LEVELS),
        "client_ip": st.sampled_from(["10.0.0.1", "::1", "10.0.0.2"]),
        "status_code": st.sampled_from([200, 404, 599]),
        "status_class": st.sampled_from([1, 2, 5]),
        "user": st.sampled_from(["alice", "Alice", "ali", "alice\nalicea"]),
        "method": st.sampled_from(["GET", "get", "CONNECT"]),
        "reason": st.sampled_from(["dns_error", "dns", "(dns_error)"]),
        "credential": st.sampled_from(["crd_1", "crd_2", "CRD_1"]),
        "listen_port": st.sampled_from([20001, 2000]),
        "request_id": st.sampled_from(["request-1", "request", "REQUEST-1"]),
        "tls_name": st.sampled_from(["a.example.com", "EXAMPLE", "nowhere", "com,"]),
        "alpn": st.sampled_from(["h2", "h2c", "http/1.1", "h2,http/1.1", "http", "H2"]),
        "target": st.sampled_from(["EXAMPLE.", "http://a.b", "é", "/x", "nowhere"]),
        "proxy_ids": st.sampled_from([(), ("prx_1",), ("prx_1", "prx_2"), ("prx_none",)]),
        "start": st.integers(0, 40).map(lambda at: NOON + at / 4),
        "end": st.integers(0, 40).map(lambda at: NOON + at / 4),
    },
)


@pytest.mark.usefixtures("_small_blocks")
@given(batches=st.lists(st.lists(ROWS, max_size=7), max_size=8), query=QUERIES, limit=st.integers(1, 9))
def test_any_search_finds_what_reading_every_record_finds(
    batches: list[list[tuple[object, ...]]], query: Record, limit: int
) -> None:
    log = Log()
    try:
        for number, batch in enumerate(batches):
            log.clock.now = NOON + number * DAY / 3
            log.store(*batch)
        expected = log.expected(**query)
        page = log.find(**query, limit=limit)
        assert (page.total, page.at_least) == (len(expected), False)
        assert log.walk(**query, limit=limit) == expected
        for offset in (1, limit, len(expected)):
            assert list(log.find(**query, limit=limit, offset=offset).rows) == expected[offset : offset + limit]
    finally:
        log.close()


@pytest.fixture(scope="module")
def _small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (dayfile, index, blocks):
            patch.setattr(module, "BLOCK_ROWS", 8)
        yield


def numbered(*numbers: int, **fields: object) -> list[tuple[object, ...]]:
    return [row(number, timestamp=NOON + number, **fields) for number in numbers]


def targets(page: Any) -> list[str]:
    return [each["target_url"] for each in page.rows]


def test_pages_neither_shift_nor_overlap_while_records_arrive_new_and_late(log: Log) -> None:
    log.store(*numbered(*range(0, 40, 2)))
    first = log.find(limit=7)
    expected = [f"host:{number}" for number in range(38, -1, -2)]
    found, page = targets(first), first
    late = iter(range(1, 40, 2))
    while page.next is not None:
        log.store(*numbered(next(late), next(late), next(late), 100))
        page = log.find(limit=7, before=page.next, upto=page.upto)
        assert page.total == 20
        found += targets(page)
    assert found == expected


def test_a_walk_goes_on_after_its_older_days_were_deleted(log: Log) -> None:
    for day in range(3):
        log.clock.now = NOON + day * DAY
        log.store(*(row(day * 10 + at, timestamp=log.clock.now + at) for at in range(3)))
    page = log.find(limit=2)
    blocks.day_files(log.index.path.parent)[-1].unlink()
    rest = log.find(limit=100, before=page.next, upto=page.upto)
    assert targets(page) + targets(rest) == ["host:22", "host:21", "host:20", "host:12", "host:11", "host:10"]


def test_a_clock_that_is_set_back_an_hour_loses_no_record_and_stores_none_twice(log: Log) -> None:
    midnight = NOON + DAY / 2
    for step, clock in enumerate(
        (midnight - 60, midnight + 60, midnight + 60 - 3600, midnight + 120 - 3600, midnight + 60)
    ):
        log.clock.now = clock
        log.store(*(row(step * 10 + at, timestamp=clock + at) for at in range(9)))
    assert log.walk(limit=4) == log.expected()
    assert sorted(targets(log.find(limit=100))) == sorted(each["target_url"] for each in log.records)
    start = log.index.last - len(log.records)
    assert [each["target_url"] for each in tail(log, start)] == [each["target_url"] for each in log.records]


def tail(log: Log, after: int, **query: Any) -> list[Record]:
    """All that a tail returns, three at a time."""
    rows: list[Record] = []
    while after < log.index.last:
        reply = log.index.tail(QueryLogs(**{**EVER, "limit": 3, **query}), after)
        assert reply.last > after
        rows += reply.rows
        after = reply.last
    return rows


def test_a_tail_returns_each_record_once_in_the_order_of_storing_over_blocks_days_and_restarts(log: Log) -> None:
    after = log.index.last
    dice = random.Random(7)
    for batch in range(12):
        log.clock.now = NOON + batch * DAY / 4
        log.store(*(row(batch * 10 + at, timestamp=NOON + dice.randrange(1000)) for at in range(dice.randrange(6))))
    log.index.close()
    log.index = SearchedIndex(Path(log.folder.name) / "logs", log.clock)
    assert [each["target_url"] for each in tail(log, after)] == [each["target_url"] for each in log.records]


def test_a_tail_with_a_filter_goes_past_what_it_leaves_out(log: Log) -> None:
    after = log.index.last
    log.store(*numbered(*range(30)))
    log.store(*numbered(50, proxy_id="other"))
    reply = log.index.tail(QueryLogs(**{**EVER, "proxy_ids": ("other",)}), after)
    assert (targets(reply), reply.last) == (["host:50"], log.index.last)


def test_numbers_go_on_above_those_of_files_that_are_gone(log: Log) -> None:
    log.store(*numbered(1, 2, 3))
    last = log.index.last
    log.index.close()
    for file in (Path(log.folder.name) / "logs").iterdir():
        file.unlink()
    log.clock.now += 1
    log.index = SearchedIndex(Path(log.folder.name) / "logs", log.clock)
    assert log.index.last > last


class SlowClock:
    """Time that passes only when it is read."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_a_search_that_takes_too_long_returns_what_it_has_and_goes_on_by_cursor(log: Log) -> None:
    for at in range(0, 80, 8):
        log.store(*numbered(*range(at, at + 8), proxy_id="even" if at % 16 else "odd"))
    slow = search.Searcher(log.index.path.parent, SlowClock(search.READ_MAX / 3))
    page = slow.find(QueryLogs(**{**EVER, "search": "odd"}))
    found, pages = targets(page), 1
    assert page.at_least
    while page.next is not None:
        page = slow.find(QueryLogs(**{**EVER, "search": "odd", "before": page.next, "upto": page.upto}))
        found += targets(page)
        pages += 1
    assert found == [each["target_url"] for each in log.expected(search="odd")]
    assert pages > 2
    with pytest.raises(search.TooSlow):
        slow.find(QueryLogs(**{**EVER, "search": "odd", "offset": 1}))
    slow.close()


def test_a_total_that_would_be_slow_is_a_lower_bound_and_the_page_is_whole(log: Log) -> None:
    for at in range(0, 80, 8):
        log.store(*numbered(*range(at, at + 8)))
    slow = search.Searcher(log.index.path.parent, SlowClock(search.COUNT_MAX / 2))
    page = slow.find(QueryLogs(**{**EVER, "search": "host", "limit": 5}))
    assert (targets(page), page.at_least) == ([f"host:{number}" for number in range(79, 74, -1)], True)
    assert 5 <= page.total < 80
    assert slow.find(QueryLogs(**{**EVER, "limit": 5})).total == 80  # without words it is known at once
    slow.close()


def test_more_days_than_one_search_opens_are_walked_through_by_cursor(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "FILES_MAX", 9)
    for day in range(25):
        log.clock.now = NOON + day * DAY
        late = row(1000 + day, timestamp=log.clock.now - 3 * DAY - 1)
        log.store(*(row(day * 10 + at, timestamp=log.clock.now + at) for at in range(3)), late)
    expected = log.expected()
    assert len(expected) == 100
    for limit in (1, 7, 30, 1000):
        assert log.walk(limit=limit) == expected
    assert log.find(search="host:1").at_least
    assert log.find(start=NOON + 20 * DAY).total == len(log.expected(start=NOON + 20 * DAY))
    assert [each["target_url"] for each in tail(log, log.index.last - 4)] == [
        "host:240",
        "host:241",
        "host:242",
        "host:1024",
    ]


def test_a_damaged_file_is_set_aside_at_the_start_and_hides_no_other(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    log.store(*numbered(1))
    log.clock.now += DAY
    log.store(*numbered(2))
    log.index.close()
    log.index.path.write_bytes(b"no database, but long enough to be read" * 99)
    log.index = SearchedIndex(Path(log.folder.name) / "logs", log.clock)
    log.index.commit(RecordBatch("s", 1, 3, 3, [list(each) for each in numbered(3)]))
    assert targets(log.find()) == ["host:3", "host:1"]
    assert "moved damaged" in caplog.text


def test_an_unreadable_day_hides_no_other_and_makes_the_total_a_lower_bound(log: Log) -> None:
    log.store(*numbered(1))
    (log.index.path.parent / "2020-01-01.sqlite").write_bytes(b"no database at all, but long enough to be read" * 99)
    page = log.find()
    assert (targets(page), page.total, page.at_least) == (["host:1"], 1, True)


def test_all_reasons_of_report_mode_are_found_by_one_word_and_counted_by_rule(log: Log) -> None:
    reported = "reported:policy_denied", "reported:destination_denied"
    reasons = ("", "dns_error", *reported, "reported:policy_denied", "unreported:x")
    for begin in range(2):  # a block that is closed, and one that isn't
        rows = [
            row(n, reason=reason, rule=f"rule of {reason}") for n, reason in enumerate(reasons * (9 if begin else 1))
        ]
        log.store(*rows)
    found = log.find(reason="reported").rows
    assert {each["reason"] for each in found} == set(reported)
    assert len(found) == sum(record["reason"].startswith("reported:") for record in log.records)
    query = QueryLogs(**{**EVER, "start": NOON - 60, "end": NOON + 60, "reason": "reported"})
    counts = log.index.count(CountLogs(query, 120, ("rule",), 10)).values["rule"]
    assert [each[:2] for each in counts] == [(f"rule of {reported[0]}", 20), (f"rule of {reported[1]}", 10)]
