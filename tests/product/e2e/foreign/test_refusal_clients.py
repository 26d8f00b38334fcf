"""curl and headless Chromium are refused by a policy: each gets what it can use, with the id of the access record."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.product import Product
from tests.kit.shared_product import CONTACT
from tests.kit.wait import wait_until
from tests.product.e2e.foreign.browser import FLAGS, NAMES
from tests.product.e2e.foreign.programs import find, needs, run

pytestmark = [pytest.mark.product, needs("chromium"), needs("curl")]

RULE = {
    "name": "no ads",
    "match": {"destinations": ["list:ads"]},
    "action": {"use": "deny", "reason": "no <b>ads</b> & games here"},
}


@pytest.fixture(scope="module")
def proxy(product: Product) -> Iterator[dict[str, Any]]:
    """A proxy whose policy denies what is on a list, and that does not call what Chromium calls of its own accord."""
    product.data("POST", "/lists", {"name": "ads", "kind": "domains", "entries": ["ads.example"]})
    product.data("POST", "/policies", {"name": "office", "rules": [RULE]})
    made = product.proxy(policy="office", access={"deny_destinations": NAMES})
    yield made
    for path in (f"/proxies/{made['id']}", "/policies/office", "/lists/ads"):
        product.data("DELETE", path)


def record_with(product: Product, request_id: str) -> dict[str, Any]:
    def found() -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = product.data("GET", f"/logs?request_id={request_id}")["logs"]
        return records

    wait_until(lambda: bool(found()), "the record that the body names")
    return found()[0]


def test_curl_reads_problem_details(product: Product, proxy: dict[str, Any], tmp_path: Path) -> None:
    body = tmp_path / "body"
    options = ("-sS", "-x", f"http://127.0.0.1:{proxy['port']}", "-w", "%{http_code} %{content_type}", "-o", str(body))
    printed = run(find("curl"), *options, "http://www.ads.example/banner?id=1", seconds=60)
    assert printed.stdout == "403 application/problem+json", printed.stderr
    found = json.loads(body.read_text())
    assert {
        name: found[name] for name in ("reason", "detail", "policy", "rule", "list", "host", "method", "contact")
    } == {
        "reason": "policy_denied",
        "detail": RULE["action"]["reason"],
        "policy": "office",
        "rule": "no ads",
        "list": "ads",
        "host": "www.ads.example",
        "method": "GET",
        "contact": CONTACT,
    }
    record = record_with(product, found["request_id"])
    assert (record["reason"], record["target_url"]) == ("policy_denied", "http://www.ads.example/banner?id=1")


def test_curl_is_refused_a_tunnel_with_the_same_word(proxy: dict[str, Any]) -> None:
    printed = run(
        find("curl"), "-sSv", "-x", f"http://127.0.0.1:{proxy['port']}", "https://ads.example/", seconds=60, check=False
    )
    assert "CONNECT tunnel failed, response 403" in printed.stderr
    assert "rule=policy_denied" in printed.stderr
    assert "application/problem+json" in printed.stderr


def test_chromium_shows_a_page(product: Product, proxy: dict[str, Any], tmp_path: Path) -> None:
    flags = (*FLAGS, f"--user-data-dir={tmp_path / 'profile'}", f"--proxy-server=http://127.0.0.1:{proxy['port']}")
    printed = run(find("chromium"), *flags, "--dump-dom", "http://ads.example/", seconds=120)
    assert "<h1>A policy denies the request</h1>" in printed.stdout, printed.stderr
    assert "no &lt;b&gt;ads&lt;/b&gt; &amp; games here" in printed.stdout
    assert f'<a href="{CONTACT}">' in printed.stdout
    request_id = re.search(r"<dt>Request id \(for the operator\)</dt><dd>([0-9a-f]+)</dd>", printed.stdout)
    assert request_id is not None, printed.stdout
    assert record_with(product, request_id[1])["reason"] == "policy_denied"
