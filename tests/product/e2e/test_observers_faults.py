"""Those who only observe fail: traffic goes on, what they miss is made up for or said, and nothing steps."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.webhook_targets import Received, Target
from tests.product.e2e.cramped_product import CrampedProduct
from tests.product.e2e.fetching import fetched

pytestmark = pytest.mark.product


def stats(product: Product, proxy: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["stats"]
    return found


def counted(product: Product, proxy: dict[str, Any]) -> float:
    """The requests of all buckets."""
    points = product.data("GET", f"/metrics?interval=1m&metrics=requests_total&proxy_id={proxy['id']}")["metrics"]
    return float(sum(point["value"] for point in points["requests_total"]))


def collector_responds(product: Product) -> bool:
    """The collector, and not what the API remembers of its answers."""
    return product.api("GET", "/metrics").status_code == 200


def test_requests_while_the_collector_is_dead_are_counted_when_it_is_back(own_product: Product, origin: Origin) -> None:
    proxy = own_product.proxy()
    for _ in range(5):
        assert fetched(proxy, origin)
    wait_until(lambda: stats(own_product, proxy)["total_requests"] == 5, "the first are counted")
    before = own_product.actor("metrics")
    before.kill()
    for _ in range(7):
        assert fetched(proxy, origin)
    wait_until(lambda: own_product.actor("metrics").pid != before.pid, "the collector runs again")
    wait_until(lambda: collector_responds(own_product), "the collector can be asked again")
    wait_until(lambda: stats(own_product, proxy)["total_requests"] == 12, "all are counted")
    assert counted(own_product, proxy) == 12
    assert own_product.data("GET", "/metrics/realtime")["metrics"]["requests_per_second"] <= 12


def test_on_a_full_disk_traffic_goes_on_and_what_happened_is_reported_and_saved_when_there_is_room(
    cramped: CrampedProduct,
    origin: Origin,
    target: Target,
) -> None:
    product = cramped.product
    proxy = product.proxy()
    product.data("POST", "/webhooks", {"name": "hook", "url": target.url, "events": ["proxy.down", "proxy.up"]})
    assert fetched(proxy, origin)
    wait_until(lambda: stats(product, proxy)["total_requests"] == 1, "it is counted")
    cramped.fill()
    for _ in range(5):
        assert fetched(proxy, origin)
    wait_until(lambda: stats(product, proxy)["total_requests"] == 6, "the totals go on in memory")
    wait_until(lambda: "cannot save totals and series" in product.log, "the log says that nothing is saved")
    pid = product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["runtime"]["pid"]
    wait_until(lambda: killed(product, pid), "a proxy dies meanwhile")
    assert fetched(proxy, origin)
    cramped.clear()
    wait_until(
        lambda: [each.content["type"] for each in target.received][-2:] == ["proxy.down", "proxy.up"],
        "what happened meanwhile is sent",
    )
    wait_until(lambda: "series: recovered" in product.log, "the log says that it is over")
    wait_until(lambda: stats(product, proxy)["total_requests"] >= 7, "all are known")
    known = stats(product, proxy)["total_requests"]
    before = product.actor("metrics")
    before.kill()
    wait_until(lambda: product.actor("metrics").pid != before.pid, "the collector runs again")
    wait_until(lambda: collector_responds(product), "the collector can be asked again")
    wait_until(lambda: stats(product, proxy)["total_requests"] >= known, "they were saved")
    assert counted(product, proxy) == stats(product, proxy)["total_requests"]


def killed(product: Product, pid: int) -> bool:
    """The process of the proxy is gone."""
    process = next((each for each in product.processes() if each.pid == pid), None)
    if process is not None:
        process.kill()
    return process is None


def test_a_target_that_is_down_for_longer_than_the_schedule_is_disabled_and_gets_all_when_enabled(
    own_product: Product,
    target: Target,
) -> None:
    product = own_product
    happened = threading.Event()

    def refuse(_number: int, _received: Received) -> tuple[int, dict[str, str]]:
        happened.wait(30)
        return 500, {}

    with Target(refuse) as broken:
        product.data("POST", "/webhooks", {"name": "watch", "url": target.url, "events": ["webhook.disabled"]})
        body = {"name": "broken", "url": broken.url, "events": ["user.*"]}
        hook = product.data("POST", "/webhooks", body)["webhook"]
        for name in ("ann", "bob", "cid"):
            product.data("POST", "/users", {"username": name, "password": "long enough"})
        happened.set()
        wait_until(lambda: target.received, "that it is disabled is sent")
        assert target.received[0].content["data"]["webhook_id"] == hook["id"]
        detail = product.data("GET", f"/webhooks/{hook['id']}")["webhook"]
        assert not detail["enabled"]
        broken.responds = lambda _number, _received: (200, {})
        refused = len(broken.received)
        product.data("PATCH", f"/webhooks/{hook['id']}", {"enabled": True})
        product.data("POST", "/users", {"username": "dan", "password": "long enough"})
        wait_until(lambda: names(broken)[refused:][-1:] == ["dan"], "what comes after it is sent")
        wait_until(lambda: outcomes(product, hook)["dan"] == "delivered", "and that is noted")
        outcome = outcomes(product, hook)
        assert set(outcome) == {"ann", "bob", "cid", "dan"}
        waited = [name for name in ("ann", "bob", "cid") if outcome[name] == "delivered"]
        assert names(broken)[refused:] == [*waited, "dan"], "in order"
        assert all(outcome[name] == "failed" for name in {"ann", "bob", "cid"} - set(waited))


def names(target: Target) -> list[str]:
    return [str(each.content["data"]["username"]) for each in target.received]


def outcomes(product: Product, hook: dict[str, Any]) -> dict[str, str]:
    """The states of the deliveries by the user that each is about."""
    log = product.data("GET", f"/webhooks/{hook['id']}/deliveries")["deliveries"]
    return {each["payload"]["data"]["username"]: each["status"] for each in log}
