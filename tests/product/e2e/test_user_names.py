"""User names with parameters in the whole product: configured, used, recorded, explained, exported."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.curl import curl, needs_curl
from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until

pytestmark = [pytest.mark.product, needs_curl]

WORD = "correct horse"
ACCOUNT = {"username": "pia", "password": WORD}


def status(proxy: dict[str, Any], user: str, url: str) -> int:
    return curl("-x", f"http://127.0.0.1:{proxy['port']}", "-U", f"{user}:{WORD}", url)[0]


def test_parameters_are_configured_matched_by_rules_recorded_and_explained(product: Product, origin: Origin) -> None:
    rules = [{"name": "gold", "match": {"params": {"tier": "gold"}}, "action": {"use": "deny"}}]
    product.data("POST", "/policies", {"name": "by-tier", "rules": rules})
    proxy = product.proxy(
        auth={"enabled": True}, accounts=[ACCOUNT], policy="by-tier", username_params={"enabled": True}
    )
    assert proxy["username_params"] == {"enabled": True, "separator": "-", "reject_unknown": False}
    url = origin.url("/hello")
    assert [status(proxy, f"pia{rest}", url) for rest in ("-session-7-hue-red", "-tier-gold")] == [200, 403]
    path = f"/proxies/{proxy['id']}"
    changed = {"separator": "+", "reject_unknown": True}
    product.data("PATCH", path, {"username_params": changed})
    expected = {"pia+session+7": 200, "pia+hue+red": 407, "pia-session-7": 407, "pia": 200}
    assert {user: status(proxy, user, url) for user in expected} == expected
    question = {"client_ip": "127.0.0.1", "user": "pia+tier+gold", "target": url}
    explained = product.data("POST", f"{path}/explain", question)
    assert (explained["decision"], explained["stage"]) == ("deny", "policy")
    assert explained["name"]["marks"] == {"tier": "gold"}
    product.data("PATCH", path, {"username_params": {"enabled": False}})
    assert [status(proxy, user, url) for user in ("pia", "pia+session+7", "pia-session-7")] == [200, 407, 407]

    def recorded() -> set[str]:
        logs = product.data("GET", f"/logs?proxy_id={proxy['id']}&limit=100")["logs"]
        return {each["parameters"] for each in logs}

    every = {"", "session=7 ttl=600 ?hue=red", "tier=gold", "session=7 ttl=600", "?hue=red"}
    wait_until(lambda: recorded() == every, "all requests are recorded with what was understood")
