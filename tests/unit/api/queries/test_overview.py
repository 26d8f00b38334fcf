"""The first screen: what is in it, who sees which part, and how little it costs to ask often."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from falcon.testing import Result

from actors.bus.messages.accounts import (
    AccountActivity,
    AccountUsage,
    QueryReached,
    QueryUsage,
    Reached,
    UsageOfAccounts,
)
from actors.bus.messages.common import LOGS, METRICS, WEBHOOKS, Done, Problem
from actors.bus.messages.events import Deliveries, Delivery, Event, QueryDeliveries, WebhookStatuses
from actors.bus.messages.metrics import MetricSeries, QueryMetricSeries, QueryRealtime, Realtime
from actors.bus.messages.records import CountLogs, LogCounts
from actors.logs.record_schema import HOST
from api.objects.webhooks.webhook_kind import disable
from api.queries.overall import attention
from api.queries.overall.overview import NOW
from config.model.choices import period_at
from config.text.formatting import timestamp_text
from tests.kit.api_stage import PROXY, Api

DAY = 86_400.0


class Others:
    """The collector, the log indexer and the webhook sender, played here."""

    def __init__(self, api: Api) -> None:
        self.asked: list[Any] = []
        self.rate = 12.5
        self.given_up: list[Delivery] = []
        self.values: dict[str, Any] = {}
        self.reached: tuple[str, ...] = ()
        self.usage: dict[str, AccountActivity] = {}
        for name in (METRICS, LOGS, WEBHOOKS):
            api.fleet.others[name] = self._reply

    def _reply(self, message: Any) -> Any:
        self.asked.append(message)
        if isinstance(message, QueryRealtime):
            return Realtime(time.time(), {**dict.fromkeys(NOW, 0.0), "requests_per_second": self.rate})
        if isinstance(message, QueryMetricSeries):
            count = (message.end - message.start) // message.step
            return MetricSeries(dict.fromkeys(message.names, (1.0,) * count))
        if isinstance(message, CountLogs):
            return LogCounts(0, (1,), (0,), self.values, exact=True)
        if isinstance(message, QueryReached):
            return Reached(self.reached)
        if isinstance(message, QueryUsage):
            return UsageOfAccounts({each: self.usage[each] for each in message.periods if each in self.usage})
        if isinstance(message, QueryDeliveries):
            return Deliveries(tuple(self.given_up), len(self.given_up))
        return WebhookStatuses({}) if type(message).__name__ == "QueryWebhookStatus" else Done()

    def count(self, kind: type[Any]) -> int:
        return sum(isinstance(each, kind) for each in self.asked)


@pytest.fixture
def others(api: Api, monkeypatch: pytest.MonkeyPatch) -> Others:
    monkeypatch.setattr(attention, "FULL_PERCENT", 100.1)  # of the machine of the tests
    monkeypatch.setattr(attention, "SLOW_PERIOD", 0.0)
    api.services.overviews.fresh = 0.0
    return Others(api)


def overview(api: Api, headers: dict[str, str] | None = None, path: str = "/overview") -> dict[str, Any]:
    response = api.get(path, headers or api.token())
    assert response.status_code == 200, response.text
    data: dict[str, Any] = response.json["data"]
    return data


def needs_attention(api: Api, headers: dict[str, str] | None = None) -> list[tuple[str, str, str | None, str]]:
    found = overview(api, headers)["attention"]
    assert found["total"] == len(found["entries"])
    return [(each["severity"], each["kind"], each["id"], each["reason"]) for each in found["entries"]]


def proxy(api: Api, number: int = 0, **fields: Any) -> str:
    body = {**PROXY, "name": f"p{number}", "port": 3128 + number, **fields}
    return str(api.post("/proxies", body, api.token()).json["data"]["proxy"]["id"])


# --- what is in it ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("others")
def test_the_state_of_everything(api: Api) -> None:
    ids = [proxy(api, number) for number in range(3)]
    api.post(f"/proxies/{ids[0]}/stop", None, api.token())
    api.fleet.failed.add(ids[1])
    found = overview(api)
    assert found["health"]["status"] == "degraded"
    assert found["now"]["requests_per_second"] == 12.5
    assert found["proxies"] == {"total": 3, "by_state": {"failed": 1, "running": 1, "stopped": 1}}
    assert found["pools"] == {"total": 0, "by_state": {}, "upstreams": 0, "usable": 0}
    assert found["series"]["step"] == 60
    assert len(found["series"]["bandwidth_in"]) == 60


def test_what_is_used_most(api: Api, others: Others) -> None:
    known = proxy(api)
    others.values = {
        "proxy_id": ((known, 9, 1, 2), ("prx_deleted", 3, 0, 0)),
        "user": (("<script>", 5, 3, 4),),
        HOST: (("example.com", 7, 5, 6),),
        "reason": (("dns_error", 1, 0, 0),),
    }
    top = overview(api)["top"]
    assert top["proxies"][0] == {"id": known, "name": "p0", "requests": 9, "bytes_in": 1, "bytes_out": 2}
    assert top["proxies"][1]["name"] is None
    assert top["accounts"][0]["username"] == "<script>"
    assert top["targets"][0]["host"] == "example.com"
    assert top["refusals"][0]["reason"] == "dns_error"
    assert (top["exact"], top["records"]) == (True, "all")


@pytest.mark.parametrize(("name", "seconds", "points"), [("5m", 300, 30), ("1h", 3600, 60), ("1d", 86_400, 30)])
def test_the_range_is_that_of_lists_and_series(api: Api, others: Others, name: str, seconds: int, points: int) -> None:
    found = overview(api, path=f"/overview?range={name}")
    assert (found["range"], len(found["series"]["error_rate"])) == (name, points)
    (asked,) = [each for each in others.asked if isinstance(each, CountLogs)]
    assert asked.query.end - asked.query.start == pytest.approx(seconds)


def test_without_the_other_processes_the_rest_is_there(api: Api) -> None:
    found = overview(api)
    assert (found["now"], found["series"], found["top"]) == (None, None, None)
    assert found["proxies"]["total"] == 0


# --- what needs attention -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("others")
def test_failed_proxies_come_before_degraded_ones(api: Api) -> None:
    degraded, failed = proxy(api, 0), proxy(api, 1)
    api.fleet.failed.add(failed)
    api.fleet.problems[degraded] = (Problem("upstream_down", "no route", time.time(), "paris"),)
    assert needs_attention(api) == [
        ("error", "proxy", failed, "process"),
        ("warning", "proxy", degraded, "upstream_down"),
    ]
    assert overview(api)["attention"]["entries"][1]["upstream"] == "paris"


def entry(api: Api, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """The only one there is."""
    (found,) = overview(api, headers)["attention"]["entries"]
    view: dict[str, Any] = found
    return view


@pytest.mark.usefixtures("others")
def test_upstreams_of_one_proxy_are_one_entry_with_their_number_and_what_to_do(api: Api) -> None:
    now = time.time()
    problems = [Problem("upstream_down", f"u{number} refused", now - number, f"u{number}") for number in range(7)]
    api.fleet.problems[proxy(api)] = tuple(problems)
    found = entry(api)
    assert (found["reason"], found["severity"], found["count"]) == ("upstream_down", "warning", 7)
    assert (found["parts"], found["upstream"], found["fix"]) == (["u0", "u1", "u2", "u3", "u4"], None, "test")
    assert found["error"] == "7 of them, u0, u1, u2, u3, u4, …: u6 refused"
    assert found["since"] == timestamp_text(now - 6)
    dead = Problem("upstreams_unreachable", "all are down", now, serves=False)
    api.fleet.problems = dict.fromkeys(api.fleet.problems, (*problems[:2], dead))
    found = entry(api)
    assert (found["reason"], found["severity"]) == ("upstreams_unreachable", "error")
    assert (found["count"], found["detail"]) == (2, "all are down")


@pytest.mark.usefixtures("others")
def test_a_member_of_a_pool_is_an_entry_of_the_pool_by_its_name(api: Api) -> None:
    body = {"name": "eu", "upstreams": [{"protocol": "http", "host": "up.test", "port": 8080}]}
    pool = api.post("/pools", body, api.token()).json["data"]["pool"]
    down = Problem("upstream_down", "refused", time.time(), f"eu/{pool['upstreams'][0]['name']}")
    api.fleet.helpers["pools"] = replace(api.fleet.helpers["metrics"], problems=(down,))
    found = entry(api)
    assert (found["kind"], found["id"], found["name"], found["reason"]) == ("pool", pool["id"], "eu", "upstream_down")
    assert found["upstream"] == pool["upstreams"][0]["name"]
    for permission, count in (("metrics.read", 0), ("proxy.read", 1)):
        assert len(overview(api, api.key(permissions=[permission]))["attention"]["entries"]) == count


def test_accounts_that_have_used_up_their_quota_are_one_entry(api: Api, others: Others) -> None:
    made = {}
    for name, quota in (("ada", 1000), ("bob", 1000), ("eve", 5000), ("joe", 0)):
        body = {"username": name, "password": "correct horse battery", "quota": {"bytes": quota, "period": "day"}}
        made[name] = api.post("/accounts", body, api.token()).json["data"]["account"]["id"]
    since = period_at("day", time.time())[0]
    used = AccountActivity(AccountUsage("day", since, 600, 500))
    others.usage = dict.fromkeys(made.values(), used)
    others.reached = (made["ada"], made["eve"], made["joe"], "acc_0123456789abcdef")
    found = entry(api)
    assert (found["severity"], found["kind"], found["id"], found["name"]) == ("warning", "account", made["ada"], "ada")
    assert (found["reason"], found["error"]) == ("quota_reached", "ada: the quota is used up")
    others.reached = (made["bob"], made["ada"])
    found = entry(api)
    assert (found["id"], found["count"], found["parts"]) == (None, 2, ["ada", "bob"])
    api.patch(f"/accounts/{made['ada']}", {"quota": {"bytes": 9000, "period": "day"}}, api.token())
    assert entry(api)["name"] == "bob"
    assert overview(api, api.key(permissions=["metrics.read"]))["attention"]["total"] == 0


@pytest.mark.usefixtures("others")
def test_a_pool_whose_upstreams_cannot_be_fetched_says_what_follows(api: Api) -> None:
    body = {"name": "exits", "source": {"url": "https://provider.test/a"}}
    made = api.post("/pools", body, api.token()).json["data"]["pool"]
    states = api.services.list_contents.states
    states.remember(made["id"], states.get(made["id"]).model_copy(update={"last_error": "404", "failures": 1}))
    found = entry(api)
    assert (found["severity"], found["kind"], found["id"], found["name"]) == ("error", "pool", made["id"], "exits")
    assert (found["reason"], found["fix"]) == ("pool_fetch_failed", "fetch")
    assert found["error"] == "it can't be fetched: 404; it has no upstreams yet, so nothing can be reached through it"


@pytest.mark.usefixtures("others")
def test_a_list_that_cannot_be_fetched_says_what_follows(api: Api) -> None:
    body = {"name": "ads", "kind": "domains", "source": {"url": "https://lists.test/a", "format": "plain"}}
    made = api.post("/lists", body, api.token()).json["data"]["list"]
    states = api.services.list_contents.states
    failed = states.get(made["id"]).model_copy(update={"last_error": "404", "failures": 1})
    states.remember(made["id"], failed)
    found = entry(api)
    assert (found["severity"], found["kind"], found["id"], found["name"]) == ("error", "list", made["id"], "ads")
    assert (found["reason"], found["fix"], found["fetched_at"]) == ("list_fetch_failed", "fetch", None)
    assert found["error"] == "it can't be fetched: 404; it has no content yet, so rules that deny it deny everything"
    states.remember(made["id"], failed.model_copy(update={"fetched_at": 1_700_000_000.0}))
    found = entry(api)
    assert (found["severity"], found["detail"], found["fetched_at"]) == ("warning", "404", "2023-11-14T22:13:20.000Z")
    assert found["error"] == "it can't be fetched: 404; its content of 2023-11-14T22:13:20.000Z stays"
    assert overview(api, api.key(permissions=["metrics.read"]))["attention"]["total"] == 0


@pytest.mark.usefixtures("others")
def test_the_first_password_is_that_of_a_user_by_name(api: Api) -> None:
    api.data.initial_password.write_text("secret")
    found = entry(api)
    assert (found["id"], found["name"], found["fix"]) == (api.admin.id, "admin", "change_password")


@pytest.mark.usefixtures("others")
def test_an_actor_that_does_not_run_is_an_error(api: Api) -> None:
    del api.fleet.helpers["logs"]
    assert needs_attention(api) == [("error", "actor", "logs", "process")]


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize(("days", "severity"), [(-1, "error"), (20, "warning"), (22, None)])
def test_certificates_that_end(api: Api, days: int, severity: str | None) -> None:
    identifier = proxy(api)
    api.fleet.certificate_ends = time.time() + days * DAY
    assert needs_attention(api) == ([(severity, "certificate", identifier, "certificate_ends")] if severity else [])


@pytest.mark.usefixtures("others")
def test_certificates_of_proxies_are_for_those_who_may_read_proxies(api: Api) -> None:
    identifier = proxy(api)
    api.fleet.certificate_ends = time.time() + DAY

    def of_certificates(*permissions: str) -> list[str]:
        found = overview(api, api.key(permissions=list(permissions)))["attention"]["entries"]
        return [each["id"] for each in found if each["reason"] == "certificate_ends"]

    assert of_certificates("proxy.read") == [identifier]
    assert of_certificates("metrics.read", "settings.read") == []


def test_webhooks_that_were_disabled_or_have_given_up(api: Api, others: Others) -> None:
    body = {"name": "hook", "url": "https://example.com/", "events": ["*"]}
    hook = api.post("/webhooks", body, api.token()).json["data"]["webhook"]["id"]
    event = Event("evt_1", "proxy.created", time.time(), {})
    others.given_up = [Delivery("d", hook, event, "failed", time.time(), None, ())]
    assert needs_attention(api) == [("warning", "webhook", hook, "deliveries_given_up")]
    others.given_up = [Delivery("d", hook, event, "failed", time.time() - 2 * DAY, None, ())]
    assert needs_attention(api) == []
    disable(api.services.objects["webhooks"], api.services.publish, hook, "410 Gone", time.time() + 1)
    assert needs_attention(api) == [("warning", "webhook", hook, "webhook_disabled")]


@pytest.mark.usefixtures("others")
def test_a_full_disk_and_the_first_password(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.data.initial_password.write_text("secret")
    monkeypatch.setattr(attention, "FULL_PERCENT", 0.0)
    found = needs_attention(api)
    assert found == [
        ("warning", "disk", None, "disk_full"),
        ("warning", "memory", None, "memory_full"),
        ("warning", "user", api.admin.id, "first_password"),
    ]
    assert overview(api)["attention"]["entries"][-1]["name"] == "admin"


@pytest.mark.usefixtures("others")
def test_the_number_of_entries_is_bounded(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "LONGEST", 2)
    api.fleet.failed |= {proxy(api, number) for number in range(3)}
    found = overview(api)["attention"]
    assert (found["total"], len(found["entries"])) == (3, 2)


# --- who sees what ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize(
    ("permissions", "parts"),
    [
        ([], set()),
        (["metrics.read"], {"now", "series", "top"}),
        (["proxy.read"], {"proxies", "pools"}),
        (["metrics.read", "proxy.read"], {"now", "series", "top", "proxies", "pools"}),
    ],
)
def test_a_part_needs_its_permission(api: Api, permissions: list[str], parts: set[str]) -> None:
    api.fleet.failed.add(proxy(api))
    api.add_user("eva", permissions=permissions)
    found = overview(api, api.token("eva"))
    assert {name for name in ("now", "series", "top", "proxies", "pools") if found[name] is not None} == parts
    assert {each["kind"] for each in found["attention"]["entries"]} <= ({"proxy"} if "proxies" in parts else set())


@pytest.mark.usefixtures("others")
def test_webhooks_and_the_first_password_need_their_permissions(api: Api) -> None:
    api.data.initial_password.write_text("secret")
    hook = {"name": "hook", "url": "https://example.com/", "events": ["*"]}
    made = api.post("/webhooks", hook, api.token()).json["data"]["webhook"]["id"]
    disable(api.services.objects["webhooks"], api.services.publish, made, "410 Gone", time.time() + 1)
    kinds = {}
    for permission in ("settings.read", "users.read", "metrics.read", "proxy.read"):
        api.add_user(permission, permissions=[permission])
        kinds[permission] = {kind for _, kind, _, _ in needs_attention(api, api.token(permission))}
    assert kinds == {"settings.read": {"webhook"}, "users.read": {"user"}, "metrics.read": set(), "proxy.read": set()}


def test_a_key_of_some_proxies_sees_these_alone(api: Api, others: Others) -> None:
    ids = [proxy(api, number) for number in range(3)]
    api.fleet.failed |= set(ids)
    api.data.initial_password.write_text("secret")
    found = overview(api, api.key(scope={"proxies": ids[:1]}))
    assert found["proxies"]["total"] == 1
    assert found["pools"] is None
    assert [each["id"] for each in found["attention"]["entries"]] == ids[:1]
    asked = [each for each in others.asked if isinstance(each, (QueryRealtime, QueryMetricSeries))]
    assert {each.proxy_ids for each in asked} == {(ids[0],)}
    assert [each.query.proxy_ids for each in others.asked if isinstance(each, CountLogs)] == [(ids[0],)]


# --- what it costs ------------------------------------------------------------------------------------------------


def test_all_callers_who_see_the_same_share_one_response(api: Api, others: Others) -> None:
    api.services.overviews.fresh = 3600.0
    api.add_user("eva", role="administrator")
    bodies = {api.get("/overview", api.token(name)).text for name in ("admin", "eva") for _ in range(5)}
    assert len(bodies) == 1
    assert others.count(QueryRealtime) == 1
    api.add_user("bob", role="user")
    overview(api, api.token("bob"))
    assert others.count(QueryRealtime) == 2


def test_what_is_used_most_is_counted_once_for_all_for_a_minute(api: Api, others: Others) -> None:
    for _ in range(5):
        overview(api)
    assert (others.count(QueryRealtime), others.count(CountLogs)) == (5, 1)


def conditional(api: Api, etag: str, headers: dict[str, str]) -> Result:
    return api.get("/overview", {**headers, "If-None-Match": etag})


def test_what_has_not_changed_is_304(api: Api, others: Others) -> None:
    headers = api.token()
    api.services.overviews.fresh = 3600.0  # the series moves with the clock
    first = api.get("/overview", headers)
    etag = first.headers["ETag"]
    assert etag.startswith('"')
    for known in (etag, f'"other", W/{etag}', "*"):
        response = conditional(api, known, headers)
        assert (response.status_code, response.content, response.headers["ETag"]) == (304, b"", etag)
    assert conditional(api, '"other"', headers).status_code == 200
    api.services.overviews.fresh = 0.0
    others.rate = 99.0
    changed = conditional(api, etag, headers)
    assert changed.status_code == 200
    assert changed.headers["ETag"] != etag


def test_while_one_makes_it_others_get_the_one_before(api: Api, others: Others) -> None:
    headers = api.token()
    overview(api, headers)
    reached, go_on = threading.Event(), threading.Event()
    replies = api.fleet.others[METRICS]

    def slow(message: Any) -> Any:
        if isinstance(message, QueryRealtime):
            reached.set()
            assert go_on.wait(120)
        return replies(message)

    api.fleet.others[METRICS] = slow
    others.rate = 99.0
    with ThreadPoolExecutor(1) as pool:
        making = pool.submit(overview, api, headers)
        assert reached.wait(120)
        assert overview(api, headers)["now"]["requests_per_second"] == 12.5
        go_on.set()
        assert making.result(30)["now"]["requests_per_second"] == 99.0
