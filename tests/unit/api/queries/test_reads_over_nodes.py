"""What is on machines is read of all nodes of a fleet: metrics, cached names, deliveries. Missing nodes are named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.bus.mailbox import NOT_ON_THE_BUS
from actors.bus.messages.common import LOGS, METRICS, PROXY_RESOLVER, RESOLVER, WEBHOOKS, Unreachable
from actors.bus.messages.dns import DnsCache, DnsEntry, DnsState, ForgetNames, NamesForgotten, QueryDns
from actors.bus.messages.events import (
    Deliveries,
    Event,
    QueryDeliveries,
    Redeliver,
    SendTestEvent,
    WebhookStatuses,
    WebhookTried,
)
from actors.bus.messages.metrics import QueryMetricSeries, QueryRealtime, Realtime
from actors.bus.messages.records import CountLogs, LogCounts
from actors.histogram import bucket_of
from actors.logs.record_schema import HOST
from actors.metrics.catalogue import NAMES, read_in_batches
from actors.metrics.series_writer import SeriesWriter
from actors.metrics.totals import CounterTotals
from actors.webhooks.outbox import Outbox
from api.bus_bridge import NodeMissing, on_node
from api.objects.webhooks import webhook_sender
from tests.kit.api_stage import PROXY
from tests.kit.standin_actors import counters
from tests.kit.tables import table
from tests.unit.api.objects.nodes.staged_nodes import FleetApi, presence, two_nodes

NYC = "nod_nyc"
MISSING = {"missing_nodes": [{"node": "nyc", "reason": "connection refused"}]}
NONE_MISSING: dict[str, Any] = {"missing_nodes": []}
MINUTE = 1_767_225_600
"""Midnight."""


@pytest.fixture
def fra() -> Iterator[FleetApi]:
    with two_nodes() as (fra, _nyc):
        yield fra


def ask(api: FleetApi, path: str, method: str = "GET", body: Any = None) -> Any:
    status, data = api.ask(method, path, body)
    assert status == 200, data
    return data


def end_nyc(api: FleetApi) -> None:
    for to in list(api.fleet.others):
        if to.startswith(NYC):
            api.fleet.others[to] = lambda _message, to=to: NodeMissing(to, "connection refused")


# --- metrics ---


class Collector:
    """The series of a node; all that is counted is counted half a minute after midnight."""

    def __init__(self, folder: Path) -> None:
        self.totals = CounterTotals(folder, lambda: 500.0)
        self.writer = SeriesWriter(self.totals, lambda: 500.0, lambda: MINUTE + 30.0)
        self._instances = 0

    def count(self, milliseconds: list[float], errors: int = 0, refused: int = 0, received: int = 0) -> None:
        """So many requests with responses, and refused ones without."""
        self._instances += 1
        latency: dict[int, int] = {}
        for each in milliseconds:
            latency[bucket_of(each / 1000)] = latency.get(bucket_of(each / 1000), 0) + 1
        answered = len(milliseconds)
        process = int((MINUTE + 25) * 1e6) + self._instances
        figures: dict[str, Any] = {
            "errors": errors, "response_seconds": sum(milliseconds) / 1000, "bytes_in": received,
        }  # fmt: skip
        self.writer.update(
            counters(
                "prx_1", process, answered + refused, latency=tuple(latency.items()), active_connections=1, **figures
            )
        )

    def __call__(self, message: Any) -> Any:
        if isinstance(message, QueryRealtime):
            found = Realtime(1.0, {**self.writer.live_metrics(), "active_connections": 2, "memory_usage": 30.0})
            minute = self.writer.last_minute()
            uses = self.writer.recent.of(message.recent, MINUTE + 35.0)
            return Realtime(1.0, found.metrics, minute["requests"], tuple(minute.latency.items()), uses)
        if not isinstance(message, QueryMetricSeries):
            return Unreachable(METRICS, "it is not played")
        self.writer.tick(40.0, 20.0)
        self.writer.request_store()
        self.totals.save()
        try:
            reading = read_in_batches(self.writer.series, message, MINUTE + 60.0)
            while True:
                next(reading)
        except StopIteration as done:
            return done.value


TRAFFIC = (([10.0] * 90 + [200.0] * 10, 10, 5, 1000), ([400.0] * 30, 0, 15, 500), ([], 0, 0, 0))


@pytest.fixture
def collectors(fra: FleetApi, tmp_path: Path) -> Iterator[list[Collector]]:
    """Of `fra`, of `nyc`, and of one machine with the traffic of both."""
    made = [Collector(tmp_path / name) for name in ("fra", "nyc", "both")]
    for collector, traffic in ((0, TRAFFIC[0]), (1, TRAFFIC[1]), (2, TRAFFIC[0]), (2, TRAFFIC[1])):
        made[collector].count(*traffic)
    fra.fleet.others |= {METRICS: made[0], on_node(NYC, METRICS): made[1]}
    yield made
    for each in made:
        each.totals.close()


RANGE = "start_time=2026-01-01T00:00:00Z&end_time=2026-01-01T00:01:00Z&interval=1m"


def test_series_of_two_nodes_are_those_of_one_machine_with_the_traffic_of_both(
    fra: FleetApi, collectors: list[Collector]
) -> None:
    over_nodes = ask(fra, f"/metrics?{RANGE}")
    assert over_nodes["meta"] == NONE_MISSING
    fra.fleet.others[METRICS] = collectors[2]
    alone = ask(fra, f"/metrics?{RANGE}&node=self")
    assert over_nodes["metrics"].keys() == alone["metrics"].keys() == set(NAMES)
    for name in NAMES:
        values = [each["value"] for each in over_nodes["metrics"][name]]
        assert values == pytest.approx([each["value"] for each in alone["metrics"][name]], abs=1e-4), name
    (p95,) = over_nodes["metrics"]["response_time_p95"]
    assert 330 < p95["value"] < 480


@table("name", ["error_rate", "response_time_avg", "response_time_p99", "bandwidth_in", "cpu_usage"])
def test_one_metric_alone_is_merged_as_among_all(fra: FleetApi, collectors: list[Collector], name: str) -> None:
    every = ask(fra, f"/metrics?{RANGE}")["metrics"][name]
    assert ask(fra, f"/metrics?{RANGE}&metrics={name}")["metrics"] == {name: every}


def test_present_metrics_of_two_nodes_are_those_of_both(fra: FleetApi, collectors: list[Collector]) -> None:
    over_nodes = ask(fra, "/metrics/realtime")["metrics"]
    fra.fleet.others[METRICS] = collectors[2]
    alone = ask(fra, "/metrics/realtime?node=self")["metrics"]
    assert (over_nodes.pop("active_connections"), alone.pop("active_connections")) == (4, 2)
    assert over_nodes == pytest.approx(alone, abs=0.01)
    assert over_nodes["error_rate"] == pytest.approx(100 * 10 / 150, abs=0.01)


def test_the_latest_uses_over_two_nodes_are_the_sum(fra: FleetApi, collectors: list[Collector]) -> None:
    over_nodes = ask(fra, "/metrics/realtime?recent=prx_1")["recent"]
    fra.fleet.others[METRICS] = collectors[2]
    assert over_nodes == ask(fra, "/metrics/realtime?recent=prx_1&node=self")["recent"]
    assert (over_nodes["prx_1"]["rates"][-1], over_nodes["prx_1"]["requests"][-1]) == (1500 // 5, 150)


def test_metrics_of_a_node_that_is_missing_are_not_in_the_sum(fra: FleetApi, collectors: list[Collector]) -> None:
    here = ask(fra, f"/metrics?{RANGE}&node=self")["metrics"]["requests_total"]
    end_nyc(fra)
    data = ask(fra, f"/metrics?{RANGE}")
    assert (data["metrics"]["requests_total"], data["meta"]) == (here, MISSING)
    data = ask(fra, f"/metrics?{RANGE}&node=nyc")
    assert (data["metrics"]["requests_total"], data["meta"]) == ([], MISSING)
    assert ask(fra, "/metrics/realtime?node=nyc")["metrics"]["requests_per_second"] == 0


def test_a_node_of_a_release_without_a_metric_adds_nothing_to_it(fra: FleetApi, collectors: list[Collector]) -> None:
    def of_former_release(message: Any) -> Any:
        reply = collectors[1](message)
        if isinstance(reply, Realtime):
            return replace(reply, metrics={n: each for n, each in reply.metrics.items() if n != "active_connections"})
        return replace(reply, values={name: each for name, each in reply.values.items() if name != "bandwidth_in"})

    fra.fleet.others[on_node(NYC, METRICS)] = of_former_release
    assert ask(fra, "/metrics/realtime")["metrics"]["active_connections"] == 2
    here = ask(fra, f"/metrics?{RANGE}&node=self")["metrics"]["bandwidth_in"]
    assert ask(fra, f"/metrics?{RANGE}")["metrics"]["bandwidth_in"] == here


def test_without_the_collector_of_the_asked_node_there_is_no_response(
    fra: FleetApi, collectors: list[Collector]
) -> None:
    fra.fleet.gone.add(METRICS)
    assert fra.ask("GET", "/metrics")[0] == 503
    assert ask(fra, f"/metrics?{RANGE}&node=nyc")["metrics"]["requests_total"][0]["value"] == 45


# --- the first screen ---


def indexer(records: int) -> Any:
    def reply(message: Any) -> Any:
        assert isinstance(message, CountLogs)
        hosts = (("a.example", 5, 1, 1), (f"{records}.example", records, 1, 1))
        return LogCounts(0, (records,), (0,), {HOST: hosts}, True)

    return reply


@pytest.fixture
def first_screen(fra: FleetApi, collectors: list[Collector]) -> FleetApi:
    fra.services.overviews.fresh = 0.0
    fra.fleet.others |= {LOGS: indexer(3), on_node(NYC, LOGS): indexer(4)}
    made = []
    for number, nodes in enumerate(({"all": True}, {"names": ["fra"]}, {"names": ["nyc"]})):
        body = {**PROXY, "name": f"p{number}", "port": 3128 + number, "nodes": nodes}
        made.append(fra.ask("POST", "/proxies", body)[1]["proxy"]["id"])
    fra.node.present = {NYC: presence(problems={"proxies": {made[2]: {"state": "failed", "error": "port"}}})}
    return fra


def test_the_first_screen_is_of_all_nodes_or_of_one(first_screen: FleetApi) -> None:
    found = {each: ask(first_screen, f"/overview?node={each}") for each in ("all", "fra", "nyc")}
    rates = {each: data["now"]["requests_per_second"] for each, data in found.items()}
    assert rates["all"] == pytest.approx(rates["fra"] + rates["nyc"], abs=0.01)
    hosts = {
        each: [(host["host"], host["requests"]) for host in data["top"]["targets"]] for each, data in found.items()
    }
    assert hosts["all"] == [("a.example", 10), ("4.example", 4), ("3.example", 3)]
    assert hosts["nyc"] == [("a.example", 5), ("4.example", 4)]
    states = {each: data["proxies"] for each, data in found.items()}
    assert states["all"] == {"total": 3, "by_state": {"failed": 1, "running": 2}}
    assert states["fra"] == {"total": 2, "by_state": {"running": 2}}
    assert states["nyc"] == {"total": 2, "by_state": {"failed": 1, "running": 1}}
    assert [data["meta"] for data in found.values()] == [NONE_MISSING] * 3


def test_a_node_that_is_missing_on_the_first_screen_is_asked_once_and_named(first_screen: FleetApi) -> None:
    end_nyc(first_screen)
    first_screen.fleet.received.clear()
    for _ in range(2):  # what is used most is from before, and still without that node
        data = ask(first_screen, "/overview")
        assert data["meta"] == MISSING
        assert [each["host"] for each in data["top"]["targets"]] == ["a.example", "3.example"]
    asked = [to for to, _message in first_screen.fleet.received if to.startswith(NYC)]
    assert asked == [on_node(NYC, METRICS)] * 2


def test_a_search_finds_nodes_and_the_hosts_of_all_nodes(first_screen: FleetApi) -> None:
    def lines(path: str) -> list[tuple[str, str, str]]:
        data = ask(first_screen, path)
        assert data["meta"] == NONE_MISSING
        return [(each["kind"], each["name"], each["detail"]) for each in data["results"]]

    assert lines("/search?q=a.example") == [("host", "a.example", "10 requests in the last hour")]
    assert lines("/search?q=eu&kinds=node") == [("node", "fra", "full, eu")]
    assert lines("/search?q=192.0.2.2&kinds=node") == [("node", "nyc", "full, us")]
    assert lines("/search?q=p2") == [("proxy", "p2", "http 127.0.0.1:3130, failed")]


# --- names ---


def resolver(host: str, dropped: int) -> Any:
    entry = DnsEntry(host, "A", "found", ("192.0.2.1",), 5.0, (), "")

    def reply(message: Any) -> Any:
        if isinstance(message, ForgetNames):
            return NamesForgotten(dropped)
        return DnsState(3, 1, 0, 1, 0, {}, ()) if isinstance(message, QueryDns) else DnsCache((entry,), dropped)

    return reply


@pytest.fixture
def resolvers(fra: FleetApi) -> None:
    absent = Unreachable(PROXY_RESOLVER, NOT_ON_THE_BUS)
    fra.fleet.others |= {
        RESOLVER: resolver("fra.example", 2),
        PROXY_RESOLVER: lambda _message: absent,
        on_node(NYC, RESOLVER): resolver("nyc.example", 7),
        on_node(NYC, PROXY_RESOLVER): lambda _message: absent,
    }


def test_cached_names_are_those_of_all_nodes(fra: FleetApi, resolvers: None) -> None:
    data = ask(fra, "/dns/cache")
    assert [(each["node"], each["name"]) for each in data["entries"]] == [
        ("fra", "fra.example"),
        ("nyc", "nyc.example"),
    ]
    assert (data["total"], data["resolver"]["requests"], data["meta"]) == (9, 6, NONE_MISSING)
    assert [each["name"] for each in ask(fra, "/dns/cache?node=nyc")["entries"]] == ["nyc.example"]


def test_cached_names_are_dropped_on_all_nodes(fra: FleetApi, resolvers: None) -> None:
    assert ask(fra, "/dns/cache?node=nyc", "DELETE") == {"dropped": 7, "meta": NONE_MISSING}
    assert ask(fra, "/dns/cache", "DELETE") == {"dropped": 9, "meta": NONE_MISSING}
    end_nyc(fra)
    assert ask(fra, "/dns/cache", "DELETE") == {"dropped": 2, "meta": MISSING}


# --- webhooks ---


class Sender:
    """The webhook sender of a node, on a real outbox."""

    def __init__(self, folder: Path) -> None:
        self.outbox = Outbox(folder)
        self.tried = WebhookTried(True, 200, 12, None)
        self.again: list[str] = []

    def deliver(self, webhook_id: str, *seconds: int) -> None:
        for each in seconds:
            event = self.outbox.add(Event(f"evt_{each}", "proxy.created", float(each), {}))
            assert event is not None
            self.outbox.fan_out([(event, [webhook_id])], float(each))

    def __call__(self, message: Any) -> Any:
        if isinstance(message, QueryDeliveries):
            found, total = self.outbox.deliveries(message.webhook_id, message.status, message.limit, message.offset)
            return Deliveries(tuple(found), total)
        if isinstance(message, Redeliver):
            found, _total = self.outbox.deliveries(message.webhook_id, "", 100, 0)
            mine = tuple(each for each in found if each.id == message.delivery_id)
            self.again += [each.id for each in mine]
            return Deliveries(mine, len(mine))
        return self.tried if isinstance(message, SendTestEvent) else WebhookStatuses({})


class Hook:
    """A webhook, with deliveries on two nodes."""

    def __init__(self, api: FleetApi, folder: Path, stack: ExitStack) -> None:
        self.api = api
        self.fra, self.nyc = (Sender(folder / name) for name in ("fra", "nyc"))
        for each in (self.fra, self.nyc):
            stack.enter_context(closing(each.outbox))
        api.fleet.others |= {WEBHOOKS: self.fra, on_node(NYC, WEBHOOKS): self.nyc}
        body = {"name": "hook", "url": "http://192.0.2.9/", "events": ["proxy.created"]}
        status, data = api.ask("POST", "/webhooks", body)
        assert status == 201, data
        self.path = f"/webhooks/{data['webhook']['id']}"
        self.fra.deliver(data["webhook"]["id"], *range(0, 20, 2))
        self.nyc.deliver(data["webhook"]["id"], *range(1, 20, 2))

    def seconds(self, query: str = "") -> list[int]:
        found = ask(self.api, f"{self.path}/deliveries{query}")["deliveries"]
        assert all(each["node"] == ("nyc" if int(each["event_id"][4:]) % 2 else "fra") for each in found)
        return [int(each["event_id"][4:]) for each in found]


@pytest.fixture
def hook(fra: FleetApi, tmp_path: Path) -> Iterator[Hook]:
    with ExitStack() as stack:
        yield Hook(fra, tmp_path, stack)


@table("piece", [500, 3])
@table(
    "query, found",
    [
        ("", list(range(19, -1, -1))),
        ("?limit=5", [19, 18, 17, 16, 15]),
        ("?limit=5&offset=12", [7, 6, 5, 4, 3]),
        ("?limit=5&offset=18", [1, 0]),
        ("?node=nyc&limit=2", [19, 17]),
        ("?node=self&limit=2&offset=1", [16, 14]),
        ("?status=failed", []),
    ],
)
def test_deliveries_of_all_nodes_are_one_list(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, query: str, found: list[int], piece: int
) -> None:
    monkeypatch.setattr(webhook_sender, "PIECE", piece)
    assert hook.seconds(query) == found


def test_totals_of_deliveries_are_sums_and_a_missing_node_is_named(hook: Hook) -> None:
    data = ask(hook.api, f"{hook.path}/deliveries?limit=3")
    assert (data["total"], data["has_more"], data["meta"]) == (20, True, NONE_MISSING)
    assert hook.api.ask("GET", f"{hook.path}/deliveries?offset=10001")[0] == 400
    end_nyc(hook.api)
    data = ask(hook.api, f"{hook.path}/deliveries")
    assert (data["total"], data["meta"]) == (10, MISSING)


def test_the_node_that_has_a_delivery_sends_it_again(hook: Hook) -> None:
    there, here = (each["id"] for each in ask(hook.api, f"{hook.path}/deliveries?limit=2")["deliveries"])
    for delivery, node in ((there, "nyc"), (here, "fra")):
        data = ask(hook.api, f"{hook.path}/deliveries/{delivery}/redeliver", "POST")
        assert (data["delivery"]["id"], data["delivery"]["node"]) == (delivery, node)
    assert (hook.fra.again, hook.nyc.again) == ([here], [there])
    assert hook.api.ask("POST", f"{hook.path}/deliveries/dlv_none/redeliver")[0] == 404
    end_nyc(hook.api)
    assert hook.api.ask("POST", f"{hook.path}/deliveries/{there}/redeliver")[0] == 503


def test_each_node_tries_a_webhook(hook: Hook) -> None:
    hook.nyc.tried = WebhookTried(False, None, None, "no route to host")
    data = ask(hook.api, f"{hook.path}/test", "POST")
    assert (data["delivered"], data["error"]) == (False, "no route to host")
    assert [(each["node"], each["delivered"]) for each in data["nodes"]] == [("fra", True), ("nyc", False)]
    assert ask(hook.api, f"{hook.path}/test?node=fra", "POST")["delivered"]
    end_nyc(hook.api)
    assert ask(hook.api, f"{hook.path}/test?node=nyc", "POST")["error"] == "no node has responded"
