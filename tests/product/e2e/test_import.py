"""Import and export of a running product: traffic that goes on, addresses that change hands, kills in the middle."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import requests

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.steady_load import Knocking, through_proxy
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = pytest.mark.product

HEAD = {"kind": "proxyfleet.config", "version": 1}
PASSPHRASE = {"X-Passphrase": "of the way between"}


def post(product: Product, document: dict[str, Any], query: str = "", **headers: str) -> requests.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return product.api("POST", f"/config/import?{query}", {**HEAD, **document}, timeout=60, headers=named)


def imported(product: Product, document: dict[str, Any], query: str = "") -> Any:
    response = post(product, document, query)
    assert response.status_code == 200, response.text
    return response.json()["data"]


def exported(product: Product, query: str = "", **headers: str) -> dict[str, Any]:
    response = product.api("GET", f"/config/export?{query}", headers=headers)
    assert response.status_code == 200, response.text
    return dict(response.json()["data"])


def running(product: Product, name: str) -> dict[str, Any]:
    def poll() -> dict[str, Any] | None:
        proxies = product.data("GET", "/proxies?per_page=100")["proxies"]
        found = next((each for each in proxies if each["name"] == name), None)
        return found if found and found["runtime"]["state"] == "running" else None

    return wait_until(poll, f"{name} runs")


def callers(port: int, url: str) -> Knocking:
    """A client that sends requests through a port again and again."""
    return Knocking(through_proxy(port, url))


def test_addresses_change_hands_and_no_connection_is_refused_or_dropped(own_product: Product, origin: Origin) -> None:
    product, url = own_product, origin.url("/hello")
    one, two, kept = (product.free_port() for _ in range(3))
    proxies = [
        {"name": name, "port": port, "protocol": "http"} for name, port in (("one", one), ("two", two), ("kept", kept))
    ]
    assert imported(product, {"proxies": proxies})["summary"]["create"] == 3
    before = {name: running(product, name)["runtime"]["pid"] for name in ("one", "two", "kept")}
    moved = [{"name": "renamed", "port": one, "protocol": "http"}, {"name": "two", "port": kept}]
    moved += [{"name": "kept", "port": two, "tags": ["moved"]}]
    with Client(kept) as idle, callers(one, url) as first, callers(two, url) as second, callers(kept, url) as third:
        assert idle.get(url).status == 200
        first.wait_for_more()
        summary = imported(product, {"proxies": moved}, "prune=true")["summary"]
        assert summary == {"create": 1, "update": 2, "delete": 1, "unchanged": 0}
        after = {name: running(product, name)["runtime"]["pid"] for name in ("renamed", "two", "kept")}
        for each in (first, second, third):
            each.wait_for_more()
            assert each.failures == []
    assert not set(before.values()) & set(after.values())
    assert imported(product, {"proxies": moved}, "prune=true")["changed"] is False


def test_an_update_moves_a_proxy_without_a_pause_as_an_import_does(own_product: Product, origin: Origin) -> None:
    product, url = own_product, origin.url("/hello")
    proxy, new = product.proxy(name="moves"), product.free_port()
    product.data("PATCH", f"/proxies/{proxy['id']}", {"port": new})
    with Client(new) as at_once:
        assert at_once.get(url).status == 200
    with pytest.raises(ConnectionRefusedError):
        Client(proxy["port"])
    product.data("PATCH", f"/proxies/{proxy['id']}", {"host": "0.0.0.0"})
    with Client(new) as wider:
        assert wider.get(url).status == 200


def test_an_import_touches_only_what_it_changes(own_product: Product, origin: Origin) -> None:
    product, url = own_product, origin.url("/hello")
    stays, changes = product.proxy(name="stays"), product.proxy(name="changes")
    with Client(stays["port"]) as open_one, Client(changes["port"]) as open_other:
        assert open_one.get(url).status == open_other.get(url).status == 200
        document = exported(product)
        document["proxies"][0]["settings"]["timeout"] = 11  # of `changes`
        assert imported(product, document)["summary"] == {"create": 0, "update": 1, "delete": 0, "unchanged": 3}
        assert open_one.get(url).status == open_other.get(url).status == 200
    assert running(product, "changes")["runtime"]["pid"] == changes["runtime"]["pid"]
    taken = {"proxies": [{"name": "new", "port": stays["port"], "protocol": "http"}, {"name": "stays", "tags": ["x"]}]}
    refused = post(product, taken).json()["error"]["details"]
    assert refused["field"] == "proxies[0].port"
    free = product.free_port()
    tried = imported(product, {"proxies": [{"name": "new", "port": free, "protocol": "http"}]}, "dry_run=true")
    assert tried["changed"] is True
    with pytest.raises(ConnectionRefusedError):
        Client(free)
    assert exported(product) == document


def test_five_thousand_upstreams_are_taken_as_text_and_sent_to_the_proxy(product: Product, origin: Origin) -> None:
    upstream = product.proxy()
    lines = [f"127.0.0.1:{upstream['port']}:user{number}:password-of-{number}" for number in range(5_000)]
    made = product.proxy(upstreams="\n".join(lines), upstream_policy="round_robin", upstream_check={"enabled": False})
    with Client(made["port"]) as client:
        assert client.get(origin.url("/hello")).status == 200
    detail = product.data("GET", f"/proxies/{made['id']}")["proxy"]
    assert len(detail["upstreams"]) == len(detail["runtime"]["upstreams"]) == 5_000
    assert sum(each["total_connections"] for each in detail["runtime"]["upstreams"]) == 1
    for each in (made, upstream):
        product.data("DELETE", f"/proxies/{each['id']}")


def test_an_active_proxy_speaks_another_protocol_to_new_connections(product: Product, origin: Origin) -> None:
    made = product.proxy()
    with Client(made["port"]) as older:
        assert older.get(origin.url("/hello")).status == 200
        imported(product, {"proxies": [{"name": made["name"], "protocol": "socks5"}]})

        def greeted() -> bool:
            with Client(made["port"]) as client:
                client.send(b"\x05\x01\x00")
                return client.exactly(2) == b"\x05\x00"

        wait_until(greeted, "it speaks SOCKS5")
        assert older.get(origin.url("/hello")).status == 200
    product.data("DELETE", f"/proxies/{made['id']}")


def test_everything_works_elsewhere_with_its_secrets_and_after_a_restart(own_product: Product, origin: Origin) -> None:
    product, url = own_product, origin.url("/hello")
    upstream = product.proxy(name="parent", auth={"enabled": True, "username": "u", "password": "of-the-upstream"})
    auth = {"enabled": True, "username": "c", "password": "of-the-client"}
    lines = f"u:of-the-upstream@127.0.0.1:{upstream['port']}"
    child = product.proxy(name="child", auth=auth, upstreams=lines)
    product.data("POST", "/users", {"username": "bob", "password": "password-of-bob"})
    document = exported(product, "secrets=encrypted", **PASSPHRASE)
    assert product.stop() == 0
    with Product() as other:
        response = post(other, document, **PASSPHRASE)
        assert response.status_code == 200, response.text
        other.forget_token()
        assert exported(other) == {name: value for name, value in document.items() if name != "secrets"}
        running(other, "parent")
        running(other, "child")
        for again in (False, True):
            if again:
                other.kill_all()
                other.start()
            assert status_as(child["port"], url, "c:of-the-client") == 200
            assert status_as(child["port"], url, "c:another") == 407
            login = {"username": "bob", "password": "password-of-bob"}
            assert other.api("POST", "/auth/login", login).status_code == 200


def status_as(port: int, url: str, credentials: str) -> int:
    with Client(port) as client:
        return client.get(url, f"Proxy-Authorization: Basic {base64.b64encode(credentials.encode()).decode()}").status
