"""Webhooks of the whole product: events are delivered, whatever dies in between."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from config.text.formatting import parse_moment
from tests.kit.ports import free_port
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.webhook_targets import Received, Target

pytestmark = pytest.mark.product


@contextlib.contextmanager
def webhook(product: Product, target: Target, *events: str) -> Iterator[dict[str, Any]]:
    body = {"name": "hook", "url": target.url, "events": list(events)}
    made: dict[str, Any] = product.data("POST", "/webhooks", body)["webhook"]
    yield made
    product.data("DELETE", f"/webhooks/{made['id']}")


@contextlib.contextmanager
def proxy(product: Product, name: str) -> Iterator[dict[str, Any]]:
    body = {"name": name, "port": free_port(), "protocol": "http"}
    made: dict[str, Any] = product.data("POST", "/proxies", body)["proxy"]
    wait_until(lambda: runtime(product, made["id"])["state"] == "running", "it runs")
    yield made
    product.data("DELETE", f"/proxies/{made['id']}")


def runtime(product: Product, proxy_id: str) -> dict[str, Any]:
    found: dict[str, Any] = product.data("GET", f"/proxies/{proxy_id}")["proxy"]["runtime"]
    return found


def event_at(target: Target, kind: str, seconds: float = 120.0) -> Received:
    """The first delivery of an event."""

    def found() -> Received | None:
        return next((each for each in list(target.received) if each.content["type"] == kind), None)

    return wait_until(found, f"{kind} is delivered", seconds)


def kinds(target: Target) -> list[str]:
    return [str(each.content["type"]) for each in list(target.received)]


def test_what_is_done_to_a_proxy_is_reported_signed_and_in_order(product: Product, target: Target) -> None:
    with webhook(product, target, "proxy.*") as hook:
        with proxy(product, "reported") as made:
            path = f"/proxies/{made['id']}"
            product.data("PATCH", path, {"tags": ["x"]})
            product.data("POST", f"{path}/stop")
            product.data("POST", f"{path}/start")
            wait_until(lambda: runtime(product, made["id"])["state"] == "running", "it runs")
            product.data("POST", f"{path}/restart")
        event_at(target, "proxy.deleted")
        wanted = ["created", "updated", "stopped", "started", "restarted", "deleted"]
        assert kinds(target) == [f"proxy.{each}" for each in wanted]
        for received in target.received:
            content = received.verified(hook["secret"])
            assert content["data"]["proxy_id"] == made["id"]
            assert content["id"] == received.id
        log = product.data("GET", f"/webhooks/{hook['id']}/deliveries")["deliveries"]
        assert [each["event_id"] for each in log] == target.ids[::-1]


def test_a_death_is_reported_within_two_seconds_and_the_return_after_it(product: Product, target: Target) -> None:
    with webhook(product, target, "proxy.down", "proxy.up"), proxy(product, "mortal") as made:
        killed: set[int] = set()
        taken = [_until_reported(product, target, made["id"], killed) for _ in range(3)]
        assert min(taken) < 2, "the quickest of a few, since the machine may be slow by itself"
        assert kinds(target) == ["proxy.down", "proxy.up"] * len(taken)
        assert {each.content["data"]["proxy_id"] for each in target.received} == {made["id"]}


def _until_reported(product: Product, target: Target, proxy_id: str, killed: set[int]) -> float:
    """Kill the process of a proxy; the seconds until the first attempt to report it."""
    before = len(target.received)
    wait_until(lambda: runtime(product, proxy_id)["pid"] not in (None, *killed), "it has a new process")
    pid = runtime(product, proxy_id)["pid"]
    killed.add(pid)
    died = time.time()
    psutil.Process(pid).kill()
    wait_until(lambda: len(target.received) >= before + 2, "its death and its return are reported")
    hook = product.data("GET", "/webhooks")["webhooks"][0]
    log = product.data("GET", f"/webhooks/{hook['id']}/deliveries")["deliveries"]
    reported = next(each for each in log if each["event_id"] == target.ids[before])
    return max(parse_moment(each["timestamp"]) for each in (reported["payload"], reported["attempts"][0])) - died


def test_410_disables_the_webhook_and_others_hear_of_it(product: Product, target: Target) -> None:
    with Target(lambda _number, _received: (410, {})) as gone, webhook(product, target, "webhook.disabled"):
        with webhook(product, gone, "user.*") as hook:
            user = product.data("POST", "/users", {"username": "ted", "password": "long enough"})["user"]
            reported = event_at(target, "webhook.disabled").content["data"]
            assert reported["webhook_id"] == hook["id"]
            detail = product.data("GET", f"/webhooks/{hook['id']}")["webhook"]
            assert not detail["enabled"]
            assert "410" in detail["disabled_reason"]
            product.data("DELETE", f"/users/{user['id']}")
        assert kinds(gone) == ["user.created"]


def test_a_sender_that_is_killed_between_sending_and_noting_sends_again_with_the_same_id(
    product: Product, target: Target
) -> None:
    target.responds = lambda number, received: target.hang(number, received) if number == 1 else (200, {})
    with webhook(product, target, "user.created", "user.deleted") as hook:
        user = product.data("POST", "/users", {"username": "kim", "password": "long enough"})["user"]
        event_at(target, "user.created")
        product.actor("webhooks").kill()
        product.data("DELETE", f"/users/{user['id']}")  # while the target has no listener
        event_at(target, "user.deleted")
        assert kinds(target) == ["user.created", "user.created", "user.deleted"]
        assert len(set(target.ids[:2])) == 1
        assert target.received[0].body == target.received[1].body
        target.received[1].verified(hook["secret"])


def test_the_id_of_a_request_is_in_its_answer_its_log_line_its_audit_row_and_its_event(
    product: Product, target: Target
) -> None:
    def ask(method: str, path: str, body: Any = None, own: str | None = None) -> tuple[Any, str]:
        response = product.api(method, path, body, headers={} if own is None else {"X-Request-Id": own})
        assert response.status_code in (200, 201), response.text
        return response.json()["data"], response.headers["X-Request-Id"]

    with webhook(product, target, "*") as hook, proxy(product, "traced") as made:
        reported: dict[str, str] = {}
        for kind, method, path, body in (
            ("proxy.updated", "PATCH", f"/proxies/{made['id']}", {"tags": ["traced"]}),
            ("user.created", "POST", "/users", {"username": "traced", "password": "long enough"}),
            ("webhook.test", "POST", f"/webhooks/{hook['id']}/test", None),
        ):
            said, reported[kind] = ask(method, path, body, f"mine-{kind}")
            assert reported[kind] == f"mine-{kind}"
            assert event_at(target, kind).content["data"]["request_id"] == reported[kind]
        assert (said["delivered"], said["status_code"], said["error"]) == (True, 200, None)  # of the test
        for identifier in reported.values():
            rows = product.data("GET", f"/audit?request_id={identifier}")["audit"]
            assert [row["request_id"] for row in rows] == [identifier]
            wait_until(lambda each=identifier: f", {each}" in product.log, f"{identifier} is in the log of requests")


@pytest.mark.parametrize("protocol", ["http", "socks4", "socks5"])
@pytest.mark.parametrize("guarded", [False, True], ids=["open", "with credentials"])
def test_the_access_record_of_a_test_has_the_id_of_the_request_for_it(
    product: Product, target: Target, protocol: str, guarded: bool
) -> None:
    auth = {"enabled": True, "username": "a", **({} if protocol == "socks4" else {"password": "b"})}
    made = product.proxy(protocol=protocol, **({"auth": auth} if guarded else {}))
    response = product.api("POST", f"/proxies/{made['id']}/test", {"url": target.url, "timeout": 60})
    assert response.json()["data"]["test_result"]["status_code"] is not None
    identifier = response.headers["X-Request-Id"]
    assert identifier.startswith("req_")
    wait_until(lambda: recorded(product, made["id"], identifier), "the record of the test")
    product.data("DELETE", f"/proxies/{made['id']}")


def recorded(product: Product, proxy_id: str, request_id: str) -> dict[str, Any] | None:
    logs = product.data("GET", f"/logs?proxy_id={proxy_id}")["logs"]
    return next((each for each in logs if each["request_id"] == request_id), None)
