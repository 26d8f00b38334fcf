"""Push to an OpenTelemetry collector: its content, and that no collector causes more than an error in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actors.bus.messages.supervision import Runtime
from actors.histogram import bucket_of
from actors.telemetry.metrics import PushedMetrics, export_of
from actors.telemetry.otlp_client import Collector, ResourceIdentity, read_identity
from config.settings.groups import Otlp
from config.settings.loading import load
from config.settings.settings import ConfigError
from tests.kit.endless_peer import EndlessPeer
from tests.kit.otlp_receiver import Receiver, metrics_of, series_of, words
from tests.kit.ports import free_port
from tests.kit.standin_actors import stats_of
from tests.kit.tables import table

IDENTITY = ResourceIdentity("11111111-2222-3333-4444-555555555555", 1_767_225_600.0)
RUNTIME = Runtime("running", 7, 1_767_225_600.0, 2, None, "front", "http")
STATS = stats_of(
    requests=12,
    errors=2,
    denied=3,
    auth_failures=1,
    active_connections=4,
    connections=9,
    bytes_in=1_000,
    bytes_out=2_000,
    response_seconds=1.5,
    last_request=1_767_225_700.0,
    refusals={"destination_denied": 3},
    statuses={"200": 10, "502": 2},
    latency=((bucket_of(0.0005), 5), (bucket_of(0.1), 4), (bucket_of(100.0), 1)),
    cpu_seconds=2.5,
    resident=20_000_000,
)
OWN = {("proxy", "prx_1"), ("proxy.name", "front"), ("protocol", "http")}


def pushed() -> Any:
    return export_of(IDENTITY, PushedMetrics({"prx_1": RUNTIME}, {"prx_1": STATS}, None, 1_767_225_800.0))


def test_every_total_is_a_cumulative_sum_since_the_identity_began() -> None:
    series = series_of(pushed())
    point = series["proxyfleet.requests", frozenset({*OWN, ("code", "200")})]
    assert (point.as_int, point.start_time_unix_nano, point.time_unix_nano) == (
        10,
        1_767_225_600_000_000_000,
        1_767_225_800_000_000_000,
    )
    numbers = {name: point for (name, own), point in series.items() if own == OWN and hasattr(point, "as_int")}
    found = {name: point.as_int or point.as_double for name, point in numbers.items()}
    assert found["proxyfleet.errors"] == 2
    assert found["proxyfleet.received"] == 1_000
    assert found["proxyfleet.sent"] == 2_000
    assert found["proxyfleet.proxy.cpu_time"] == 2.5
    assert found["proxyfleet.active_connections"] == 4
    assert found["proxyfleet.proxy.up"] == 1
    assert found["proxyfleet.proxy.restarts"] == 2
    sums = [metric for metric in metrics_of(pushed()) if metric.HasField("sum")]
    assert all(metric.sum.is_monotonic and metric.sum.aggregation_temporality == 2 for metric in sums)
    resource = words(pushed().resource_metrics[0].resource.attributes)
    assert {("service.name", "proxyfleet"), ("service.instance.id", IDENTITY.instance_id)} <= resource


def test_the_histogram_has_every_request_in_one_bucket() -> None:
    point = series_of(pushed())["proxyfleet.response_time", frozenset(OWN)]
    assert (point.count, point.sum) == (10, 1.5)
    assert sum(point.bucket_counts) == point.count
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert (point.bucket_counts[0], point.bucket_counts[-1]) == (5, 1)


def test_a_stopped_proxy_is_neither_up_nor_down() -> None:
    stopped = Runtime("stopped", None, 0.0, 0, None, "front", "http")
    series = series_of(export_of(IDENTITY, PushedMetrics({"prx_1": stopped}, {}, None, 1.0)))
    assert "proxyfleet.proxy.up" not in {name for name, _own in series}
    assert series["proxyfleet.errors", frozenset(OWN)].as_int == 0


def test_a_push_has_the_configured_headers_and_is_done_when_it_is_accepted() -> None:
    with Receiver() as receiver:
        headers = {"Authorization": "Bearer of the collector"}
        settings = Otlp(endpoint=receiver.url, timeout=60.0, headers=headers)
        assert Collector(settings).push("metrics", pushed()).error is None
        path, headers, message = receiver.pushed[0]
    assert (path, headers["authorization"]) == ("/v1/metrics", "Bearer of the collector")
    assert headers["content-type"] == "application/x-protobuf"
    assert message == pushed()


@table(("status", "again"), [(503, True), (429, True), (400, False), (401, False), (302, False)])
def test_a_collector_that_rejects_is_an_error_and_some_statuses_mean_later(status: int, again: bool) -> None:
    with Receiver() as receiver, Receiver() as elsewhere:
        receiver.status, receiver.headers = status, {"location": elsewhere.url}
        outcome = Collector(Otlp(endpoint=receiver.url, timeout=60.0)).push("metrics", pushed())
        assert elsewhere.pushed == [], "a redirect is not followed: the content is for the collector alone"
    assert outcome.error is not None
    assert outcome.error.startswith(f"responds {status}")
    assert outcome.again is again


def test_a_collector_that_is_away_or_silent_is_an_error_in_its_time() -> None:
    away = Collector(Otlp(endpoint=f"http://127.0.0.1:{free_port()}", timeout=60.0)).push("metrics", pushed())
    assert (away.error, away.again) == ("can't be reached: Connection refused", True)
    with Receiver() as receiver:
        receiver.hold.clear()
        silent = Collector(Otlp(endpoint=receiver.url, timeout=0.2)).push("metrics", pushed())
        assert silent.error is not None
        assert silent.again
        assert receiver.pushed == [], "it did not wait for the response, which is held back"


@pytest.mark.parametrize(
    ("head", "more", "error", "again"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", "has not responded within 1 s", True),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x", "has not responded within 1 s", True),
        (b"HTTP/1.1 400 No\r\nContent-Length: 99999\r\n\r\n", b"x", "responds 400", False),
    ],
)
def test_a_collector_whose_response_has_no_end_is_left_in_time(
    head: bytes, more: bytes, error: str, again: bool
) -> None:
    with EndlessPeer(head, more) as peer:
        outcome = Collector(Otlp(endpoint=peer.url, timeout=1.0)).push("metrics", pushed())
    assert outcome.error is not None
    assert outcome.error.startswith(error)
    assert outcome.again is again


def test_the_identity_stays_over_restarts_in_a_private_file(tmp_path: Path) -> None:
    folder = tmp_path / "telemetry"
    first = read_identity(folder)
    assert read_identity(folder) == first
    file = folder / "identity.json"
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("{")
    assert read_identity(folder) != first, "a damaged file is made anew"


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ('endpoint = "127.0.0.1:4318"', r"telemetry\.otlp\.endpoint: must be empty, or an http or https URL"),
        ('endpoint = "http://user:secret-word@h:1"', r"telemetry\.otlp\.endpoint: must be empty"),
        ('endpoint = "http://h:1?key=secret-word"', r"telemetry\.otlp\.endpoint: must be empty"),
        ('headers = { "Bad Name" = "secret-word" }', r"telemetry\.otlp\.headers"),
        ('headers = { "Host" = "secret-word" }', r"telemetry\.otlp\.headers"),
        ('headers = { "X-Key" = "secret-word\\r\\nX: y" }', r"telemetry\.otlp: headers\.X-Key: the value must be"),
        ("interval = 0", r"telemetry\.otlp\.interval"),
    ],
)
def test_invalid_endpoints_and_headers_are_rejected_without_displaying_secrets(
    tmp_path: Path, keys: str, problem: str
) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(f"[telemetry.otlp]\n{keys}\n")
    with pytest.raises(ConfigError, match=problem) as refused:
        load(file)
    if "headers" in keys or "@" in keys:
        assert "secret-word" not in str(refused.value)


def test_without_the_extra_an_endpoint_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("config.settings.groups._PACKAGE", "opentelemetry_that_is_not_there.proto")
    file = tmp_path / "fleet.toml"
    file.write_text('[telemetry.otlp]\nendpoint = "http://127.0.0.1:4318"\n')
    with pytest.raises(ConfigError, match=r"telemetry\.otlp: endpoint: needs .*proxyfleet\[otlp\]"):
        load(file)
    file.write_text("[telemetry.otlp]\ninterval = 5\n")
    assert load(file).telemetry.otlp.endpoint == ""
