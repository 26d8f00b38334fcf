"""Whole jobs of an operator: a setting is changed and put back, a revision restored, a document imported and exported,
many proxies tagged, the audit trail checked."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.kit.browser import Problems, SignIn, show
from tests.kit.product import Product

SETTING, CONFIGURED, OTHER = "proxy.keep_alive_timeout", "60", "61"


def dialog(page: Page, title: str) -> Locator:
    return page.get_by_role("dialog", name=title)


def press(where: Page | Locator, name: str) -> None:
    where.get_by_role("button", name=name, exact=True).click()


@pytest.fixture
def proxy(product: Product) -> Iterator[dict[str, Any]]:
    """Made and changed twice, by three revisions."""
    made = product.proxy(name=f"job {secrets.token_hex(4)}", description="first")
    for description in ("second", "third"):
        product.data("PATCH", f"/proxies/{made['id']}", {"description": description})
    yield made
    product.api("DELETE", f"/proxies/{made['id']}")


def description(product: Product, proxy: dict[str, Any]) -> str:
    found: str = product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["description"]
    return found


def source(product: Product) -> tuple[str, int]:
    rows = product.data("GET", "/settings/sources")["settings"]
    return next((row["source"], row["value"]) for row in rows if row["key"] == SETTING)


def test_a_setting_is_changed_with_its_source_and_put_back(page: Page, product: Product) -> None:
    show(page, "/settings")
    setting = page.get_by_label("Keep idle connections for")
    expect(setting).to_have_value(CONFIGURED)
    setting.fill(OTHER)
    press(page, "Review and save")
    review = dialog(page, "Review changes")
    expect(review).to_contain_text(SETTING)
    press(review, "Save")
    expect(page.get_by_text(f"instead of {CONFIGURED} (default)")).to_be_visible()
    assert source(product) == ("api", int(OTHER))
    press(page, f"Reset {SETTING}")
    press(dialog(page, f"Reset {SETTING}"), "Reset")
    expect(setting).to_have_value(CONFIGURED)
    expect(page.get_by_role("button", name=f"Reset {SETTING}")).to_have_count(0)
    assert source(product) == ("default", int(CONFIGURED))


def test_an_earlier_state_of_a_proxy_is_read_and_put_back(page: Page, product: Product, proxy: dict[str, Any]) -> None:
    show(page, f"/proxies/{proxy['id']}/history")
    entries = page.get_by_role("list", name="History").get_by_role("listitem")
    expect(entries).to_have_count(3)
    press(entries.nth(1), "Show state")
    then = dialog(page, f"{proxy['name']} after revision")
    expect(then).to_contain_text('"description": "second"')
    press(then, "Restore")
    plan = dialog(page, "What will change")
    expect(plan).to_contain_text("third")
    assert description(product, proxy) == "third"
    press(plan, "Restore")
    expect(entries).to_have_count(4)
    expect(entries.first).to_contain_text("restores")
    assert description(product, proxy) == "second"


def test_one_change_is_undone_or_the_later_one_is_named(
    page: Page, product: Product, proxy: dict[str, Any], problems: Problems
) -> None:
    problems.allow("/(restore|undo).* 400 ")
    last: int = product.data("GET", "/revisions?limit=1")["revisions"][0]["revision"]
    product.data("PATCH", f"/proxies/{proxy['id']}", {"tags": ["later"]})
    show(page, f"/history/{last - 1}")
    main = page.get_by_role("main")
    expect(main).to_contain_text("Takes back all 2 later revisions.")
    press(main, "Undo this change")
    plan = dialog(page, "What will change")
    expect(plan.get_by_role("alert")).to_contain_text("can't be undone alone")
    expect(plan.get_by_role("listitem")).to_contain_text(
        f"description was changed since in the proxy '{proxy['name']}'"
    )
    expect(plan.get_by_role("button", name="Undo")).to_have_count(0)
    plan.get_by_role("link", name=f"Revision {last}", exact=True).click()
    expect(page.get_by_role("heading", name=f"Revision {last}", exact=True)).to_be_visible()
    press(main, "Undo this change")
    expect(plan).to_contain_text("third")
    press(plan, "Undo")
    expect(page.get_by_role("heading", name=f"Revision {last + 2}", exact=True)).to_be_visible()
    expect(main).to_contain_text(f"undoes {last}")
    expect(main).to_contain_text("This is the newest revision")
    expect(page.get_by_role("button", name="Restore this state")).to_have_count(0)
    now = product.data("GET", f"/proxies/{proxy['id']}")["proxy"]
    assert (now["description"], now["tags"]) == ("second", ["later"])


def test_what_is_no_revision_is_named_so(page: Page, problems: Problems) -> None:
    problems.allow("/revisions/.* 404 ")
    for wrong in ("abc", "0x10", "999999"):
        show(page, f"/history/{wrong}")
        expect(page.get_by_role("main")).to_contain_text("This revision does not exist")
        expect(page.get_by_role("main")).not_to_contain_text("NaN")


def test_a_rule_that_is_moved_is_one_change(page: Page, product: Product) -> None:
    rules = [{"name": name, "match": {}, "action": {"use": "direct"}} for name in ("one", "two", "three")]
    made = product.data("POST", "/policies", {"name": "to-move", "rules": rules})["policy"]["id"]
    show(page, f"/policies/{made}")
    press(page, "Move two up")
    expect(page.get_by_role("region", name="1 change", exact=True)).to_be_visible()
    press(page, "Review and save")
    review = dialog(page, "Review changes")
    expect(review.locator("dt")).to_have_text(["rules[two].place"])
    product.api("DELETE", f"/policies/{made}")


def test_a_document_is_compared_imported_and_exported(page: Page, product: Product, proxy: dict[str, Any]) -> None:
    document = product.data("GET", "/config/export")
    next(each for each in document["proxies"] if each["name"] == proxy["name"])["description"] = "of a file"
    content = json.dumps(document).encode()
    show(page, "/transfer")
    page.get_by_label("File", exact=True).set_input_files(
        {"name": "fleet.json", "mimeType": "application/json", "buffer": content}
    )
    expect(page.get_by_text("0 to create, 1 to change, 0 to delete.")).to_be_visible()
    expect(page.get_by_role("main").get_by_text("of a file")).to_be_visible()
    assert description(product, proxy) == "third"
    press(page, "Import")
    expect(page.get_by_text("fleet.json imported")).to_be_visible()
    assert description(product, proxy) == "of a file"
    with page.expect_download() as saved:
        press(page, "Download")
    exported = json.loads(saved.value.path().read_text())
    assert exported["proxies"] == document["proxies"]


def test_many_proxies_are_tagged_at_once(page: Page, product: Product) -> None:
    made = [product.proxy(name=f"bulk {number}", tags=["old", "kept"]) for number in range(2)]
    show(page, "/proxies?q=bulk")
    page.get_by_role("checkbox", name="Select all").check()
    bar = page.get_by_role("region", name="2 selected")
    press(bar, "Tags")
    tags = dialog(page, "Change tags of 2 proxies")
    tags.get_by_label("Add tags").fill("new")
    tags.get_by_role("button", name=re.compile("^old")).click()
    press(tags, "Apply")
    expect(page.get_by_text("Done: 2 proxies")).to_be_visible()
    expect(bar).to_have_count(0)
    found = [product.data("GET", f"/proxies/{each['id']}")["proxy"]["tags"] for each in made]
    assert found == [["kept", "new"]] * 2
    for each in made:
        product.api("DELETE", f"/proxies/{each['id']}")


def test_a_field_of_many_proxies_is_tried_changed_and_taken_back(page: Page, product: Product) -> None:
    made = [product.proxy(name=f"change {number}", sleep_after=60 * number) for number in range(3)]

    def asleep() -> list[int]:
        return [product.data("GET", f"/proxies/{each['id']}")["proxy"]["sleep_after"] for each in made]

    show(page, "/proxies?q=change")
    rows = page.get_by_role("grid", name="Proxies").locator("[data-index]")
    rows.first.get_by_role("checkbox").check()
    press(page.get_by_role("region", name="1 selected"), "Select all 3")
    press(page.get_by_role("region", name="3 selected"), "Change…")
    change = dialog(page, "Change 3 proxies")
    change.get_by_label("Field").select_option("Sleeps after")
    change.get_by_label("Sleeps after").fill("60")
    press(change, "Preview")
    expect(change.get_by_role("status")).to_have_text("2 proxies will change. 1 already has this value.")
    assert asleep() == [0, 60, 120]
    press(change, "Change 2 proxies")
    expect(page.get_by_text("Done: 3 proxies")).to_be_visible()
    assert asleep() == [60, 60, 60]
    press(page, "Undo")
    expect(page.get_by_text(re.compile(r"Revision \d+ undone"))).to_be_visible()
    assert asleep() == [0, 60, 120]
    for each in made:
        product.api("DELETE", f"/proxies/{each['id']}")


def test_what_was_changed_and_done_is_one_list_whose_chain_is_checked(
    page: Page, product: Product, proxy: dict[str, Any], axe: Callable[..., None]
) -> None:
    product.data("POST", f"/proxies/{proxy['id']}/restart")
    show(page, f"/audit?resource_name={quote(proxy['name'])}")
    rows = page.get_by_role("grid", name="Changes").locator("[data-index]")
    expect(rows).to_have_count(4)  # an entry and a revision of one request are one row
    rows.first.press("Enter")
    expect(dialog(page, "proxy.restarted")).to_contain_text(proxy["name"])
    page.keyboard.press("Escape")
    rows.nth(1).press("Enter")
    revision = dialog(page, "Revision")
    expect(revision).to_contain_text("third")
    expect(revision.get_by_role("button", name="Undo this change")).to_be_visible()
    axe(page)
    page.reload()
    expect(revision).to_contain_text("third")
    page.keyboard.press("Escape")
    expect(revision).to_have_count(0)
    assert page.url.endswith(f"/ui/changes?resource_name={quote(proxy['name']).replace('%20', '+')}")
    page.get_by_label("Kind").select_option("Sign-ins")
    expect(rows).to_have_count(0)
    page.get_by_label("Kind").select_option("Configuration")
    expect(rows).to_have_count(3)
    press(page, "Check the chain")
    expect(page.get_by_text(re.compile(r"^\d+ entries, unbroken$"))).to_be_visible()


def test_a_session_that_is_not_kept_is_named(sign_in: SignIn) -> None:
    page = sign_in()

    def unkept(route: Route) -> None:
        response = route.fetch()
        body = response.json()
        route.fulfill(response=response, json={**body, "data": {**body["data"], "session_kept": False}})

    page.route("**/auth/refresh", unkept)
    page.goto("/ui/proxies")
    line = page.get_by_text("This session ends when the page is reloaded")
    expect(line).to_be_visible()
    press(page, "Dismiss")
    expect(line).to_have_count(0)
