"""What people do with lists, policies and pools in the page, each job as a whole, with curl as the client."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.kit.browser import Problems, SignIn, show
from tests.kit.curl import curl, needs_curl
from tests.kit.http_origins import Origin, serving
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.product.dashboard.signing import buttons

pytestmark = needs_curl


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    """What the clients ask for."""
    with serving(server := Origin()):
        yield server


@pytest.fixture
def name() -> str:
    """Of the objects of a test."""
    return f"job-{secrets.token_hex(4)}"


@pytest.fixture
def tidy(product: Product) -> Iterator[list[str]]:
    """Paths that are deleted after the test, the last one first."""
    paths: list[str] = []
    yield paths
    for path in reversed(paths):
        product.api("DELETE", path)


def press(where: Page | Locator, name: str) -> None:
    where.get_by_role("button", name=name, exact=True).click()


def create(page: Page, kind: str, name: str) -> None:
    """Store something new."""
    press(page, f"Create {kind}")
    expect(page.get_by_text(f"{name} saved")).to_be_visible()


def save(page: Page, name: str) -> None:
    """Review what has changed, and store it."""
    press(page, "Review and save")
    press(page.get_by_role("dialog", name="Review changes"), "Save")
    expect(page.get_by_text(f"{name} saved")).to_be_visible()


def rules(page: Page) -> Locator:
    return page.get_by_role("list", name="Rules", exact=True).get_by_role("listitem")


def names(product: Product, policy: str) -> list[str]:
    """The stored order."""
    return [each["name"] for each in product.data("GET", f"/policies/{policy}")["policy"]["rules"]]


def test_a_list_and_a_policy_that_denies_it_hold_for_a_proxy_and_are_explained(
    page: Page, product: Product, origin: Origin, name: str, tidy: list[str], problems: Problems
) -> None:
    proxy = product.proxy(name=name)
    tidy.extend((f"/lists/{name}", f"/policies/{name}", f"/proxies/{proxy['id']}"))

    def status() -> int:
        return curl("-x", f"http://127.0.0.1:{proxy['port']}", origin.url("/hello"))[0]

    show(page, "/rules/lists")
    page.get_by_role("link", name="Create list").first.click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Kind").select_option(label="networks")
    page.get_by_label("One entry per line").fill("127.0.0.0/8\n192.0.2.0/24")
    create(page, "list", name)
    page.get_by_label("Address", exact=True).fill("127.0.0.1")
    press(page, "Check")
    expect(page.get_by_role("status", name="Check a target")).to_contain_text("matches 127.0.0.0/8")

    show(page, "/rules/policies/new")
    page.get_by_label("Name", exact=True).fill(name)
    press(page, "Add rule")
    page.get_by_label("Rule name").fill("blocked")
    page.get_by_label("Targets").fill(f"list:{name}")
    page.get_by_label("Targets").blur()
    page.get_by_label("Proxy", exact=True).select_option(label=f"{name} · {proxy['port']}")
    page.get_by_label("Target", exact=True).fill(origin.url("/hello"))
    press(page, "Explain")
    tried = page.get_by_role("status", name="Decision")
    expect(tried).to_contain_text("Denied denied by a policy")
    expect(tried).to_contain_text("By the stored rules: Allowed")
    assert status() == 200
    create(page, "policy", name)
    expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()

    show(page, f"/proxies/{proxy['id']}/configuration")
    page.get_by_label("Policy").select_option(label=name)
    save(page, name)
    assert status() == 403
    show(page, f"/proxies/{proxy['id']}/rules")
    page.get_by_label("Target", exact=True).fill(origin.url("/hello"))
    press(page, "Explain")
    decided = page.get_by_role("list", name="Rules checked").get_by_role("listitem")
    expect(decided).to_contain_text(["blocked"])
    expect(decided).to_contain_text(["decides"])

    show(page, f"/rules/lists/{name}")
    press(page, "More")
    page.get_by_role("menuitem", name="Delete").click()
    problems.allow("/lists/.* 400 ")  # the refusal to delete it
    delete = page.get_by_role("dialog", name="Delete list")
    delete.get_by_label(f"Type {name} to confirm").fill(name)
    press(delete, "Delete")
    expect(delete.get_by_role("alert")).to_contain_text(f"in use by 1 (policy {name})")


def test_a_rule_is_moved_by_keys_by_buttons_and_by_the_pointer_and_tried_before_it_is_saved(
    page: Page, product: Product, name: str, tidy: list[str]
) -> None:
    one, two, three = ({"name": each, "match": {}, "action": {}} for each in ("one", "two", "three"))
    stored = [{**one, "action": {"use": "deny"}}, two, {**three, "action": {"use": "direct"}}]
    product.data("POST", "/policies", {"name": name, "rules": stored})
    proxy = product.proxy(name=name, policy=name)
    tidy.extend((f"/policies/{name}", f"/proxies/{proxy['id']}"))
    show(page, f"/rules/policies/{name}")
    order = rules(page).locator(".name")
    expect(order).to_have_text(["one", "two", "three"])

    rule = page.get_by_role("button", name="one every request")
    rule.focus()
    page.keyboard.press("Alt+ArrowDown")
    expect(order).to_have_text(["two", "one", "three"])
    expect(page.get_by_role("status").filter(has_text="one is now rule 2 of 3")).to_be_attached()
    expect(rule).to_be_focused()
    page.keyboard.press("Alt+ArrowUp")
    page.keyboard.press("Alt+ArrowUp")
    expect(page.get_by_role("status").filter(has_text="one is the first rule")).to_be_attached()
    press(page, "Move three up")
    expect(order).to_have_text(["one", "three", "two"])
    expect(page.get_by_role("button", name="Move three up")).to_be_focused()

    drag(page, page.get_by_role("button", name="Move three", exact=True), rules(page).first)
    expect(order).to_have_text(["three", "one", "two"])
    page.get_by_label("Proxy", exact=True).select_option(label=f"{name} · {proxy['port']}")
    page.get_by_label("Target", exact=True).fill("192.0.2.1:443")
    press(page, "Explain")
    tried = page.get_by_role("list", name="Rules checked").get_by_role("listitem")
    expect(tried.first).to_contain_text("three")
    expect(tried.first).to_contain_text("decides")
    assert names(product, name) == ["one", "two", "three"]
    save(page, name)
    assert names(product, name) == ["three", "one", "two"]


def test_a_request_is_tried_at_all_proxies_at_one_and_at_another_time(
    page: Page, product: Product, origin: Origin, name: str, tidy: list[str]
) -> None:
    match = {"destinations": ["127.0.0.1"], "until": "2040-01-01T00:00:00Z"}
    rule = {"name": "for now", "match": match, "action": {"use": "deny"}}
    product.data("POST", "/policies", {"name": name, "rules": [rule]})
    made = [product.proxy(name=f"{name}-open"), product.proxy(name=f"{name}-closed", policy=name)]
    tidy.extend((f"/policies/{name}", *(f"/proxies/{each['id']}" for each in made)))
    show(page, f"/rules/try?target={quote(origin.url('/hello'))}")
    answers = page.get_by_role("list", name="Decision").get_by_role("listitem")
    expect(answers.filter(has_text=f"{name}-open")).to_contain_text("Allowed")
    expect(answers.filter(has_text=f"{name}-closed")).to_contain_text("Denied denied by a policy")
    answers.get_by_role("button", name=f"{name}-closed").click()
    decision = page.get_by_role("status", name="Decision")
    expect(decision).to_contain_text("Denied denied by a policy")
    expect(page.get_by_role("button", name="Block 127.0.0.1")).to_have_count(0)
    page.get_by_label("Time").fill("2041-01-01T00:00")
    press(page, "Explain")
    expect(decision).to_contain_text("Allowed")
    expect(page.get_by_role("button", name="Block 127.0.0.1")).to_be_visible()
    page.go_back()
    expect(decision).to_contain_text("Denied")
    page.get_by_role("link", name="Open what decides").click()
    expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()


def test_a_pool_is_made_and_used_by_a_proxy(
    page: Page, product: Product, origin: Origin, name: str, tidy: list[str]
) -> None:
    upstream, proxy = product.proxy(name=f"{name}-upstream"), product.proxy(name=name)
    tidy.extend((f"/pools/{name}", f"/proxies/{upstream['id']}", f"/proxies/{proxy['id']}"))
    show(page, "/proxies/pools/new")
    page.get_by_label("Name", exact=True).fill(name)
    press(page, "Add")
    row = page.get_by_role("group", name="Upstream 1")
    row.get_by_label("Host").fill("127.0.0.1")
    row.get_by_label("Port").fill(str(upstream["port"]))
    row.get_by_label("Name", exact=True).fill("exit")
    row.get_by_label("Labels").fill("country=fr, city=paris")
    page.get_by_label("429, too many requests: from").fill("60")
    create(page, "pool", name)
    expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()
    stored = product.data("GET", f"/pools/{name}")["pool"]
    assert stored["upstreams"][0]["labels"] == {"country": "fr", "city": "paris"}
    assert stored["cooldown"]["429"] == [60, 300]

    show(page, f"/proxies/{proxy['id']}/configuration")
    page.get_by_label("Pool").select_option(label=name)
    save(page, name)
    assert curl("-x", f"http://127.0.0.1:{proxy['port']}", origin.url("/hello"))[0] == 200

    def used() -> int:
        found: int = product.data("GET", f"/proxies/{upstream['id']}")["proxy"]["stats"]["total_requests"]
        return found

    wait_until(lambda: used() > 0, "the upstream has served it")

    show(page, f"/proxies/pools/{name}")
    press(page, "Ban: exit")
    press(page.get_by_role("dialog", name="Ban exit"), "Ban")
    known = page.get_by_role("grid", name="State")
    expect(known).to_contain_text("banned")
    assert curl("-x", f"http://127.0.0.1:{proxy['port']}", origin.url("/hello"))[0] == 503
    press(page, "Lift ban: exit")
    expect(known).not_to_contain_text("banned")
    assert curl("-x", f"http://127.0.0.1:{proxy['port']}", origin.url("/hello"))[0] == 200


def drag(page: Page, handle: Locator, to: Locator) -> None:
    """Above the middle of `to`."""
    begin, end = handle.bounding_box(), to.bounding_box()
    assert begin is not None
    assert end is not None
    page.mouse.move(begin["x"] + begin["width"] / 2, begin["y"] + begin["height"] / 2)
    page.mouse.down()
    page.mouse.move(end["x"] + 20, end["y"] + 4, steps=4)
    page.mouse.up()


def test_a_role_that_reads_sees_lists_and_policies_and_may_try_but_not_change_them(
    product: Product, sign_in: SignIn, name: str, tidy: list[str]
) -> None:
    product.data("POST", "/lists", {"name": name, "kind": "domains", "entries": ["ads.example"]})
    rule = {"name": "no ads", "match": {"destinations": [f"list:{name}"]}, "action": {"use": "deny"}}
    product.data("POST", "/policies", {"name": name, "rules": [rule]})
    tidy.extend((f"/lists/{name}", f"/policies/{name}"))
    page = sign_in("user")
    for path in ("lists", "policies"):
        show(page, f"/{path}/{name}")
        expect(page.get_by_label("Name", exact=True)).to_be_disabled()
        expect(buttons(page)).to_have_count(0)
        expect(page.get_by_role("button", name="More")).to_have_count(0)
    press(page, f"no ads list:{name}")
    expect(page.get_by_label("Rule name")).to_be_disabled()
