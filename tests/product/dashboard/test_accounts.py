"""Accounts that are made in the page let clients in: with a password, with a credential, from a file."""

from __future__ import annotations

import csv
import re
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.kit.browser import Problems, show
from tests.kit.curl import curl, needs_curl
from tests.kit.http_origins import Origin, serving
from tests.kit.product import PASSWORD, Product
from tests.kit.wait import wait_until

pytestmark = needs_curl
OUTSIDE = """() => [...document.querySelectorAll('.empty *')]
  .filter((each) => !each.closest('code') && each.getBoundingClientRect().right > innerWidth)
  .map((each) => each.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def target() -> Iterator[Origin]:
    server = Origin()
    with serving(server):
        yield server


@pytest.fixture(scope="module")
def named() -> str:
    return "for accounts"


@pytest.fixture(scope="module")
def get(product: Product, target: Origin, named: str) -> Callable[[str, str], int]:
    """The status that curl gets through a proxy with a user name and a password."""
    proxy = product.proxy(name=named, auth={"enabled": True})

    def status(user: str, password: str) -> int:
        server = f"http://127.0.0.1:{proxy['port']}"
        return curl("-x", server, "-U", f"{user}:{password}", target.url("/hello"))[0]

    return status


@pytest.fixture
def account(product: Product) -> Iterator[dict[str, Any]]:
    """To be named before the page, which is closed then before it is gone."""
    body = {"username": "with-credentials", "password": PASSWORD, "proxies": {"all": True}}
    made: dict[str, Any] = product.data("POST", "/accounts", body)["account"]
    yield made
    product.api("DELETE", f"/accounts/{made['id']}")


def test_an_account_that_was_created_in_the_page_is_used_and_its_usage_is_shown(
    page: Page, product: Product, get: Callable[[str, str], int]
) -> None:
    show(page, "/accounts")
    page.get_by_role("main").get_by_role("link", name="Create account").first.click()
    page.get_by_label("User name").fill("made in the page")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("switch", name="Own quota").check()
    expect(page.get_by_label("Quota", exact=True)).to_have_value("10")  # GB
    page.get_by_label("Quota", exact=True).fill("0.05")
    page.get_by_label("Unit").last.select_option("MB")
    expect(page.get_by_label("Quota", exact=True)).to_have_value("0.05")
    page.get_by_label("Bandwidth from clients").fill("20")
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_role("heading", level=1, name="made in the page")).to_be_visible()
    page.get_by_role("link", name="Open the account").click()
    page.wait_for_url("**/accounts/acc_*")
    account = page.url.rpartition("/")[2]
    try:
        expect(page.get_by_text("of 50 kB per month · 50 kB left")).to_be_visible()
        stored = product.data("GET", f"/accounts/{account}")["account"]
        assert (stored["quota"]["bytes"], stored["limits"]["bandwidth_in"]) == (50_000, 2_500_000)
        expect(page.get_by_text("20 Mbit/s")).to_be_visible()
        assert get("made in the page", "a wrong password") == 407
        assert get("made in the page", PASSWORD) == 200
        expect(page.get_by_role("main").get_by_text("50 kB left")).to_have_count(0)
        expect(page.get_by_text("of 50 kB per month")).to_be_visible()
        page.get_by_role("navigation", name="Main navigation").get_by_role("link", name="Accounts").click()
        row = page.get_by_role("row").filter(has_text="made in the page")
        expect(row).to_contain_text("/ 50 kB")
        expect(row).not_to_contain_text("never")
    finally:
        product.api("DELETE", f"/accounts/{account}")


def requested(line: Locator, target: Origin) -> str:
    """What a line to copy prints, with this target in place of its own."""
    command = line.inner_text().replace("https://example.com/", target.url("/hello"))
    return subprocess.run(["bash", "-ec", command], capture_output=True, text=True, timeout=60).stdout


def test_a_new_account_and_another_password_are_handed_over_and_the_first_request_is_reported(
    page: Page, product: Product, get: Callable[[str, str], int], named: str, target: Origin
) -> None:
    show(page, "/accounts/new")
    page.get_by_label("User name").fill("handed over")
    page.get_by_role("button", name="Generate").click()
    page.get_by_role("button", name="Create account").click()
    card = page.get_by_role("group", name="Hand over handed over")
    expect(card).to_be_focused()
    [account] = product.data("GET", "/accounts?q=handed+over")["accounts"]
    try:
        expect(card.get_by_text(f"{product.base_url}/ui/me")).to_be_visible()
        expect(card.get_by_role("img", name="QR code")).to_be_visible()
        password = card.locator("dd code").inner_text()
        assert re.fullmatch(r"[A-Za-z0-9_-]{20}", password)
        card.get_by_label("Proxy").fill(named)
        line = card.get_by_role("group", name="curl")
        expect(line).to_contain_text(f"handed%20over:{password}@127.0.0.1")
        card.get_by_text("Environment variables").click()
        expect(card.get_by_role("group", name="Environment variables")).to_contain_text("export https_proxy=")
        card.get_by_text("curl", exact=True).click()
        card.get_by_role("button", name="Test it").click()
        expect(card.get_by_text("Waiting for the first request")).to_be_visible()
        assert requested(line, target) == "hello"
        expect(card.get_by_text("It works: a request came from 127.0.0.1")).to_be_visible()
        show(page, f"/accounts/{account['id']}/configuration")
        expect(page.get_by_text(password)).to_have_count(0)
        page.get_by_label("Password").fill(another := f"another {PASSWORD}")
        page.get_by_role("button", name="Review and save").click()
        page.get_by_role("dialog").get_by_role("button", name="Save").click()
        expect(card.locator("dd code")).to_have_text(another)
        assert get("handed over", another) == 200
        card.get_by_role("button", name="Done").click()
        expect(page.get_by_text(another)).to_have_count(0)
    finally:
        product.api("DELETE", f"/accounts/{account['id']}")


def test_the_public_name_is_the_address_that_is_handed_over(
    account: dict[str, Any], page: Page, product: Product, get: Callable[[str, str], int], named: str
) -> None:
    proxy = product.proxy(name="at all addresses", host="0.0.0.0", auth={"enabled": True})
    product.data("PATCH", "/settings", {"proxy": {"public_name": "proxy.example.com"}})
    try:
        show(page, f"/accounts/{account['id']}/credentials?mint=1")
        page.get_by_role("dialog").get_by_role("button", name="Create credential").click()
        once = page.get_by_role("group", name="New credential")
        once.get_by_label("Proxy").fill("at all addresses")
        expect(once.get_by_text(f"proxy.example.com:{proxy['port']}", exact=True)).to_be_visible()
        once.get_by_label("Proxy").fill(named)
        expect(once.get_by_role("group", name="curl")).to_contain_text("@127.0.0.1:")
    finally:
        product.data("PATCH", "/settings", {"proxy": {"public_name": ""}})
        product.api("DELETE", f"/proxies/{proxy['id']}")


def test_a_month_is_a_bill_of_its_accounts_with_amounts_and_a_file_that_is_called_by_it(
    page: Page, product: Product, get: Callable[[str, str], int]
) -> None:
    quota = {"bytes": 50_000_000_000, "period": "month"}
    plan = product.data("POST", "/plans", {"name": "billed", "quota": quota})["plan"]
    requests = {"little": 1, "much": 3}
    made = [
        product.data(
            "POST", "/accounts", {"username": name, "password": PASSWORD, "plan": "billed", "metadata": {"no": name}}
        )["account"]
        for name in requests
    ]
    month = f"{datetime.now(UTC):%Y-%m}"
    try:
        for name, count in requests.items():
            assert [get(name, PASSWORD) for _ in range(count)] == [200] * count

        def used() -> dict[str, Any]:
            rows = product.data("GET", f"/usage?from={month}-01T00:00:00Z&interval=total")["usage"]
            return {row["username"]: row for row in rows if row["username"] in requests}

        wait_until(lambda: {name: row["requests"] for name, row in used().items()} == requests, "all is booked")
        row = used()["much"]
        size = row["bytes_in"] + row["bytes_out"]
        show(page, "/usage")
        page.get_by_label("Price per GB").fill("10000000")
        grid = page.get_by_role("grid", name="Usage")
        much = grid.get_by_role("row").filter(has_text="much")
        for text in ("billed", "50 GB per month", f"{size / 100:.2f}"):
            expect(much).to_contain_text(text)
        texts = grid.get_by_role("row").all_inner_texts()
        [first, second] = [index for name in ("much", "little") for index, text in enumerate(texts) if name in text]
        assert 0 < first < second < len(texts) - 1
        assert texts[-1].startswith("Total")
        assert "price=10000000" in page.url
        page.emulate_media(media="print")
        expect(page.locator(".bars .column > span").first).to_be_visible()
        page.emulate_media(media="screen")
        with page.expect_download() as download:
            page.get_by_role("button", name="Download CSV").click()
        assert download.value.suggested_filename == f"usage-{month}.csv"
        lines = csv.DictReader(download.value.path().read_text().splitlines())
        [line] = [each for each in lines if each["username"] == "much"]
        assert (line["plan"], line["quota"], line["metadata.no"]) == ("billed", "50000000000", "much")
        assert (line["from"], line["requests"]) == (f"{month}-01T00:00:00Z", "3")
        page.get_by_text("Last month", exact=True).click()
        expect(page.get_by_text("No usage in this period")).to_be_visible()
    finally:
        for each in made:
            product.api("DELETE", f"/accounts/{each['id']}")
        product.api("DELETE", f"/plans/{plan['id']}")


def test_the_command_where_nothing_is_yet_scrolls_in_its_own_line_on_a_phone(
    account: dict[str, Any], page: Page
) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    show(page, f"/accounts/{account['id']}/credentials")
    expect(page.get_by_role("heading", name="No credentials yet")).to_be_visible()
    outside = page.evaluate(OUTSIDE)
    assert outside == [], outside


def test_a_minted_credential_is_shown_once_used_and_refused_after_it_was_revoked(
    account: dict[str, Any], page: Page, get: Callable[[str, str], int], named: str, target: Origin
) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    show(page, f"/accounts/{account['id']}/credentials")
    page.get_by_role("button", name="Create credential").click()
    form = page.get_by_role("dialog")
    form.get_by_label("Name").fill("one job")
    form.get_by_role("button", name="Create credential").click()
    once = page.get_by_role("group", name="New credential")
    once.get_by_role("button", name="Copy: Secret").click()
    secret = page.evaluate("navigator.clipboard.readText()")
    assert secret.startswith("pfc_")
    once.get_by_label("Proxy").fill(named)
    line = once.get_by_role("group", name="curl")
    expect(line).to_contain_text(secret)
    assert requested(line, target) == "hello"
    once.get_by_role("button", name="Done").click()
    expect(page.get_by_text(secret)).to_have_count(0)
    assert get(account["username"], secret) == 200
    row = page.get_by_role("row").filter(has_text="one job")
    row.get_by_role("button", name="Revoke one job").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke", exact=True).click()
    expect(page.get_by_text("No credentials yet", exact=True)).to_be_visible()
    wait_until(lambda: get(account["username"], secret) == 407, "the revoked credential is refused")


def test_a_file_with_wrong_lines_names_all_of_them_and_stores_nothing_and_the_right_one_stores_all(
    page: Page, product: Product, get: Callable[[str, str], int], problems: Problems
) -> None:
    problems.allow("/accounts/import.* 400 ")
    show(page, "/accounts/import")
    choose = page.get_by_label("CSV file")
    store = page.get_by_role("button", name="Import accounts")
    lines = b"username,plan,quota.bytes\na,nothing-like-it,\nb,,many\nc,,\nd:e,,\n"
    choose.set_input_files({"name": "a.csv", "mimeType": "text/csv", "buffer": lines})
    wrong = page.get_by_role("grid", name="3 lines have errors").get_by_role("row")
    for row, (line, field) in enumerate({"2": "plan", "3": "quota.bytes", "5": "username"}.items(), 1):
        expect(wrong.nth(row)).to_contain_text(field)
        expect(wrong.nth(row).get_by_role("gridcell").first).to_have_text(line)
    expect(store).to_be_disabled()
    right = f"username,password\nfirst-of-file,{PASSWORD}\nsecond-of-file,{PASSWORD}\n"
    choose.set_input_files({"name": "b.csv", "mimeType": "text/csv", "buffer": right.encode()})
    expect(page.get_by_text("The file is valid: 2 to add, 0 to change.")).to_be_visible()
    store.click()
    expect(page.get_by_role("heading", level=1, name="Accounts")).to_be_visible()
    try:
        expect(page.get_by_role("row").filter(has_text="second-of-file")).to_be_visible()
        assert get("second-of-file", PASSWORD) == 200
    finally:
        for made in product.data("GET", "/accounts?q=-of-file")["accounts"]:
            product.api("DELETE", f"/accounts/{made['id']}")
