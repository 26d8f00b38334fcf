"""Push to an OpenTelemetry collector by the whole product: the same figures as elsewhere, and no harm to traffic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.kit.http_origins import Origin
from tests.kit.otlp_receiver import Receiver, words
from tests.kit.ports import free_port
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.product.e2e.fetching import fetched, healthy

pytestmark = pytest.mark.product


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def product(port: int) -> Iterator[Product]:
    env = {
        "PROXYFLEET_TELEMETRY__OTLP__ENDPOINT": f"http://127.0.0.1:{port}",
        "PROXYFLEET_TELEMETRY__OTLP__HEADERS": '{"X-Key": "the key of the collector"}',
        "PROXYFLEET_TELEMETRY__OTLP__INTERVAL": "1",
        "PROXYFLEET_TELEMETRY__OTLP__TIMEOUT": "2",
    }
    with Product(env) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(product: Product) -> dict[str, Any]:
    return product.proxy(name="reported")


@pytest.fixture
def receiver(product: Product, port: int) -> Iterator[Receiver]:
    with Receiver(port) as made:
        yield made


def pushed_requests(receiver: Receiver, proxy: dict[str, Any]) -> int:
    own = {("proxy", proxy["id"]), ("proxy.name", "reported"), ("protocol", "http"), ("code", "200")}
    point = receiver.series().get(("proxyfleet.requests", frozenset(own)))
    return 0 if point is None else int(point.as_int)


def sums(receiver: Receiver, proxy: dict[str, Any]) -> dict[str, float]:
    """What the collector knows of this proxy, by name."""
    return {
        name: point.as_int or point.as_double
        for (name, own), point in receiver.series().items()
        if ("proxy", proxy["id"]) in own and hasattr(point, "as_int")
    }


def test_a_collector_receives_what_prometheus_gets(
    product: Product, proxy: dict[str, Any], receiver: Receiver, origin: Origin
) -> None:
    before = pushed_requests(receiver, proxy)
    for _ in range(5):
        assert fetched(proxy, origin)
    wait_until(lambda: pushed_requests(receiver, proxy) >= before + 5, "the requests are pushed")
    assert receiver.pushed[-1][1]["x-key"] == "the key of the collector"
    text = product.session.get(
        f"{product.base_url}/metrics", headers={"Authorization": f"Bearer {product.token}"}, timeout=60
    ).text
    exposed = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("proxy") == proxy["id"]
    }
    reported = sums(receiver, proxy)
    assert reported["proxyfleet.received"] == exposed["proxyfleet_received_bytes_total"]
    assert reported["proxyfleet.sent"] == exposed["proxyfleet_sent_bytes_total"]
    assert reported["proxyfleet.requests"] == exposed["proxyfleet_requests_total"]
    assert reported["proxyfleet.proxy.up"] == 1
    assert "127.0.0.1" not in str(receiver.of("/v1/metrics")[-1]), "no address of a client or target"


def test_a_collector_that_was_away_receives_everything_and_no_one_else_notices(
    product: Product, proxy: dict[str, Any], origin: Origin, port: int
) -> None:
    wait_until(lambda: "telemetry.otlp" in product.log, "the log says that the collector is away")
    for _ in range(5):
        assert fetched(proxy, origin)
    assert healthy(product)
    requests = product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["stats"]["total_requests"]
    with Receiver(port) as back:
        wait_until(lambda: pushed_requests(back, proxy) >= requests, "what happened meanwhile is pushed")
        wait_until(lambda: "accepts metrics again" in product.log, "the log says that it is back")
    assert "the key of the collector" not in product.log


def records_reported(receiver: Receiver, proxy: dict[str, Any]) -> list[dict[str, Any]]:
    """The access records of this proxy, in the order of the pushes."""
    every = [
        record
        for message in receiver.of("/v1/logs")
        for resource in message.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]
    reported = [{**dict(words(record.attributes)), "level": record.severity_text} for record in every]
    return [each for each in reported if each["proxy"] == proxy["id"]]


def test_access_records_are_pushed_each_once_in_order_also_after_the_collector_was_away(
    product: Product, origin: Origin, port: int
) -> None:
    proxy = product.proxy(name="first")
    with Receiver(port) as first:
        for _ in range(3):
            assert fetched(proxy, origin)
        wait_until(lambda: len(records_reported(first, proxy)) >= 3, "the records are pushed")
        noted = product.data_dir / "telemetry" / "records.json"
        stored = product.data("GET", "/logs")["total"]
        wait_until(lambda: noted.exists() and json.loads(noted.read_text())["after"] >= stored, "that is noted")
        before = records_reported(first, proxy)
    product.data("PATCH", f"/proxies/{proxy['id']}", {"name": "second"})
    for _ in range(3):
        assert fetched(proxy, origin)
    wait_until(lambda: "for records" in product.log, "the log says that they can't be pushed")
    product.actor("telemetry").kill()
    with Receiver(port) as second:
        wait_until(lambda: len(records_reported(second, proxy)) >= 3, "those that waited are pushed")
        after = records_reported(second, proxy)
    entries = product.data("GET", f"/logs?proxy_id={proxy['id']}")["logs"][::-1]
    assert [each["request_id"] for each in before + after] == [each["request_id"] for each in entries]
    assert {each["http.response.status_code"] for each in before + after} == {200}
    assert {each["proxy.name"] for each in before + after} == {"first", "second"}
    assert before[0]["url.full"] == origin.url("/hello")
    assert before[0]["level"] == "info"


def test_the_push_that_is_killed_comes_back_as_the_same(
    product: Product, proxy: dict[str, Any], receiver: Receiver, origin: Origin
) -> None:
    assert fetched(proxy, origin)

    def who() -> str:
        resources = [each.resource_metrics[0].resource for each in receiver.of("/v1/metrics")]
        return str(resources[-1]) if resources else ""

    wait_until(lambda: pushed_requests(receiver, proxy) > 0, "it pushes what was counted")
    before, reported = who(), pushed_requests(receiver, proxy)
    old = product.actor("telemetry")
    old.kill()
    wait_until(lambda: product.actor("telemetry").pid != old.pid, "it runs again")
    pushes = len(receiver.of("/v1/metrics"))
    wait_until(lambda: len(receiver.of("/v1/metrics")) > pushes, "it pushes again")
    assert who() == before
    assert pushed_requests(receiver, proxy) >= reported > 0
