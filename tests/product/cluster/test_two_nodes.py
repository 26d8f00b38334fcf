"""Two real products with one configuration: clients of the one are accounts made at the other, with and without the
database, through kills and restarts, until one is removed and goes on alone."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.cluster import Nodes, command, states
from tests.kit.curl import curl, needs_curl
from tests.kit.http_origins import scripted
from tests.kit.postgresql import needs_postgresql
from tests.kit.product import Product
from tests.kit.wait import wait_until

pytestmark = [needs_postgresql, needs_curl]
HOSTS = {"first": "127.0.0.1", "second": "127.0.0.2"}
SOON = 10.0
"""Seconds on a machine that twenty others use; a change is there within milliseconds."""

SIGN_IN = {"username": "proxy", "password": "sesame-and-more"}


def respond(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")


@pytest.fixture
def origin() -> Iterator[str]:
    with scripted(respond) as port:
        yield f"http://127.0.0.1:{port}/"


def joined(nodes: Nodes, first: Product, second: Product) -> None:
    """Make them nodes; their addresses are those at which they listen, whose port nothing but `cluster.listen` says."""
    status, done = command(first, "init", "--dsn", nodes.dsn, "--name", "first", "--address", "127.0.0.1")
    assert status == 0, done
    line = first.data("POST", "/nodes/tokens", {"name": "second"})["line"]
    status, done = command(second, "join", line, "--address", "127.0.0.1")
    assert status == 0, done
    wait_until(lambda: states(first).get("second") == "up", "the second one is up")
    second.forget_token()
    kept = nodes.server.execute("SELECT rolpassword FROM pg_authid WHERE rolname LIKE 'pf%'")
    assert {password.partition(":")[0] for (password,) in kept if password} == {"SCRAM-SHA-256$4096"}
    for name, host in HOSTS.items():
        addresses = {"internal": nodes.addresses[first if name == "first" else second], "public": host}
        before = first.data("GET", f"/nodes/{name}")["node"]["addresses"]
        assert before == {"internal": addresses["internal"]}
        first.data("PATCH", f"/nodes/{name}", {"addresses": addresses})


def refused(product: Product) -> bool:
    """Whether a change is refused for want of the database."""
    response = product.api("POST", "/plans", {"name": "never"})
    return (response.status_code, response.json().get("error", {}).get("code")) == (503, "DATABASE_UNAVAILABLE")


def changed(product: Product, name: str) -> str | None:
    """The revision of a change; None while it is refused."""
    response = product.api("POST", "/plans", {"name": name})
    return response.headers["X-Config-Revision"] if response.status_code == 201 else None


def plans(product: Product, revision: str) -> set[str]:
    """Names as a node serves them with this revision."""
    response = product.api("GET", "/plans", headers={"X-Config-Revision": revision})
    assert response.status_code == 200, response.text
    return {each["name"] for each in response.json()["data"]["plans"]}


def see_both(product: Product, proxy_id: str) -> None:
    """What is on machines is read of both nodes, and done on both."""
    both = {"first", "second"}

    def nodes_in(path: str, method: str = "GET", body: Any = None) -> Any:
        data = product.data(method, path, body)
        assert data["meta"] == {"missing_nodes": []}
        return data

    wait_until(lambda: {each["node"] for each in nodes_in("/logs?limit=100")["logs"]} == both, "records of both", SOON)
    paths = (
        "/metrics/realtime",
        "/metrics",
        "/overview",
        "/dns/cache",
        "/connections",
        f"/proxies/{proxy_id}/connections",
    )
    for path in paths:
        nodes_in(path)
    wait_until(
        lambda: sum(each["value"] for each in nodes_in("/metrics?node=second")["metrics"]["requests_total"]), "some"
    )
    question = {"client_ip": "192.0.2.1", "target": "http://192.0.2.9/"}
    assert nodes_in(f"/proxies/{proxy_id}/explain?node=second", "POST", question)["node"] == "second"
    tried = nodes_in(f"/proxies/{proxy_id}/test", "POST", {"url": "http://127.0.0.1:9/", "timeout": 2.0})["nodes"]
    assert {each["node"] for each in tried} == both
    assert nodes_in(f"/proxies/{proxy_id}/restart", "POST")["changed"]
    product.data(
        "POST", "/pools", {"name": "exits", "upstreams": [{"protocol": "http", "host": "exit.example", "port": 1}]}
    )
    wait_until(lambda: {each["node"] for each in nodes_in("/pools/exits")["pool"]["nodes"]} == both, "pool", SOON)


def test_two_products_are_one_through_an_outage_until_one_is_removed(origin: str) -> None:
    with Nodes() as nodes:
        first, second = nodes.product(), nodes.product()
        joined(nodes, first, second)
        port = first.free_port()
        proxy = first.proxy(name="shop", port=port, host="{address:public}", auth={"enabled": True, **SIGN_IN})

        def used(node: str, credentials: str) -> int:
            return curl("-x", f"http://{credentials}@{HOSTS[node]}:{port}", origin)[0]

        def everywhere(credentials: str, status: int) -> None:
            for name in HOSTS:
                wait_until(lambda n=name: used(n, credentials) == status, f"{status} at {name}", SOON)

        everywhere("proxy:sesame-and-more", 200)
        account = second.data("POST", "/accounts", {"username": "alice", "password": "alice-and-more"})["account"]["id"]
        everywhere("alice:alice-and-more", 200)
        everywhere("alice:wrong", 407)
        minted = second.data("POST", f"/accounts/{account}/credentials", {"name": "job", "ttl": 3600})
        everywhere(f"alice:{minted['secret']}", 200)
        first.data("DELETE", f"/accounts/{account}/credentials/{minted['credential']['id']}")
        everywhere(f"alice:{minted['secret']}", 407)
        assert plans(first, str(changed(second, "at-second"))) == {"at-second"}

        status, said = command(second, "rekey")
        assert (status, json.loads(said)["nodes"], json.loads(said)["waiting"]) == (0, ["second", "first"], []), said
        keys = [(each.data_dir / "keys" / "secrets.key").read_text() for each in (first, second)]
        assert (keys[0] == keys[1], len(keys[0].split())) == (True, 1)
        assert plans(first, str(changed(second, "rekeyed"))) == {"at-second", "rekeyed"}, "tokens are good, too"

        see_both(first, proxy["id"])

        with nodes.outage(signal.SIGKILL):
            assert refused(first)
            first.actor("api").kill()
            second.kill_all()
            assert used("first", "alice:alice-and-more") == 200
            second.start()
            second.forget_token()
            wait_until(lambda: used("second", "alice:alice-and-more") == 200, "it forwards without the database")
            first.wait_healthy()
            first.forget_token()
            assert (refused(first), refused(second)) == (True, True)
            minted = second.data("POST", f"/accounts/{account}/credentials", {"name": "dark", "ttl": 3600})
            assert used("second", f"alice:{minted['secret']}") == 200
            assert command(second, "status")[0] == 3
        revision: Any = wait_until(lambda: changed(first, "after"), "changes go on")
        assert plans(second, revision) == {"at-second", "rekeyed", "after"}
        everywhere(f"alice:{minted['secret']}", 200)

        assert first.api("POST", "/nodes/second/drain").status_code == 200
        wait_until(lambda: used("second", "alice:alice-and-more") == 0, "it accepts no more", SOON)
        assert second.session.get(f"{second.base_url}/health/ready", timeout=30).status_code == 503
        first.data("POST", "/nodes/second/resume")
        everywhere("alice:alice-and-more", 200)

        lost = first.data("DELETE", "/nodes/second")["lost"]
        assert lost["last_seen_at"].endswith("Z")
        assert states(first) == {"first": "up"}
        status, said = command(second, "status")
        assert (status, "was removed" in said) == (3, True), said
        assert used("second", "alice:alice-and-more") == 200, "it forwards on"
        status, said = command(second, "leave")
        assert (status, "--force" in said) == (1, True), said
        assert command(second, "leave", "--force")[0] == 0
        assert second.api("POST", "/plans", {"name": "alone"}).status_code == 201
        assert second.data("GET", f"/proxies/{proxy['id']}")["proxy"]["host"] == HOSTS["second"]
        assert "Traceback" not in first.log + second.log
