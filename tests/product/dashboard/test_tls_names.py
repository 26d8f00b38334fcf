"""The name in the TLS handshake of a tunnel, in the page: chosen for proxies and rules, explained, and found in records
and among live connections. Clients are curl and OpenSSL."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.kit.browser import Problems, SignIn, leave, show
from tests.kit.certificates import make_pair
from tests.kit.curl import curl, needs_curl
from tests.kit.http_origins import Origin, serving
from tests.kit.product import Product

pytestmark = needs_curl

OTHER = "other.example"
SIDEWAYS = "() => document.documentElement.scrollWidth > document.documentElement.clientWidth"

MakeProxy = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Origin]:
    """A site that speaks TLS and takes each name."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*make_pair(tmp_path_factory.mktemp("site")))
    with serving(server := Origin(tls)):
        yield server


def press(where: Page | Locator, name: str) -> None:
    where.get_by_role("button", name=name, exact=True).click()


def save(page: Page, name: str) -> None:
    """Review what has changed, and store it."""
    press(page, "Review and save")
    press(page.get_by_role("dialog", name="Review changes"), "Save")
    expect(page.get_by_text(f"{name} saved")).to_be_visible()


def fact(page: Page, name: str) -> Locator:
    """The value beside a name."""
    return page.locator("dl > div").filter(has=page.locator("dt").get_by_text(name, exact=True)).locator("dd")


def fetch(proxy: dict[str, Any], origin: Origin, name: str) -> int:
    """By a tunnel to `localhost`, with this name in the handshake; 0 where the proxy refused that."""
    there = f"{name}:{origin.port}"
    return curl(
        "-k",
        *("-x", f"http://127.0.0.1:{proxy['port']}", "--proxytunnel"),
        *("--connect-to", f"{there}:localhost:{origin.port}", f"https://{there}/hello"),
    )[0]


@contextmanager
def tunnel(proxy: dict[str, Any], origin: Origin) -> Iterator[None]:
    """One that stays open after its handshake."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    tls.set_alpn_protocols(["http/1.1"])
    with socket.create_connection(("127.0.0.1", proxy["port"]), 60) as plain:
        there = f"localhost:{origin.port}"
        plain.sendall(f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n\r\n".encode())
        assert plain.recv(65_536).startswith(b"HTTP/1.1 200 ")
        with tls.wrap_socket(plain, server_hostname="localhost"):
            yield


def test_the_check_and_its_ports_are_chosen_for_a_proxy_and_shown(
    make_proxy: MakeProxy, page: Page, product: Product, problems: Problems
) -> None:
    problems.allow("/api/v1/proxies/.* 400 ")
    made = make_proxy()
    show(page, f"/proxies/{made['id']}")
    expect(fact(page, "TLS name")).to_have_text("automatic · port 443")
    show(page, f"/proxies/{made['id']}/configuration")
    check = page.get_by_label("Name in the TLS handshake")
    expect(check).to_have_accessible_description(re.compile("an entry with host names let through"))
    check.select_option(label="must be the host of the request")
    expect(page.get_by_text("Another name, none, or something other than TLS is refused.")).to_be_visible()
    ports = page.get_by_label("Target ports where the TLS name is read")
    ports.press_sequentially("https,")
    press(page, "Review and save")
    press(page.get_by_role("dialog", name="Review changes"), "Save")
    expect(ports).to_have_attribute("aria-invalid", "true")
    expect(ports).to_have_accessible_description(re.compile(r"check none https: must be"))
    press(page, "Remove https")
    ports.press_sequentially("8443,")
    page.set_viewport_size({"width": 320, "height": 700})
    assert not page.evaluate(SIDEWAYS)
    save(page, made["name"])
    stored = product.data("GET", f"/proxies/{made['id']}")["proxy"]
    assert (stored["tls_name"], stored["tls_ports"]) == ("match", [443, 8443])
    show(page, f"/proxies/{made['id']}/rules")
    expect(page.get_by_text("must be the host of the request · ports 443, 8443")).to_be_visible()


def test_a_rule_says_what_becomes_of_the_name_and_is_tried_with_one_before_it_is_saved(
    make_proxy: MakeProxy, page: Page, product: Product
) -> None:
    made = make_proxy(access={"allow_destinations": ["localhost:443"]})
    name = f"names-of-{made['name']}"
    product.data("POST", "/policies", {"name": name, "rules": [{"name": "all", "match": {}, "action": {}}]})
    product.data("PATCH", f"/proxies/{made['id']}", {"policy": name})
    show(page, f"/rules/policies/{name}")
    page.get_by_role("button", name="all every request").click()
    page.get_by_label("Name in the TLS handshake").select_option(label="must itself be allowed")
    page.get_by_label("Proxy", exact=True).select_option(label=f"{made['name']} · {made['port']}")
    page.get_by_label("Target", exact=True).fill("localhost:443")
    page.get_by_label("Name in the handshake").fill(OTHER)
    press(page, "Explain")
    tried = page.get_by_role("status", name="Decision")
    expect(tried).to_contain_text("Denied")
    expect(tried).to_contain_text("name in the TLS handshake not allowed")
    expect(tried).to_contain_text("must itself be allowed · another name other.example")
    save(page, name)
    expect(page.get_by_text("TLS name: must itself be allowed")).to_be_visible()
    (rule,) = product.data("GET", f"/policies/{name}")["policy"]["rules"]
    assert rule["action"]["tls_name"] == "allowed"
    leave(page)
    product.data("PATCH", f"/proxies/{made['id']}", {"policy": None})
    product.api("DELETE", f"/policies/{name}")


def test_explain_says_which_check_is_in_force_and_what_becomes_of_a_name(make_proxy: MakeProxy, page: Page) -> None:
    made = make_proxy(access={"allow_destinations": ["localhost:443", ":80", "localhost:8443"]})
    show(page, f"/proxies/{made['id']}/rules")
    decision = page.get_by_role("status", name="Decision")
    step = decision.get_by_role("listitem").filter(has_text="Name in the TLS handshake")

    def ask(target: str, name: str = "") -> None:
        page.get_by_label("Target", exact=True).fill(target)
        page.get_by_label("Name in the handshake").fill(name)
        press(page, "Explain")
        expect(decision).to_contain_text(target.removeprefix("https://"))

    ask("localhost:443")
    expect(step).to_contain_text("assumed")
    expect(step).to_contain_text("must be the host of the request")
    expect(step).to_contain_text("access.allow_destinations[0] localhost:443")
    expect(decision).to_contain_text("if the name in the handshake is right")
    ask("localhost:443", OTHER)
    expect(decision).to_contain_text("Denied")
    expect(decision).to_contain_text("name in the TLS handshake not allowed")
    expect(step).to_contain_text("refused here")
    expect(step).to_contain_text("another name other.example")
    ask("localhost:443", "LOCALHOST")
    expect(step).to_contain_text("the name is allowed")
    expect(decision).not_to_contain_text("if the name in the handshake is right")
    page.get_by_label("The client sends no name").check()
    press(page, "Explain")
    expect(step).to_contain_text("no name")
    expect(decision).to_contain_text("name in the TLS handshake not allowed")
    page.get_by_label("The client sends no name").uncheck()
    ask("localhost:8443")
    expect(decision).to_contain_text("The name in the TLS handshake is not checked on this port.")
    expect(step).to_have_count(0)
    page.get_by_label("Target", exact=True).fill("http://localhost/")
    expect(page.get_by_label("Name in the handshake")).to_have_count(0)
    press(page, "Explain")
    expect(decision).to_contain_text("localhost:80")
    expect(decision).not_to_contain_text("The name in the TLS handshake")


def test_records_are_found_by_the_name_and_by_a_protocol_and_a_refusal_says_what_to_do(
    make_proxy: MakeProxy, page: Page, origin: Origin
) -> None:
    made = make_proxy(tls_name="match", tls_ports=[origin.port])
    assert (fetch(made, origin, "localhost"), fetch(made, origin, OTHER)) == (200, 0)
    show(page, f"/logs?proxy={made['id']}&hidden=in,upstream")
    rows = page.get_by_role("grid", name="Logs").locator("[data-index]")
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text=OTHER)).to_contain_text("name in the TLS handshake not allowed")
    expect(rows.filter(has_text=OTHER)).to_contain_text("1.3")
    rows.get_by_role("button", name="http/1.1", exact=True).first.click()
    expect(page.get_by_text("ALPN: http/1.1")).to_be_visible()
    expect(rows).to_have_count(2)
    rows.get_by_role("button", name=OTHER, exact=True).click()
    expect(page.get_by_text(f"TLS name: {OTHER}")).to_be_visible()
    expect(rows).to_have_count(1)
    rows.click(position={"x": 2, "y": 2})
    expect(page.get_by_role("dialog", name="Record")).to_be_visible()
    expect(fact(page, "TLS name")).to_have_text(OTHER)
    expect(fact(page, "ALPN")).to_contain_text("http/1.1")
    expect(fact(page, "What to do")).to_contain_text("let it request this host")
    page.get_by_role("link", name="Explain the decision").click()
    expect(page.get_by_label("Name in the handshake")).to_have_value(OTHER)
    expect(page.get_by_role("status", name="Decision")).to_contain_text("name in the TLS handshake not allowed")


def test_a_live_tunnel_shows_its_handshake_and_is_found_by_it(
    make_proxy: MakeProxy, sign_in: SignIn, origin: Origin
) -> None:
    made = make_proxy(tls_ports=[origin.port])
    page = sign_in()
    with tunnel(made, origin):
        show(page, f"/live?proxy={made['id']}")
        row = page.get_by_role("grid", name="Connections").locator("[data-index]")
        shown = row.get_by_title("localhost · http/1.1 · TLS 1.3")
        expect(shown).to_contain_text(f"localhost:{origin.port}")
        expect(shown).not_to_contain_text("TLS name")
        row.get_by_role("button", name="Actions: 127.0.0.1").click()
        page.get_by_role("menuitem", name="Only the TLS name localhost").click()
        expect(page.get_by_role("search", name="Filter").get_by_text("TLS name: localhost")).to_be_visible()
        expect(row).to_have_count(1)
        expect(shown).to_contain_text("TLS name: localhost")
        page.set_viewport_size({"width": 320, "height": 700})
        expect(shown.get_by_text("TLS name: localhost")).to_be_visible()
        assert not page.evaluate(SIDEWAYS)
        show(page, f"/live?proxy={made['id']}&alpn=h2")
        expect(page.get_by_text("No connection matches")).to_be_visible()


def test_a_plan_keeps_to_itself_which_rule_refuses(page: Page, product: Product) -> None:
    plan = product.data("POST", "/plans", {"name": "says less"})["plan"]
    show(page, f"/accounts/plans/{plan['id']}")
    named = page.get_by_role("switch", name="Name the rule in refusals")
    expect(named).to_be_checked()
    named.uncheck()
    save(page, "says less")
    assert product.data("GET", f"/plans/{plan['id']}")["plan"]["disclose"] is False
    leave(page)
    product.api("DELETE", f"/plans/{plan['id']}")
