"""Names through the whole product: its own name servers, the cache in the API, and a resolver that is killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.http_origins import Origin
from tests.kit.name_servers import ScriptedNameServer, zone
from tests.kit.secured_product import NAME, SecuredProduct
from tests.kit.wait import wait_until
from tests.product.e2e.fetching import fetched_name

pytestmark = [pytest.mark.product, pytest.mark.filterwarnings("ignore:Unverified HTTPS request")]

OTHER = "other.names.example"


@pytest.fixture
def server(secured: SecuredProduct) -> ScriptedNameServer:
    return secured.names


@pytest.fixture
def named(secured: SecuredProduct) -> Iterator[SecuredProduct]:
    yield secured
    for proxy in secured.data("GET", "/proxies")["proxies"]:
        secured.data("DELETE", f"/proxies/{proxy['id']}")


def test_names_come_from_the_configured_servers_and_their_cache_is_shown_and_dropped(
    named: SecuredProduct, server: ScriptedNameServer, origin: Origin
) -> None:
    proxy = named.proxy()
    wait_until(lambda: fetched_name(proxy, NAME, origin) == 200, "the name is resolved")
    # an address of one family is used while that of the other is awaited
    wait_until(lambda: len(named.data("GET", f"/dns/cache?name={NAME}")["entries"]) == 2, "both families are known")
    asked = len(server.asked(NAME))
    assert fetched_name(proxy, NAME, origin) == 200
    assert len(server.asked(NAME)) == asked
    cached = named.data("GET", f"/dns/cache?name={NAME}")
    entries = cached["entries"]
    assert any(each["up"] and each["queries"] for each in cached["resolver"]["servers"])
    assert cached["resolver"]["requests"] >= 1
    assert {(each["type"], each["status"]) for each in entries} == {("A", "found"), ("AAAA", "no_data")}
    assert named.data("DELETE", f"/dns/cache?name={NAME}")["dropped"] == 2
    wait_until(lambda: fetched_name(proxy, NAME, origin) == 200 and len(server.asked(NAME)) > asked, "it is asked anew")


def test_a_proxy_has_servers_and_names_of_its_own_and_another_process_asks_them(
    named: SecuredProduct, origin: Origin
) -> None:
    with ScriptedNameServer(zone({OTHER: ("127.0.0.1",)})) as own:
        proxy = named.proxy(dns={"servers": [own.address], "hosts": {"mine.example": ["127.0.0.1"]}})
        assert fetched_name(proxy, OTHER, origin) == 200, "it waits for the process"
        assert fetched_name(proxy, "mine.example", origin) == 200
        assert fetched_name(proxy, NAME, origin) == 502
        servers = [entry["servers"] for entry in named.data("GET", f"/dns/cache?name={OTHER}")["entries"]]
        assert [own.address] in servers
        before = named.actor("proxy-resolver")
        assert before.pid != named.actor("resolver").pid
        before.kill()
        status = fetched_name(proxy, f"later.{OTHER}", origin)
        assert status == 502, "the system would not know it either"
        assert named.data("DELETE", "/dns/cache")["dropped"] >= 0
        wait_until(lambda: fetched_name(proxy, OTHER, origin) == 200, "it comes back")


def test_without_the_resolver_the_system_is_asked_and_it_comes_back(
    named: SecuredProduct, server: ScriptedNameServer, origin: Origin
) -> None:
    proxy = named.proxy()
    wait_until(lambda: fetched_name(proxy, NAME, origin) == 200, "the name is resolved")
    before = named.actor("resolver")
    before.kill()
    assert fetched_name(proxy, NAME, origin) == 200  # it is cached in front
    assert fetched_name(proxy, "gone.invalid", origin) == 502
    wait_until(lambda: named.actor("resolver").pid != before.pid, "the resolver runs again")
    named.data("DELETE", "/dns/cache")
    wait_until(lambda: fetched_name(proxy, NAME, origin) == 200, "the name is resolved again")
