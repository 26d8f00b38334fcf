"""Source addresses in the whole product: of a proxy, of a plan and of a rule, in records and explanations."""

from __future__ import annotations

import base64
import os
import signal
import socket
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from tests.kit.product import Product
from tests.kit.scripted_origins import Origin, counted, read_head
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = pytest.mark.product

OF_PROXY, OF_PLAN, OF_RULE = "127.7.0.0/16", "127.8.0.0/16", "127.9.0.0/16"


@pytest.fixture
def origin() -> Iterator[Origin]:
    """Responds with the address that a request comes from."""

    def script(sock: socket.socket) -> None:
        while read_head(sock):
            sock.sendall(counted(sock.getpeername()[0].encode()))

    with Origin(script) as running:
        yield running


def came_from(proxy: dict[str, Any], origin: Origin, *fields: str) -> str:
    """The address that the origin has seen."""
    with Client(proxy["port"]) as client:
        return client.get(f"http://{origin.authority}/", *fields).body.decode()


def is_of(address: str, network: str) -> bool:
    return ip_address(address) in ip_network(network)


def authorization(user: str) -> str:
    return "Proxy-Authorization: Basic " + base64.b64encode(f"{user}:correct horse".encode()).decode()


def test_a_rule_comes_before_the_plan_and_that_before_the_proxy(product: Product, origin: Origin) -> None:
    proxy = product.proxy(bind_address=[OF_PROXY], bind_policy="account", auth={"enabled": True})
    plan = product.data("POST", "/plans", {"name": "far", "egress": [OF_PLAN]})["plan"]
    fields = {"proxies": {"ids": [proxy["id"]]}, "password": "correct horse"}
    far = product.data("POST", "/accounts", {"username": "fay", "plan": "far", **fields})["account"]
    near = product.data("POST", "/accounts", {"username": "ned", **fields})["account"]
    path = f"/proxies/{proxy['id']}"

    of_plan, of_proxy = (came_from(proxy, origin, authorization(user)) for user in ("fay", "ned"))
    assert (is_of(of_plan, OF_PLAN), is_of(of_proxy, OF_PROXY)) == (True, True)
    question = {"client_ip": "127.0.0.1", "user": "fay", "target": f"http://{origin.authority}/"}
    said = product.data("POST", f"{path}/explain", question)["source"]
    assert (said["rule"], said["policy"], said["ipv4"]) == ("egress of the plan", "account", of_plan)
    wait_until(lambda: product.data("GET", f"/logs?proxy_id={proxy['id']}")["total"] == 2, "both are recorded")
    records = product.data("GET", f"/logs?proxy_id={proxy['id']}")["logs"]
    assert {each["user"]: each["source_address"] for each in records} == {"fay": of_plan, "ned": of_proxy}

    rules = [{"name": "elsewhere", "match": {"accounts": ["fay"]}, "action": {"egress": [OF_RULE]}}]
    product.data("POST", "/policies", {"name": "egress", "rules": rules})
    product.data("PATCH", path, {"policy": "egress"})
    assert is_of(came_from(proxy, origin, authorization("fay")), OF_RULE)
    product.data("PATCH", path, {"policy": None})

    os.kill(product.data("GET", path)["proxy"]["runtime"]["pid"], signal.SIGKILL)
    assert came_from(proxy, origin, authorization("ned")) == of_proxy
    product.data("PATCH", f"/plans/{plan['id']}", {"egress": None})
    wait_until(lambda: is_of(came_from(proxy, origin, authorization("fay")), OF_PROXY), "the plan says nothing more")

    for gone in (f"/accounts/{far['id']}", f"/accounts/{near['id']}", f"/plans/{plan['id']}", path, "/policies/egress"):
        product.data("DELETE", gone)
