"""The clock of the machine is set back an hour, and forward again: nothing steps, nothing waits, nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

from config.text.formatting import timestamp_text
from tests.kit.faked_clock import INSTALLED, FakedClock
from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.webhook_targets import Target
from tests.product.e2e.fetching import fetched

HOUR = 3600

pytestmark = [
    pytest.mark.product,
    pytest.mark.skipif(not INSTALLED, reason="libfaketime is not installed"),
]


def rates(product: Product, clock: FakedClock) -> list[float]:
    """The requests per second of each minute of the last two hours, by the product's clock."""
    since = timestamp_text(clock.now() - 2 * HOUR)
    data = product.data("GET", f"/metrics?interval=1m&metrics=requests_per_second&start_time={since}")
    return [point["value"] for point in data["metrics"]["requests_per_second"]]


def total(product: Product, proxy: dict[str, Any]) -> int:
    return int(product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["stats"]["total_requests"])


def test_a_clock_that_is_set_back_an_hour_makes_no_spike_and_events_and_records_go_on(
    tmp_path: Path, origin: Origin, target: Target
) -> None:
    clock = FakedClock(tmp_path / "clock")
    with Product({**clock.environment(), "PROXYFLEET_WEBHOOKS__ALLOW_PRIVATE": "true"}) as product:
        proxy = product.proxy()
        hook = {"name": "hook", "url": target.url, "events": ["proxy.down", "proxy.up"]}
        product.data("POST", "/webhooks", hook)
        for _ in range(5):
            assert fetched(proxy, origin)
        wait_until(lambda: total(product, proxy) == 5, "the first are counted")
        clock.set(-HOUR)
        product.forget_token()
        for _ in range(5):
            assert fetched(proxy, origin)
        wait_until(lambda: total(product, proxy) == 10, "the others are counted")
        assert max(rates(product, clock)) <= 10
        assert 0 <= product.data("GET", "/metrics/realtime")["metrics"]["requests_per_second"] <= 10
        found = wait_until(
            lambda: product.data("GET", f"/logs?proxy_id={proxy['id']}&limit=5")["logs"][4:], "the records are found"
        )
        assert found
        psutil.Process(product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["runtime"]["pid"]).kill()
        wait_until(lambda: len(target.received) >= 2, "a death is reported")
        assert [each.content["type"] for each in target.received] == ["proxy.down", "proxy.up"]
        before = product.actor("metrics")
        before.kill()
        wait_until(lambda: product.actor("metrics").pid != before.pid, "the collector runs again")
        assert fetched(proxy, origin)
        clock.set(0)
        product.forget_token()
        wait_until(lambda: total(product, proxy) == 11, "no step when the clock is right again")
        assert max(rates(product, clock)) <= 11
