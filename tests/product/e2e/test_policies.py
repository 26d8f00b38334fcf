"""Lists and policies of the whole product: they hold at once on every proxy, and through the death of any process."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.curl import curl, needs_curl
from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = [pytest.mark.product, needs_curl]

HERE, ELSEWHERE = ["127.0.0.0/8"], ["192.0.2.0/24"]


def denying(product: Product, entries: list[str], name: str) -> None:
    """A list, and a policy that denies what is in it."""
    product.data("POST", "/lists", {"name": name, "kind": "networks", "entries": entries})
    rules = [{"name": "blocked", "match": {"destinations": [f"list:{name}"]}, "action": {"use": "deny"}}]
    product.data("POST", "/policies", {"name": name, "rules": rules})


def status(proxy: dict[str, Any], url: str) -> int:
    """What a client gets that uses this proxy."""
    return curl("-x", f"http://127.0.0.1:{proxy['port']}", url)[0]


def put(product: Product, name: str, entries: list[str]) -> None:
    product.data("PATCH", f"/lists/{name}", {"entries": entries})


def test_a_changed_list_holds_for_the_next_request_on_all_proxies_and_open_connections(
    product: Product, origin: Origin
) -> None:
    denying(product, HERE, "at-once")
    proxies = [product.proxy(policy="at-once"), product.proxy(access={"deny_destinations": ["list:at-once"]})]
    with Client(proxies[0]["port"]) as client:
        for _ in range(2):
            for entries, expected in ((HERE, 403), (ELSEWHERE, 200)):
                put(product, "at-once", entries)
                assert client.get(origin.url("/hello")).status == expected
                assert [status(each, origin.url("/hello")) for each in proxies] == [expected] * 2
    used = product.api("DELETE", "/lists/at-once").json()["error"]["details"]["error"]
    assert "in use by 2" in used
    for each in proxies:
        product.data("DELETE", f"/proxies/{each['id']}")
    product.data("DELETE", "/policies/at-once")
    product.data("DELETE", "/lists/at-once")


def test_the_policy_of_all_proxies_holds_at_once_on_each_of_them_also_on_one_that_sleeps(
    product: Product, origin: Origin
) -> None:
    denying(product, HERE, "everywhere")
    denying(product, ELSEWHERE, "own")
    proxies = [product.proxy(), product.proxy(policy="own"), product.proxy(workers=2)]
    sleeping = product.proxy(sleep_after=1)
    question: dict[str, Any] = {"client_ip": "127.0.0.1", "target": origin.url("/hello")}

    def sleeps() -> bool:
        state: str = product.data("GET", f"/proxies/{sleeping['id']}")["proxy"]["runtime"]["state"]
        return state == "sleeping"

    for policy, expected in (("everywhere", 403), ("", 200), ("everywhere", 403)):
        product.data("PATCH", "/settings", {"proxy": {"policy": policy}})
        assert [status(each, origin.url("/hello")) for each in proxies] == [expected] * 3
    wait_until(sleeps, "it sleeps")
    for each in (*proxies, sleeping):
        explained = product.data("POST", f"/proxies/{each['id']}/explain", question)
        assert (explained["decision"], explained["rule"]) == ("deny", "policy everywhere[0] blocked")
    assert status(sleeping, origin.url("/hello")) == 403
    product.data("DELETE", "/settings/proxy.policy")
    for path in (*(f"/proxies/{each['id']}" for each in (*proxies, sleeping)), "/policies/own", "/policies/everywhere"):
        product.data("DELETE", path)
    for name in ("own", "everywhere"):
        product.data("DELETE", f"/lists/{name}")


def test_a_policy_is_tried_before_it_is_stored_by_the_process_that_decides(product: Product, origin: Origin) -> None:
    product.data("POST", "/lists", {"name": "tried", "kind": "networks", "entries": HERE})
    denying(product, ELSEWHERE, "elsewhere")
    rules = [{"name": "blocked", "match": {"destinations": ["list:tried"]}, "action": {"use": "deny"}}]
    proxies = [product.proxy(), product.proxy(policy="elsewhere")]
    for proxy, name in ((proxies[0], "new"), (proxies[1], "new"), (proxies[1], "elsewhere")):
        question: dict[str, Any] = {"client_ip": "127.0.0.1", "target": origin.url("/hello")}
        path = f"/proxies/{proxy['id']}/explain"
        assert product.data("POST", path, question)["decision"] == "allow"
        tried = product.data("POST", path, {**question, "draft": {"name": name, "rules": rules}})
        assert (tried["decision"], tried["rule"]) == ("deny", f"policy {name}[0] blocked")
        assert [(each["policy"], each["matches"]) for each in tried["rules"]] == [(name, "yes")]
        assert product.data("POST", path, question)["decision"] == "allow"
        assert status(proxy, origin.url("/hello")) == 200
    for proxy in proxies:
        product.data("DELETE", f"/proxies/{proxy['id']}")
    for path in ("/policies/elsewhere", "/lists/elsewhere", "/lists/tried"):
        product.data("DELETE", path)


def test_a_policy_that_a_plan_gets_holds_for_its_accounts_at_once(product: Product, origin: Origin) -> None:
    denying(product, HERE, "of-plan")
    proxy = product.proxy(auth={"enabled": True})
    plan = product.data("POST", "/plans", {"name": "of-plan"})["plan"]
    fields = {"proxies": {"ids": [proxy["id"]]}, "plan": "of-plan"}
    account = product.data("POST", "/accounts", {"username": "pia", "password": "correct horse", **fields})["account"]
    with Client(proxy["port"]) as client:
        authorization = "Proxy-Authorization: Basic cGlhOmNvcnJlY3QgaG9yc2U="
        assert client.get(origin.url("/hello"), authorization).status == 200
        for policy, expected in (("of-plan", 403), (None, 200), ("of-plan", 403)):
            product.data("PATCH", f"/plans/{plan['id']}", {"policy": policy})
            wait_until(
                lambda expected=expected: client.get(origin.url("/hello"), authorization).status == expected,
                "the actor has noticed the change of the table",
            )
        product.data("PATCH", f"/plans/{plan['id']}", {"policy": None})
        product.data("PATCH", f"/accounts/{account['id']}", {"deny_destinations": ["list:of-plan"]})
        wait_until(
            lambda: client.get(origin.url("/hello"), authorization).status == 403, "the account's own list holds"
        )
    assert "account pia" in product.api("DELETE", "/lists/of-plan").json()["error"]["details"]["error"]
    gone = (f"/accounts/{account['id']}", f"/plans/{plan['id']}", f"/proxies/{proxy['id']}")
    for path in (*gone, "/policies/of-plan", "/lists/of-plan"):
        product.data("DELETE", path)


def test_lists_and_policies_outlive_every_process(own_product: Product, origin: Origin) -> None:
    product, url = own_product, origin.url("/hello")
    denying(product, HERE, "kept")
    proxy = product.proxy(policy="kept")
    open_proxy = product.proxy()

    def holds() -> None:
        assert [status(each, url) for each in (proxy, open_proxy)] == [403, 200]

    holds()
    api = product.actor("api")
    api.kill()
    holds()  # without the API
    wait_until(lambda: not api.is_running(), "the API is gone")
    product.wait_healthy()
    holds()
    product.kill_all()
    product.start()
    wait_until(lambda: status(open_proxy, url) == 200, "proxies serve")
    holds()


def test_the_policy_of_an_account_fences_it_on_every_proxy(product: Product, origin: Origin) -> None:
    denying(product, HERE, "fence")
    proxies = [product.proxy(auth={"enabled": True}) for _ in range(2)]
    account = product.data("POST", "/accounts", {"username": "agent", "password": "battery staples"})["account"]

    def got() -> set[int]:
        url, user = origin.url("/hello"), "agent:battery staples"
        return {curl("-x", f"http://127.0.0.1:{each['port']}", "-U", user, url)[0] for each in proxies}

    def fenced(policy: str | None) -> None:
        product.data("PATCH", f"/accounts/{account['id']}", {"policy": policy})

    assert got() == {200}
    fenced("fence")
    assert got() == {403}
    question = {"target": origin.url("/hello"), "client_ip": "127.0.0.1", "user": "agent"}
    explained = product.data("POST", f"/proxies/{proxies[0]['id']}/explain", question)
    assert (explained["decision"], explained["rule"], explained["assumed"]) == (
        "deny",
        "policy fence[0] blocked",
        ["password"],
    )
    fenced(None)
    assert got() == {200}
    for each in proxies:
        product.data("DELETE", f"/proxies/{each['id']}")
    product.data("DELETE", f"/accounts/{account['id']}")
    product.data("DELETE", "/policies/fence")
    product.data("DELETE", "/lists/fence")
