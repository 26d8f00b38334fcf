"""How the product is configured that all tests of a worker share: what any of them needs."""

from __future__ import annotations

from tests.kit.product import Product

CONTACT = "https://help.corp.example/proxy"
ELSEWHERE = "192.0.2.77"
"""An address for documentation (RFC 5737) that proxies may connect to; nothing is there."""
PROMETHEUS_TOKEN = "a token that only the scraper has"


def configuration(test_url: str) -> str:
    """A configuration file. Holders of accounts may sign in; targets of webhooks may be on loopback."""
    return f"""\
[accounts]
self_service = true
[auth]
max_api_keys = 1000
[metrics]
prometheus_token = "{PROMETHEUS_TOKEN}"
[proxy]
contact = "{CONTACT}"
test_url = "{test_url}"
[security]
public_pac = true
[security.rate_limiting]
session_per_minute = 6000
[webhooks]
allow_private = true
retry_schedule = [0.2, 0.2, 0.2]
"""


def shared_product(test_url: str) -> Product:
    """One that is not started yet."""
    allowed = f'["127.0.0.0/8","::1","{ELSEWHERE}"]'
    return Product({"PROXYFLEET_PROXY__EGRESS_ALLOW": allowed}, configuration(test_url))
