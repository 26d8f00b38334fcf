"""Name servers and names of a proxy over the API: which are refused, and what both resolvers have, as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from actors.bus.mailbox import NOT_ON_THE_BUS
from actors.bus.messages.common import PROXY_RESOLVER, RESOLVER, Unreachable
from actors.bus.messages.dns import (
    DnsCache,
    DnsEntry,
    DnsServerState,
    DnsState,
    ForgetNames,
    NamesForgotten,
    QueryDnsCache,
)
from api.api_settings import ApiSettings
from api.objects.proxies import proxy_changes
from api.queries.metrics.dns_operations import added
from api.queries.metrics.prometheus import expose_names
from config.settings.settings import Dns, ProxyGroup
from tests.kit.api_stage import QUIET, Api, error_of
from tests.kit.tables import table
from tests.unit.api.creating import create

ALLOWING = ProxyGroup(dns_allow=("10.0.0.0/8", "0.0.0.0/0"), dns=Dns(servers=("127.0.0.1:5353", "tls://dns.example")))
REFUSED = [
    "127.0.0.1",
    "127.0.0.1:5354",
    "[::1]:5353",
    "10.0.0.53",
    "tls://localhost",
    "https://192.168.1.1",
    "169.254.169.254",
    "fe80::1",
    "::ffff:127.0.0.1",
    "64:ff9b::7f00:1",
    "tls://168.63.129.16",
]


@pytest.fixture
def headers(api: Api, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(proxy_changes, "system_servers", lambda: ("192.168.7.7",))
    return api.token()


@pytest.fixture(params=[None, "scope"])
def status(request: pytest.FixtureRequest, api: Api, headers: dict[str, str]) -> Callable[[str], int]:
    """That of a change to a name server, by an administrator and by a key with a scope."""
    made = create(api, headers)
    caller = headers if request.param is None else api.key(scope={"proxies": [made["id"]]})

    def change(server: str) -> int:
        response = api.patch(f"/proxies/{made['id']}", {"dns": {"servers": ["9.9.9.9", server]}}, caller)
        if response.status_code == 400:
            assert error_of(response)[2]["field"] == "dns.servers[1]"
        return int(response.status_code)

    return change


@table("server", REFUSED)
def test_a_name_server_that_is_not_public_is_refused(api: Api, headers: dict[str, str], server: str) -> None:
    api.services.apply(ApiSettings(security=QUIET, proxy=ProxyGroup(egress_guard="off", dns=ALLOWING.dns)))
    body = {"name": "a", "port": 3128, "protocol": "http", "dns": {"servers": [server]}}
    status, _code, details = error_of(api.post("/proxies", body, headers))
    assert (status, details["field"]) == (400, "dns.servers[0]")


def test_the_configuration_may_name_others_but_never_the_product_nor_link_local(
    api: Api, status: Callable[[str], int]
) -> None:
    api.services.apply(ApiSettings(security=QUIET, proxy=ProxyGroup(dns=ALLOWING.dns)))
    named = ("127.0.0.1:5353", "192.168.7.7", "tls://dns.example", "tls://1.1.1.1")
    assert [status(each) for each in named] == [200] * 4
    assert status("192.168.7.7:5353") == 400
    api.services.apply(ApiSettings(security=QUIET, proxy=ALLOWING))
    assert [status(each) for each in ("10.0.0.53", "tls://127.0.0.1")] == [200] * 2
    never = ("169.254.169.254", "127.0.0.1:3128", "[::ffff:127.0.0.1]:3128", "tls://127.0.0.1:8080")
    assert [status(each) for each in never] == [400] * 4


def test_what_is_stored_stays_when_something_else_is_changed(api: Api, headers: dict[str, str]) -> None:
    api.services.apply(ApiSettings(security=QUIET, proxy=ALLOWING))
    made = create(api, headers, dns={"servers": ["10.0.0.53"]})
    api.services.apply(ApiSettings(security=QUIET))
    for body in ({"tags": ["a"]}, {"dns": {"prefer": "ipv4"}}, {"dns": {"servers": []}}):
        assert api.patch(f"/proxies/{made['id']}", body, headers).status_code == 200


def test_the_shortest_time_is_not_above_the_longest(api: Api, headers: dict[str, str]) -> None:
    made = create(api, headers, dns={"max_ttl": 60})
    bodies = ({"dns": {"min_ttl": 61}}, {"dns": {"min_ttl": 5, "max_ttl": 4}})
    for body in bodies:
        status, _code, details = error_of(api.patch(f"/proxies/{made['id']}", body, headers))
        assert (status, details["field"]) == (400, "dns.min_ttl")
    assert api.patch(f"/proxies/{made['id']}", {"dns": {"min_ttl": 60}}, headers).status_code == 200


def test_a_name_with_one_address_needs_no_list(api: Api, headers: dict[str, str]) -> None:
    made = create(api, headers, dns={"hosts": {"a.example": "192.0.2.1"}})
    assert made["dns"]["hosts"] == {"a.example": ["192.0.2.1"]}
    assert Dns.model_validate({"hosts": {"a.example": "192.0.2.1"}}).hosts == {"a.example": ("192.0.2.1",)}


class Resolver:
    """Plays one; `servers` are those that it has asked."""

    def __init__(self, name: str, *servers: DnsServerState) -> None:
        self.name = name
        self._servers = servers

    def __call__(self, message: Any) -> Any:
        if isinstance(message, QueryDnsCache):
            return DnsCache((DnsEntry(f"{self.name}.example", "A", "found", ("192.0.2.1",), 5.0),) * 3, 3)
        if isinstance(message, ForgetNames):
            return NamesForgotten(3)
        return DnsState(10, 4, 1, 3, 2, {"id": 1}, self._servers)


def test_both_resolvers_are_shown_as_one(api: Api, headers: dict[str, str]) -> None:
    shared, other = DnsServerState("9.9.9.9", 5, 1, 0.5, ((3, 4),)), DnsServerState("8.8.8.8", 1, 0, 0.1, ((2, 1),))
    api.fleet.others[RESOLVER] = Resolver("first", shared)
    api.fleet.others[PROXY_RESOLVER] = lambda _message: Unreachable(PROXY_RESOLVER, NOT_ON_THE_BUS)
    assert api.get("/dns/cache", headers).json["data"]["total"] == 3
    api.fleet.others[PROXY_RESOLVER] = Resolver("second", shared, other)
    found = api.get("/dns/cache?limit=3", headers).json["data"]
    assert [each["name"] for each in found["entries"]] == ["first.example", "second.example", "first.example"]
    assert (found["total"], found["resolver"]["requests"], found["resolver"]["waiting"]) == (6, 20, 4)
    assert [(each["name"], each["queries"]) for each in found["resolver"]["servers"]] == [
        ("8.8.8.8", 1),
        ("9.9.9.9", 10),
    ]
    dropped = api.request("DELETE", "/dns/cache", headers=headers)
    assert dropped.json["data"]["dropped"] == 6
    api.fleet.others[PROXY_RESOLVER] = lambda _message: Unreachable(PROXY_RESOLVER, "no reply in time")
    assert api.get("/dns/cache", headers).status_code == 503


def test_metrics_have_a_name_server_that_both_ask_once() -> None:
    shared, other = DnsServerState("9.9.9.9", 5, 1, 0.5, ((3, 4),)), DnsServerState("8.8.8.8", 1, 0, 0.1, ((2, 1),))
    states = [DnsState(10, 4, 1, 3, 2, {"id": 1}, each) for each in ((shared,), (shared, other))]
    samples = [
        (each.name, each.labels, each.value) for family in expose_names(added(states)) for each in family.samples
    ]
    assert ("proxyfleet_dns_requests_total", {}, 20) in samples
    assert ("proxyfleet_dns_dropped_responses_total", {"reason": "id"}, 2) in samples
    assert [each[2] for each in samples if each[:2] == ("proxyfleet_dns_queries_total", {"server": "9.9.9.9"})] == [10]
