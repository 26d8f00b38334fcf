"""Real products join a fleet by a token, running or stopped, serve what it has, and are removed."""

from __future__ import annotations

import json

import requests

from tests.kit.cluster import Nodes, command, current
from tests.kit.postgresql import needs_postgresql
from tests.kit.product import Product
from tests.kit.wait import wait_until

pytestmark = needs_postgresql


def line(product: Product, **fields: str) -> str:
    made = product.api("POST", "/nodes/tokens", fields)
    assert made.status_code == 201, made.text
    return str(made.json()["data"]["line"])


def lists_at(node: Product, token: str) -> str:
    """The lists as a node serves them to a user who has signed in at another one; empty while it does not."""
    try:
        found = requests.get(f"{node.base_url}/api/v1/lists", headers={"Authorization": f"Bearer {token}"}, timeout=30)
    except requests.ConnectionError:
        return ""
    return found.text if found.status_code == 200 else ""


def test_a_running_product_joins_serves_what_the_fleet_has_and_is_removed() -> None:
    with Nodes() as nodes:
        first, second = nodes.product(), nodes.product()
        nodes.init(first)
        first.api("POST", "/lists", {"name": "before", "kind": "domains", "entries": ["example.com"]})
        second.proxy()
        token = line(first, name="fra2")
        address = nodes.addresses[second]
        status, said = command(second, "join", token, "--address", address)
        assert (status != 0, "1 proxy, which would be lost" in said) == (True, True), said
        status, said = command(second, "join", token, "--address", address, "--discard")
        assert status == 0, said
        assert json.loads(said) == {"name": "fra2"}
        wait_until(lambda: "before" in lists_at(second, first.token), "it serves what the fleet has")
        first.api("POST", "/lists", {"name": "after", "kind": "domains", "entries": ["example.com"]})
        wait_until(lambda: "after" in lists_at(second, first.token), "it serves what is changed", 10)
        assert current(second)["name"] == "fra2"
        assert [line for line in (first.log + second.log).splitlines() if " ERROR " in line] == []
        names = {each["name"] for each in first.api("GET", "/nodes").json()["data"]["nodes"]}
        assert names == {"first", "fra2"}
        assert command(second, "join", token)[0] != 0
        removed = first.api("DELETE", "/nodes/fra2")
        assert removed.status_code == 200, removed.text
        wait_until(lambda: command(second, "status")[0] == 3, "it is cut off")
