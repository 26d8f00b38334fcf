"""Databases of places in the whole product: entries that name a part of one decide by the address that is dialled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.kit.curl import curl, needs_curl
from tests.kit.http_origins import Origin
from tests.kit.place_databases import country, database, system
from tests.kit.product import Product
from tests.kit.wait import wait_until

pytestmark = [pytest.mark.product, needs_curl]


def put(file: Path, content: bytes) -> None:
    fresh = file.with_name("fresh")
    fresh.write_bytes(content)
    os.replace(fresh, file)


def test_a_place_is_denied_until_the_database_says_otherwise(product: Product, origin: Origin, tmp_path: Path) -> None:
    file = tmp_path / "world.mmdb"
    here = country("DE") | system(64500)
    put(file, database({"127.0.0.0/8": here, "::1/128": here}))
    product.data("POST", "/lists", {"name": "world", "kind": "geo", "source": {"file": str(file)}})

    def stated(name: str) -> Any:
        return product.data("GET", "/lists/world")["list"]["status"][name]

    wait_until(lambda: stated("entries") == 1, "the database")
    checked = product.data("GET", "/lists/world/check?target=127.0.0.1")
    assert (checked["country"], checked["asn"]) == ("DE", 64500)
    rule = {"name": "abroad", "match": {"destinations": ["geo:world:country=DE"]}, "action": {"use": "deny"}}
    product.data("POST", "/policies", {"name": "abroad", "rules": [rule]})
    by_asn = product.proxy(access={"deny_destinations": ["geo:world:asn=64500"]})
    proxies = [
        by_asn,
        product.proxy(policy="abroad"),
        product.proxy(access={"allow_destinations": ["geo:world:asn=1"]}),
    ]

    def statuses() -> list[int]:
        return [curl("-x", f"http://127.0.0.1:{each['port']}", origin.url("/hello"))[0] for each in proxies]

    assert statuses() == [403, 403, 403]
    target = origin.url("/hello").replace("127.0.0.1", "localhost")
    assert curl("-x", f"http://127.0.0.1:{by_asn['port']}", target)[0] == 403, "by the address, not the name"
    question = {"client_ip": "127.0.0.1", "target": origin.url("/hello")}
    found = product.data("POST", f"/proxies/{by_asn['id']}/explain", question)
    assert found["rule"] == "access.deny_destinations[0] geo:world:asn=64500 (127.0.0.0/8)"
    put(file, b"half of it")
    wait_until(lambda: stated("last_error"), "an error")
    assert statuses() == [403, 403, 403]
    put(file, database({"127.0.0.0/8": country("FR") | system(1)}))
    wait_until(lambda: statuses() == [200, 200, 200], "the other database")
    for path in (*(f"/proxies/{each['id']}" for each in proxies), "/policies/abroad", "/lists/world"):
        product.data("DELETE", path)
