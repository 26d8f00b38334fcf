"""The exposition: its form, who gets which part of it, and what dashboard and alert rules make of it."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from typing import Any

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from actors.bus.messages.common import METRICS, Problem
from actors.bus.messages.events import WebhookSenderState, WebhookStatus
from actors.bus.messages.metrics import QueryStats, QuerySystem, Stats, SystemMetrics
from actors.bus.messages.specs import UpstreamState
from actors.bus.messages.supervision import Runtime
from actors.histogram import bucket_of
from actors.metrics.usage.account_usage import UsageLedger
from actors.pools.state import PoolCounts
from api.fleet import NodeFigures
from api.queries.metrics.prometheus import Parts, PoolMetrics, Proxy, expose
from api.queries.usage_report import TopAccount
from tests.kit.api_stage import PROXY, Api, error_of
from tests.kit.folders import ROOT
from tests.kit.live_state import counted_line
from tests.kit.standin_actors import stats_of
from tests.kit.tables import table

GRAFANA = ROOT / "docs" / "grafana"
FASTEST = bucket_of(0.0001)
STATS = stats_of(
    requests=7,
    errors=2,
    denied=1,
    auth_failures=1,
    active_connections=3,
    connections=5,
    bytes_in=1024,
    bytes_out=2048,
    response_seconds=1.25,
    last_request=1_700_000_000.0,
    refusals={"client_denied": 1},
    tls_names={"match": 3, "mismatch": 1},
    statuses={"200": 5, "502": 2},
    latency=((FASTEST, 4), (bucket_of(0.3), 2), (bucket_of(1e6), 1)),
)
FIGURES = SystemMetrics(50.0, (0.1, 0.1, 0.1), 25.0, 100, 25, 10.0, 900, 65, "pss", 70, 60, 80, 0.0, 0.0, 0.0, STATS)
ONE = Proxy("prx_1", 'a "name"\n', "http", active=True)
DOWN = Problem("upstream_down", "the upstream p1 is down", 1.0, "p1")
UNUSABLE = Problem("certificate", "clients are rejected", 1.0, serves=False)
RUNS = {
    "prx_1": Runtime("degraded", 7, 1.0, 2, "down", problems=(DOWN, replace(DOWN, subject="p2")), certificate_ends=9.0)
}
NODE = NodeFigures(1.5, True, False, 700, {bucket_of(0.004): 3, bucket_of(2.0): 1}, 2.25)
PARTS = Parts(
    {"prx_1": (UpstreamState("p1", "down", 1.0, 0, 0, 0, 0, 0, 2.5, None),)},
    [("wh_1", "ops", WebhookStatus(3, None, 1.0, "503", 4))],
    [TopAccount("acc_1", "ada", 10, 20)],
    pools=[PoolMetrics("pool_1", "paris", PoolCounts(1, 1, 0, 1, 0, 1, 0.01, 4, 1, 0), True)],
    node=NODE,
)
SENDER = WebhookSenderState(9, 3, 2)


def families(text: bytes) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text.decode())}


def value(text: bytes, metric: str, **labels: str) -> float:
    (found,) = (
        sample.value
        for family in families(text).values()
        for sample in family.samples
        if sample.name == metric and labels.items() <= sample.labels.items()
    )
    return found


def test_counters_have_their_labels_and_values() -> None:
    text = expose([ONE], {"prx_1": STATS}, RUNS, FIGURES, SENDER, PARTS)
    assert value(text, "proxyfleet_requests_total", proxy="prx_1", protocol="http", code="502") == 2
    assert value(text, "proxyfleet_refusals_total", reason="client_denied") == 1
    assert value(text, "proxyfleet_tls_names_total", proxy="prx_1", kind="match") == 3
    assert value(text, "proxyfleet_received_bytes_total", proxy="prx_1") == 1024
    assert value(text, "proxyfleet_proxy_info", name='a "name"\n') == 1
    assert value(text, "proxyfleet_errors_total", name='a "name"\n') == 2
    assert value(text, "proxyfleet_cpu_usage_ratio") == 0.5
    assert value(text, "proxyfleet_events_lost_total") == 2
    assert value(text, "proxyfleet_deliveries_waiting") == 3


def test_a_node_of_a_fleet_has_metrics_of_its_own_and_one_machine_has_none() -> None:
    text = expose([], {}, {}, None, parts=PARTS)
    names = ("node_behind_seconds", "node_database_connected", "node_doorbell", "usage_unreported_bytes")
    assert [value(text, f"proxyfleet_{name}") for name in names] == [1.5, 1, 0, 700]
    assert value(text, "proxyfleet_node_commit_seconds_count") == 4
    assert value(text, "proxyfleet_node_commit_seconds_sum") == 2.25
    assert b"proxyfleet_node_" not in expose([], {}, {}, None)
    unknown = expose([], {}, {}, None, parts=Parts(node=NODE._replace(behind=None)))
    assert not families(unknown)["proxyfleet_node_behind_seconds"].samples


def test_the_histogram_is_cumulative_and_ends_with_all() -> None:
    (family,) = (
        each
        for name, each in families(expose([ONE], {"prx_1": STATS}, RUNS, None)).items()
        if "time" in name and each.type == "histogram"
    )
    buckets = [sample for sample in family.samples if sample.name.endswith("_bucket")]
    counts = [sample.value for sample in buckets]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1], buckets[-1].labels["le"]) == (4, 7, "+Inf")
    assert [sample.value for sample in family.samples if sample.name.endswith("_count")] == [7]
    assert [sample.value for sample in family.samples if sample.name.endswith("_sum")] == [1.25]


def test_a_proxy_without_traffic_counts_0_and_one_that_was_stopped_is_not_down() -> None:
    stopped = Proxy("prx_2", "two", "socks5", active=False)
    text = expose([ONE, stopped], {}, {}, None)
    assert value(text, "proxyfleet_errors_total", proxy="prx_2") == 0
    assert [sample.labels["proxy"] for sample in families(text)["proxyfleet_proxy_up"].samples] == ["prx_1"]
    assert value(text, "proxyfleet_proxy_up", proxy="prx_1") == 0


def test_problems_are_counted_by_reason_upstream_and_webhook() -> None:
    text = expose([ONE], {}, RUNS, None, SENDER, PARTS)
    assert value(text, "proxyfleet_proxy_up", proxy="prx_1") == 1
    assert value(text, "proxyfleet_proxy_degraded", proxy="prx_1") == 1
    assert value(text, "proxyfleet_proxy_problem", reason="upstream_down") == 1
    assert value(text, "proxyfleet_certificate_end_timestamp_seconds") == 9
    assert value(text, "proxyfleet_upstream_up", upstream="p1") == 0
    assert value(text, "proxyfleet_upstream_connect_seconds", upstream="p1") == 0.0025
    assert value(text, "proxyfleet_webhook_waiting", webhook="wh_1", name="ops") == 3
    assert value(text, "proxyfleet_webhook_failed_requests_total", webhook="wh_1") == 4


def test_a_proxy_that_turns_all_clients_away_is_not_up() -> None:
    runs = {"prx_1": replace(RUNS["prx_1"], problems=(UNUSABLE,))}
    assert value(expose([ONE], {}, runs, None), "proxyfleet_proxy_up") == 0
    assert (
        value(expose([ONE], {}, {"prx_1": Runtime("running", 7, 1.0, 0, None)}, None), "proxyfleet_proxy_degraded") == 0
    )


def test_all_names_begin_with_ours_and_no_label_can_hold_a_client() -> None:
    for name, family in families(expose([ONE], {"prx_1": STATS}, RUNS, FIGURES, SENDER, PARTS)).items():
        assert name.startswith("proxyfleet_")
        for sample in family.samples:
            assert sample.labels.keys() <= {
                "proxy",
                "protocol",
                "code",
                "reason",
                "le",
                "name",
                "version",
                "upstream",
                "webhook",
                "account",
                "pool",
                "state",
                "by",
                "kind",
            }


EXPRESSIONS = [
    *re.findall(r'"expr": "((?:[^"\\]|\\.)*)"', (GRAFANA / "dashboard.json").read_text()),
    *re.findall(r"expr: (?:\|\n)?((?:.|\n)*?)(?=\n {8}(?:for|labels):)", (GRAFANA / "alerts.yml").read_text()),
]


@table("expression", EXPRESSIONS)
def test_dashboard_and_alerts_name_only_metrics_and_labels_that_there_are(expression: str) -> None:
    exposed = families(expose([ONE], {"prx_1": STATS}, RUNS, FIGURES, SENDER, PARTS))
    samples = {sample.name: set(sample.labels) for family in exposed.values() for sample in family.samples}
    named = re.findall(r"proxyfleet_[a-z_]+", expression)
    assert named or expression.startswith("up{")
    for name in named:
        assert name in samples, f"{name} is not exposed"
    for labels in re.findall(r"by \(([^)]*)\)", expression):
        assert set(re.split(r",\s*", labels)) <= set().union(*(samples[name] for name in named))


def test_dashboard_and_alerts_are_all_read() -> None:
    panels = json.loads((GRAFANA / "dashboard.json").read_text())["panels"]
    alerts = (GRAFANA / "alerts.yml").read_text().count("- alert:")
    assert len(EXPRESSIONS) == sum(len(panel["targets"]) for panel in panels) + alerts


def test_the_documents_say_what_each_alert_means() -> None:
    rules = re.findall(r"- alert: (\w+)", (GRAFANA / "alerts.yml").read_text())
    rows = re.findall(r"^\| `(Proxyfleet\w+)` \|", (GRAFANA.parent / "operations.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(rules)


def test_alerts_can_tell_pools_that_no_proxy_uses() -> None:
    pools = [PoolMetrics("pool_1", "paris", PoolCounts(0, 2, 0, 2, 0, 0, None), in_use) for in_use in (True, False)]
    for pool, expected in zip(pools, (1, 0), strict=True):
        text = expose([], {}, {}, None, parts=Parts(pools=[pool]))
        assert value(text, "proxyfleet_pool_in_use") == expected
        assert value(text, "proxyfleet_pool_usable_upstreams") == 0


def test_the_table_of_the_documents_names_every_metric() -> None:
    text = (GRAFANA.parent / "metrics.md").read_text()
    for family in families(expose([ONE], {"prx_1": STATS}, RUNS, FIGURES, SENDER, PARTS)).values():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert f"`{name}`" in text, f"docs/metrics.md does not tell of {name}"


def collector(api: Api) -> list[Any]:
    received: list[Any] = []

    def ask(to: str, message: Any, timeout: float = 5.0) -> Any:
        if to == METRICS and isinstance(message, QueryStats) and message.detailed:
            received.append(message)
            return Stats(dict.fromkeys(message.proxy_ids, STATS))
        return FIGURES if isinstance(message, QuerySystem) else original(to, message, timeout)

    original = api.fleet.ask
    api.fleet.ask = ask  # type: ignore[method-assign]
    return received


def test_the_accounts_that_have_used_most_have_series_when_they_are_asked_for(api: Api) -> None:
    collector(api)
    ledger = UsageLedger(api.services.data.metrics, time.time)
    for account, count in (("acc_few", 1), ("acc_more", 50), ("acc_most", 100), ("crd_of_it", 100)):
        with ledger.changes():
            ledger.book(counted_line(account, (count, 2 * count, 1, 0, 0), "prx_1", count, name=f"{account}'s name"))
    headers = api.token()
    assert "proxyfleet_account_" not in api.client.simulate_get("/metrics", headers=headers).text

    metrics = {**api.services.settings.whole.get("metrics", {}), "prometheus_accounts": 2}
    api.services.settings = replace(api.services.settings, whole={**api.services.settings.whole, "metrics": metrics})
    text = families(api.client.simulate_get("/metrics", headers=headers).content)

    assert {each.labels["account"]: each.value for each in text["proxyfleet_account_sent_bytes"].samples} == {
        "acc_most": 200,
        "acc_more": 100,
    }
    key = api.key(permissions=["metrics.read"], scope={"proxies": ["prx_1"]})
    assert "acc_most" not in api.client.simulate_get("/metrics", headers=key).text
    ledger.close()


def test_a_key_with_a_scope_scrapes_the_proxies_in_it_alone(api: Api) -> None:
    headers, received = api.token(), collector(api)
    ids = [
        api.post("/proxies", {**PROXY, "name": name, "port": port}, headers).json["data"]["proxy"]["id"]
        for name, port in (("one", 3128), ("two", 3129))
    ]
    key = api.key(permissions=["metrics.read"], scope={"proxies": [ids[0]]})
    scoped = api.client.simulate_get("/metrics", headers=key)
    assert scoped.status_code == 200, scoped.text
    assert ids[0] in scoped.text
    assert ids[1] not in scoped.text
    assert "proxyfleet_cpu_usage_ratio" not in scoped.text
    assert ids[1] in api.client.simulate_get("/metrics", headers=headers).text
    assert [set(message.proxy_ids) for message in received] == [{ids[0]}, set(ids)]


def test_scraping_needs_metrics_read(api: Api) -> None:
    key = api.key(permissions=["proxy.read"])
    assert error_of(api.client.simulate_get("/metrics", headers=key))[:2] == (403, "INSUFFICIENT_PERMISSIONS")
    assert error_of(api.client.simulate_get("/metrics"))[:2] == (401, "UNAUTHORIZED")
    nothing = {"Authorization": "Bearer "}
    assert api.client.simulate_get("/metrics", headers=nothing).status_code == 401, "no token is not an empty token"


def test_without_a_collector_a_scrape_fails_and_has_no_zeros(api: Api) -> None:
    headers = api.token()
    api.post("/proxies", PROXY, headers)
    api.fleet.gone.add(METRICS)
    assert error_of(api.client.simulate_get("/metrics", headers=headers))[:2] == (503, "UNAVAILABLE")
