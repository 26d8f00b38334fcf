"""Access rules by the API, felt by clients at once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = pytest.mark.product


def change(product: Product, proxy: dict[str, Any], **access: Any) -> None:
    product.data("PATCH", f"/proxies/{proxy['id']}", {"access": access})


def test_a_rule_added_while_a_client_is_connected_holds_for_its_next_request(
    product: Product, proxy: dict[str, Any], origin: Origin
) -> None:
    with Client(proxy["port"]) as client:
        assert client.get(origin.url("/hello")).status == 200
        change(product, proxy, deny_destinations=[f"127.0.0.1:{origin.port}"])
        # the answer to the change does not wait for the actor to have it
        refused = wait_until(lambda: _refusal(client, origin), "the rule holds")
        assert "rule=destination_denied" in refused
        change(product, proxy, deny_destinations=[])
        wait_until(lambda: client.get(origin.url("/hello")).status == 200, "the rule is gone")


def test_a_client_is_refused_by_its_address_and_its_word_is_in_the_records(
    product: Product, proxy: dict[str, Any]
) -> None:
    change(product, proxy, deny_clients=["127.0.0.0/8"])

    def refused() -> bool:
        with Client(proxy["port"], timeout=1.0) as client:
            try:
                return "rule=client_denied" in client.answer().fields["proxy-status"]
            except TimeoutError:
                return False  # the actor did not know the rule yet, and waits for a request

    wait_until(refused, "the client is refused")
    found = wait_until(lambda: _record(product, proxy), "the refusal is recorded")
    assert (found["reason"], found["client_ip"], found["status_code"]) == ("client_denied", "127.0.0.1", 403)


def test_report_mode_lets_through_and_says_so_in_the_records(
    product: Product, proxy: dict[str, Any], origin: Origin
) -> None:
    change(product, proxy, allow_destinations=["*.example.com"], mode="report")

    def reported() -> dict[str, Any] | None:
        with Client(proxy["port"]) as client:
            assert client.get(origin.url("/hello")).status == 200
        found = _record(product, proxy)
        return found if found and found["reason"] else None

    assert wait_until(reported, "the rule is reported")["reason"] == "reported:destination_not_allowed"


def _refusal(client: Client, origin: Origin) -> str | None:
    response = client.get(origin.url("/hello"))
    return response.fields["proxy-status"] if response.status == 403 else None


def _record(product: Product, proxy: dict[str, Any]) -> dict[str, Any] | None:
    """The newest access record of the proxy."""
    logs = product.data("GET", f"/logs?proxy_id={proxy['id']}&limit=1")["logs"]
    return logs[0] if logs else None


def test_explain_says_what_then_happens(product: Product, proxy: dict[str, Any], origin: Origin) -> None:
    question = {"client_ip": "127.0.0.1", "target": origin.url("/hello")}

    def explained() -> Any:
        return product.data("POST", f"/proxies/{proxy['id']}/explain", question)

    assert explained()["decision"] == "allow"
    change(product, proxy, deny_destinations=[f":{origin.port}"])
    decision = wait_until(lambda: (now := explained())["decision"] == "deny" and now, "the actor has the rule")
    assert (decision["reason"], decision["rule"]) == (
        "destination_denied",
        f"access.deny_destinations[0] :{origin.port}",
    )
    with Client(proxy["port"]) as client:
        response = client.get(origin.url("/hello"))
        assert (response.status, "rule=destination_denied" in response.fields["proxy-status"]) == (403, True)
    own = product.data("POST", f"/proxies/{proxy['id']}/explain", {**question, "target": product.base_url})
    assert (own["decision"], own["stage"]) == ("deny", "egress_guard")
