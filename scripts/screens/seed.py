"""The objects of the made-up installation, made by its API."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Any

from screens.names import ACCOUNTS, PASSWORD, REFUSED
from tests.kit.product import Product

PEOPLE = {"grace": "administrator", "linus": "operator", "ada": "auditor"}
PLANS: tuple[dict[str, Any], ...] = (
    {"name": "build machines", "limits": {"connections": 200}, "quota": {"bytes": 500_000_000_000, "period": "month"}},
    {"name": "crawlers", "limits": {"bandwidth_out": 20_000_000, "requests_per_minute": 6_000}},
    {
        "name": "people",
        "description": "office hours, fifty gigabytes a month",
        "quota": {"bytes": 50_000_000_000, "period": "month"},
        "self_service": {"password": True},
    },
)
PROXIES: tuple[dict[str, Any], ...] = (
    {"name": "office", "port": 3128, "tags": ["berlin", "people"], "description": "Everybody in the office"},
    {"name": "build-machines", "port": 3129, "tags": ["ci"], "description": "Runners of the build farm"},
    {"name": "crawler-eu", "port": 3130, "tags": ["crawler", "eu"]},
    {"name": "crawler-us", "port": 3131, "tags": ["crawler", "us"]},
    {"name": "partners", "port": 3132, "tags": ["partner"], "description": "Two partners with quotas"},
    {"name": "lab-socks", "port": 1080, "protocol": "socks5", "tags": ["lab"]},
    {"name": "old-terminals", "port": 1081, "protocol": "socks4", "tags": ["lab", "to-retire"]},
)
STOPPED = "old-terminals"
PLACES = {"crawler-eu": ("frankfurt", "paris", "madrid"), "crawler-us": ("ashburn", "dallas")}


@dataclass
class Seeded:
    """What there is now: proxies by name, in detail form, and accounts by user name."""

    proxies: dict[str, dict[str, Any]] = field(default_factory=dict)
    accounts: dict[str, dict[str, Any]] = field(default_factory=dict)


def seed(product: Product, internet: int) -> Seeded:
    """Make all of it; `internet` is the port of the upstream that every proxy goes through."""
    made = Seeded()
    for each in PROXIES:
        made.proxies[each["name"]] = product.proxy(**_proxy(each, internet))
    product.data("POST", f"/proxies/{made.proxies[STOPPED]['id']}/stop")
    for plan in PLANS:
        product.data("POST", "/plans", plan)
    for number, name in enumerate(ACCOUNTS):
        made.accounts[name] = product.data("POST", "/accounts", _account(name, PLANS[_plan(number)]["name"]))["account"]
    for name, role in PEOPLE.items():
        body = {"username": name, "password": PASSWORD, "role": role, "email": f"{name}@example.com"}
        product.data("POST", "/users", body)
    _programs(product, made, internet)
    return made


def _proxy(given: dict[str, Any], internet: int) -> dict[str, Any]:
    places = PLACES.get(given["name"], ("gateway",))
    # one address cannot be listed twice, so that each place beside the first has a user name of its own
    upstreams = [
        {"protocol": "http", "host": "127.0.0.1", "port": internet, "name": place}
        | ({"auth": {"username": place, "password": "of no use"}} if number else {})
        for number, place in enumerate(places)
    ]
    return {
        "protocol": "http",
        "host": "127.0.0.1",
        "auth": {"enabled": True},
        "accept_proxy_protocol": True,
        "upstreams": upstreams,
        "upstream_policy": "round_robin",
        "access": {"deny_destinations": [REFUSED]},
        **given,
        "port": _free_from(given["port"]),
    }


def _free_from(port: int) -> int:
    """This port, or the next one a thousand higher that is free."""
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
        port += 1_000


def _plan(number: int) -> int:
    return 0 if number in (0, 1, 7) else 1 if number in (2, 3, 10) else 2


def _account(name: str, plan: str) -> dict[str, Any]:
    return {
        "username": name,
        "password": PASSWORD,
        "plan": plan,
        "proxies": {"all": True},
        "tags": [name.split("-", maxsplit=1)[0]],
    }


def _programs(product: Product, made: Seeded, internet: int) -> None:
    """Keys, webhooks and credentials."""
    product.data("POST", "/api-keys", {"name": "terraform", "permissions": ["proxy.read", "proxy.write"]})
    product.data("POST", "/api-keys", {"name": "grafana", "permissions": ["metrics.read"]})
    here = f"http://127.0.0.1:{internet}"
    product.data("POST", "/webhooks", {"name": "chat", "url": f"{here}/chat", "events": ["proxy.*", "account.*"]})
    product.data("POST", "/webhooks", {"name": "audit archive", "url": f"{here}/archive", "events": ["*"]})
    account = made.accounts["build-linux"]["id"]
    for job in ("job 8812", "job 8813", "job 8817"):
        product.data("POST", f"/accounts/{account}/credentials", {"name": job, "ttl": 3600})
