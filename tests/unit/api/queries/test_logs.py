"""Access records through the API: cursors, the tail, the export, and how many may wait or read at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from actors.bus.messages.common import LOGS, Failed, Unreachable
from actors.bus.messages.records import LogPage, LogTailPage, QueryLogs, TailLogs
from api.concurrency_limit import COUNTS_MAX, EXPORTS_EACH, EXPORTS_MAX, TAILS_EACH, TAILS_MAX, ConcurrencyLimit
from api.errors import PeerUnavailable, TooBusy
from api.queries.records.log_operations import NDJSON
from api.security.password_checker import AT_ONCE
from api.server.http_server import THREADS
from tests.kit.api_stage import Api, error_of
from tests.kit.records import records
from tests.kit.tables import table
from tests.unit.api.creating import create
from tests.unit.api.holding import account


class Indexer:
    """Played here: it remembers what it is asked, and replies with what it is given."""

    def __init__(self, api: Api) -> None:
        self.asked: list[Any] = []
        self.replies: list[Any] = []
        self.meanwhile: Callable[[], object] = lambda: None
        api.fleet.others[LOGS] = self._reply

    def _reply(self, message: Any) -> Any:
        self.asked.append(message)
        self.meanwhile()
        return self.replies.pop(0) if self.replies else LogPage((), 0)


@pytest.fixture
def indexer(api: Api) -> Indexer:
    return Indexer(api)


def test_the_address_that_a_name_led_to_is_for_callers_who_may_change_proxies(api: Api, indexer: Indexer) -> None:
    api.add_user("ada", role="user")
    detail = "db.internal (10.0.0.5) port 5432 refuses connections"
    for caller, expected in (("admin", detail), ("ada", "db.internal port 5432 refuses connections")):
        for path in ("/logs", "/logs/tail", "/logs/export"):
            rows = records(1, detail=detail)
            indexer.replies = [LogTailPage(rows, 1) if path.endswith("tail") else LogPage(rows, 1)]
            text = api.client.simulate_get(f"/api/v1{path}", headers=api.token(caller)).text
            assert expected in text
            assert ("10.0.0.5" in text) == (caller == "admin")


def test_a_cursor_goes_on_where_the_page_ended_with_the_times_of_the_first(
    api: Api, indexer: Indexer, headers: dict[str, str]
) -> None:
    indexer.replies = [LogPage(records(1), 5, next=(1_000_000, 7), upto=9), LogPage(records(1), 5, upto=9)]
    first = api.get("/logs?search=host&limit=1", headers).json["data"]
    assert (first["has_more"], first["total_is_lower_bound"]) == (True, False)
    last = api.get(f"/logs?search=host&limit=1&cursor={first['next_cursor']}", headers).json["data"]
    assert (last["has_more"], last["next_cursor"]) == (False, None)
    before, after = indexer.asked
    assert (before.before, before.upto) == (None, None)
    assert (after.before, after.upto) == ((1_000_000, 7), 9)
    assert (before.start, before.end) == (after.start, after.end)


@table(
    ("query", "field"),
    [
        ("cursor={page}&search=other", "cursor"),
        ("cursor={page}&proxy_id=prx_1&search=host", "cursor"),
        ("cursor={page}&request_id=1&search=host", "cursor"),
        ("cursor={page}&search=host&start_time=2020-01-01T00:00:00Z", "start_time"),
        ("cursor={page}&search=host&offset=1", "offset"),
        ("cursor={tail}&search=host", "cursor"),
        ("cursor=kgIC", "cursor"),
        ("cursor=x", "cursor"),
        ("cursor=", "cursor"),
        ("cursor=%F0", "cursor"),
        ("cursor=" + "A" * 3000, "cursor"),
        ("offset=100001", "offset"),
    ],
)
def test_a_cursor_of_something_else_is_400(
    api: Api, indexer: Indexer, headers: dict[str, str], query: str, field: str
) -> None:
    indexer.replies, indexer.asked = [LogPage(records(1), 5, next=(1_000_000, 7), upto=9)], []
    first = api.get("/logs?search=host", headers).json["data"]
    response = api.get(f"/logs?{query.format(page=first['next_cursor'], tail=first['tail_cursor'])}", headers)
    assert (response.status_code, response.json["error"]["details"]["field"]) == (400, field)
    assert len(indexer.asked) == 1


@pytest.mark.parametrize("path", ["/logs", "/logs/tail?timeout=0&", "/logs/export"])
def test_records_of_an_account_are_those_of_its_name_at_proxies_that_it_may_use(
    api: Api, indexer: Indexer, headers: dict[str, str], path: str
) -> None:
    first, _ = create(api, headers), create(api, headers, name="second", port=4000)
    alice, everywhere = account(api, proxies={"ids": [first["id"]]}), account(api, "bob")
    path = path if "?" in path else f"{path}?"

    def asked(query: str) -> QueryLogs:
        indexer.replies = [LogTailPage((), 1) if "tail" in path else LogPage((), 0)]
        response = api.client.simulate_get(f"/api/v1{path}{query}", headers=headers)
        assert response.status_code == 200, response.text
        found = indexer.asked[-1]
        return found.query if isinstance(found, TailLogs) else found  # type: ignore[no-any-return]

    of_alice, of_bob = asked(f"account={alice}&credential=crd_1"), asked(f"account={everywhere}")
    assert (of_alice.user, of_alice.proxy_ids, of_alice.credential) == ("alice", (first["id"],), "crd_1")
    assert (of_bob.user, of_bob.proxy_ids, of_bob.credential) == ("bob", None, None)
    for query, field in (("account=acc_none", "account"), (f"account={alice}&user=bob", "user")):
        refused = api.client.simulate_get(f"/api/v1{path}{query}", headers=headers)
        assert (refused.status_code, refused.json["error"]["details"]["field"]) == (400, field)
    elsewhere = asked(f"account={alice}&proxy_id=prx_other")
    assert elsewhere.proxy_ids == ()


def test_a_tail_goes_on_from_a_page_and_from_itself(api: Api, indexer: Indexer, headers: dict[str, str]) -> None:
    indexer.replies = [LogPage((), 0, upto=9), LogTailPage(records(2), 11), LogTailPage((), 11)]
    page = api.get("/logs", headers).json["data"]
    first = api.get(f"/logs/tail?cursor={page['tail_cursor']}&timeout=30&level=info", headers).json["data"]
    assert [each["target_url"] for each in first["logs"]] == ["host:0", "host:1"]
    assert api.get(f"/logs/tail?cursor={first['next_cursor']}&timeout=0", headers).json["data"]["logs"] == []
    asked = [(each.after, each.wait, each.query.level) for each in indexer.asked[1:]]
    assert asked == [(9, 1.0, "info"), (11, 0.0, None)]


def test_a_tail_without_a_cursor_begins_now(api: Api, indexer: Indexer, headers: dict[str, str]) -> None:
    indexer.replies = [LogTailPage((), 4)]
    assert api.get("/logs/tail?timeout=0", headers).status_code == 200
    assert indexer.asked[0].after is None


def test_a_tail_that_waits_goes_on_in_batches_and_ends_with_the_api(
    api: Api, indexer: Indexer, headers: dict[str, str]
) -> None:
    indexer.replies = [LogTailPage((), 4), LogTailPage((), 5), LogTailPage(records(1), 6)]
    assert len(api.get("/logs/tail?timeout=30", headers).json["data"]["logs"]) == 1
    assert [(each.after, each.wait) for each in indexer.asked] == [(None, 1.0), (4, 1.0), (5, 1.0)]
    api.services.ending.set()
    indexer.replies = [LogTailPage((), 7)]
    assert api.get("/logs/tail?timeout=30", headers).json["data"]["logs"] == []


@table("query", ["timeout=31", "limit=0", "cursor=x", "start_time=2026-01-01T00:00:00Z", "offset=1"])
def test_a_bad_question_for_a_tail_is_400_naming_it(
    api: Api, indexer: Indexer, headers: dict[str, str], query: str
) -> None:
    assert error_of(api.get(f"/logs/tail?{query}", headers))[2]["field"] == query.partition("=")[0]
    assert indexer.asked == []


@pytest.mark.parametrize("path", ["/logs", "/logs/tail?timeout=0", "/logs/export"])
def test_a_key_with_a_scope_reads_the_records_of_its_proxies_alone(api: Api, indexer: Indexer, path: str) -> None:
    key = api.key(scope={"proxies": ["prx_1"]})
    indexer.replies = [LogTailPage((), 1)] if "tail" in path else []
    assert api.get(path, key).status_code == 200
    (asked,) = indexer.asked
    question = asked.query if isinstance(asked, TailLogs) else asked
    assert question.proxy_ids == ("prx_1",)


def test_more_tails_than_one_user_may_have_are_429_and_places_are_given_back(
    api: Api, indexer: Indexer, headers: dict[str, str]
) -> None:
    refused: list[Any] = []

    def another_within() -> None:
        response = api.get("/logs/tail?timeout=0", headers)
        if response.status_code != 200:
            refused.append(response)

    indexer.meanwhile = another_within
    indexer.replies = [LogTailPage((), 1) for _ in range(2 * TAILS_EACH)]
    for _round in range(2):
        assert api.get("/logs/tail?timeout=0", headers).status_code == 200
    assert (len(refused), len(indexer.asked)) == (2, 2 * TAILS_EACH)
    assert error_of(refused[0]) == (429, "RATE_LIMITED", {"retry_after": 1})
    assert refused[0].headers["Retry-After"] == "1"


def test_records_name_their_proxies_and_those_of_a_deleted_one_keep_its_id(
    api: Api, indexer: Indexer, headers: dict[str, str]
) -> None:
    made = api.post("/proxies", {"name": "office", "protocol": "http", "port": 3128}, headers).json["data"]["proxy"]
    rows = (*records(1, proxy_id=made["id"]), *records(1, proxy_id="prx_gone"))
    indexer.replies = [LogPage(rows, 2), LogTailPage(rows, 1), LogPage(rows, 2)]
    page = api.get("/logs", headers).json["data"]["logs"]
    tail = api.get("/logs/tail?timeout=0", headers).json["data"]["logs"]
    lines = api.client.simulate_get("/api/v1/logs/export", headers=headers).text.splitlines()
    for found in (page, tail, [json.loads(line) for line in lines]):
        assert [each["proxy_name"] for each in found] == ["office", "prx_gone"]


def test_an_export_is_lines_of_all_pages(api: Api, indexer: Indexer, headers: dict[str, str]) -> None:
    indexer.replies = [
        LogPage(records(2), 0, next=(5, 7), upto=9),
        LogPage(records(1, target_url="a\u2028b"), 0, next=(4, 6), upto=8),
        LogPage((), 0),
    ]
    response = api.client.simulate_get("/api/v1/logs/export?search=h&level=info", headers=headers)
    assert response.headers["Content-Type"] == NDJSON
    lines = response.text.split("\n")
    assert lines.pop() == ""
    assert [json.loads(line)["target_url"] for line in lines] == ["host:0", "host:1", "a\u2028b"]
    assert len(response.text.splitlines()) == 3
    assert [(each.before, each.upto, each.count) for each in indexer.asked] == [
        (None, None, False),
        ((5, 7), 9, False),
        ((4, 6), 9, False),
    ]
    assert {(each.search, each.level, each.start) for each in indexer.asked} == {("h", "info", indexer.asked[0].start)}


def test_an_export_that_fails_at_once_is_an_error_and_one_that_fails_later_breaks_off(
    api: Api, indexer: Indexer, headers: dict[str, str]
) -> None:
    indexer.replies = [Failed("no")]
    assert error_of(api.get("/logs/export", headers))[:2] == (500, "INTERNAL_ERROR")
    for _ in range(EXPORTS_MAX + 1):
        indexer.replies = [LogPage(records(1), 0, next=(5, 7), upto=9), Unreachable(LOGS, "gone")]
        with pytest.raises(PeerUnavailable, match="gone"):
            api.client.simulate_get("/api/v1/logs/export", headers=headers)


def test_who_holds_all_of_a_users_share_by_keys_leaves_room_to_everybody_else(
    api: Api, indexer: Indexer, headers: dict[str, str]
) -> None:
    operator = api.add_user("op", role="operator")
    taken = [api.services.log_search.tails.acquire(operator.id) for _ in range(TAILS_EACH)]
    taken += [api.services.log_search.exports.acquire(operator.id) for _ in range(EXPORTS_EACH)]
    indexer.replies = [LogTailPage((), 1)]
    assert api.get("/logs/tail?timeout=0", headers).status_code == 200
    assert api.client.simulate_get("/api/v1/logs/export", headers=headers).status_code == 200
    for credential in (api.token("op"), api.key("op")):
        for path in ("/logs/tail?timeout=0", "/logs/export"):
            refused = api.get(path, credential)
            assert error_of(refused) == (429, "RATE_LIMITED", {"retry_after": 1})
            assert refused.json["error"]["message"].endswith("for one user")
    for slot in taken:
        slot.release()
    assert api.client.simulate_get("/api/v1/logs/export", headers=api.token("op")).status_code == 200


def test_when_all_places_are_taken_a_user_who_has_none_is_refused_too_until_one_is_given_back() -> None:
    slots = ConcurrencyLimit(3, 2, "exports")
    first, _second, _third = slots.acquire("a"), slots.acquire("a"), slots.acquire("b")
    with pytest.raises(TooBusy, match=r"No more than 3 exports are possible at once$"):
        slots.acquire("c")
    first.release()
    first.release()
    slots.acquire("c")
    with pytest.raises(TooBusy, match="No more than 3"):
        slots.acquire("b")


def test_those_who_share_places_can_not_take_the_threads_of_all_others() -> None:
    assert TAILS_MAX + EXPORTS_MAX + COUNTS_MAX + AT_ONCE <= THREADS - 8


def test_more_exports_than_slots_are_429_and_unread_ones_release_theirs(
    api: Api, indexer: Indexer, headers: dict[str, str]
) -> None:
    for _ in range(EXPORTS_MAX + 1):
        assert api.client.simulate_head("/api/v1/logs/export", headers=headers).status_code == 200
    taken = [api.services.log_search.exports.acquire(api.admin.id) for _ in range(EXPORTS_EACH)]
    assert error_of(api.get("/logs/export", headers))[:2] == (429, "RATE_LIMITED")
    for slot in taken:
        slot.release()
        slot.release()
    assert api.client.simulate_get("/api/v1/logs/export", headers=headers).status_code == 200


def test_a_message_has_no_line_breaks_or_orders_to_a_terminal(
    api: Api, indexer: Indexer, headers: dict[str, str]
) -> None:
    indexer.replies = [LogPage(records(1, target_url="a\nb\x1b[2J\u202e"), 1)]
    (entry,) = api.get("/logs", headers).json["data"]["logs"]
    assert entry["message"] == "a\\nb\\x1b[2J\\u202e 200"


def test_a_page_that_lies_too_deep_is_400_at_its_offset(api: Api, indexer: Indexer, headers: dict[str, str]) -> None:
    indexer.replies = [Failed("too deep", "offset")]
    assert error_of(api.get("/logs?offset=5", headers)) == (
        400,
        "INVALID_REQUEST",
        {"field": "offset", "error": "too deep"},
    )


def test_a_total_that_was_not_counted_to_the_end_says_so(api: Api, indexer: Indexer, headers: dict[str, str]) -> None:
    indexer.replies = [LogPage(records(1), 7, at_least=True)]
    data = api.get("/logs", headers).json["data"]
    assert (data["total"], data["total_is_lower_bound"]) == (7, True)
    assert isinstance(indexer.asked[0], QueryLogs)
