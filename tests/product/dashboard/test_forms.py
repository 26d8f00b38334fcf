"""What forms say: while one types, when they are refused, and when the session ends in between."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.kit.browser import Problems, leave, look, show
from tests.kit.product import PASSWORD, Product
from tests.product.dashboard.signing import fill_in, is_user

BAR = re.compile(r"^\d+ changes?$")


@pytest.fixture
def proxy(product: Product) -> Iterator[dict[str, Any]]:
    made = product.proxy(name="in a form")
    yield made
    product.api("DELETE", f"/proxies/{made['id']}")


@pytest.fixture
def writer(product: Product) -> Iterator[dict[str, Any]]:
    body = {"username": "a writer", "password": PASSWORD, "role": "operator"}
    made: dict[str, Any] = product.data("POST", "/users", body)["user"]
    yield made
    product.api("DELETE", f"/users/{made['id']}")


def test_what_was_typed_is_there_after_the_session_has_ended_and_another_user_gets_a_page_of_their_own(
    proxy: dict[str, Any],
    writer: dict[str, Any],
    stranger: Page,
    product: Product,
    people: Callable[[str], str],
    problems: Problems,
) -> None:
    problems.allow(r"/api/v1/.* 40[13] ")

    def end_sessions() -> None:
        for each in product.data("GET", f"/users/{writer['id']}/sessions")["sessions"]:
            product.data("DELETE", f"/users/{writer['id']}/sessions/{each['id']}")
        look(stranger)

    path = f"/ui/proxies/{proxy['id']}/configuration"
    stranger.goto(path)
    fill_in(stranger, writer["username"])
    description = stranger.get_by_label("Description")
    description.fill("half a sen")
    end_sessions()
    returning = stranger.get_by_role("dialog", name="Sign in")
    expect(returning.get_by_text("Your session has ended")).to_be_visible()
    expect(returning.get_by_label("User name")).to_have_value(writer["username"])
    expect(returning.get_by_label("Password", exact=True)).to_be_focused()
    stranger.keyboard.press("Escape")
    stranger.keyboard.press("Escape")
    returning.get_by_label("Password", exact=True).fill(PASSWORD)
    returning.get_by_role("button", name="Sign in").click()
    expect(returning).to_have_count(0)
    expect(description).to_have_value("half a sen")
    stranger.get_by_role("button", name="Review and save").click()
    stranger.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(stranger.get_by_text(BAR)).to_have_count(0)
    assert product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["description"] == "half a sen"
    description.fill("another half")
    end_sessions()
    returning.get_by_label("User name").fill(people("user"))
    returning.get_by_label("Password", exact=True).fill(PASSWORD)
    returning.get_by_role("button", name="Sign in").click()
    is_user(stranger, people("user"))
    expect(stranger.get_by_label("Description")).to_have_count(0)
    expect(stranger.get_by_text("another half")).to_have_count(0)


def test_what_was_typed_is_there_after_the_access_token_was_renewed(proxy: dict[str, Any], fresh_page: Page) -> None:
    fresh_page.clock.install()
    fresh_page.goto(f"/ui/proxies/{proxy['id']}/configuration")
    fresh_page.get_by_label("Description").fill("half a sentence")
    read = f"**/api/v1/proxies/{proxy['id']}"
    with fresh_page.expect_response("**/api/v1/auth/refresh") as refreshed, fresh_page.expect_response(read) as polled:
        fresh_page.clock.fast_forward("01:00:00")
    assert refreshed.value.ok
    assert polled.value.status in (200, 304)
    expect(fresh_page.get_by_label("Description")).to_have_value("half a sentence")


def test_entries_count_as_changes_while_they_are_typed_and_closing_the_tab_warns(
    proxy: dict[str, Any], page: Page
) -> None:
    show(page, f"/proxies/{proxy['id']}/configuration")
    entries = page.get_by_label("Denied targets")
    entries.press_sequentially("ads.example\n")
    expect(entries).to_be_focused()
    expect(page.get_by_text("1 change", exact=True)).to_be_visible()
    entries.press_sequentially("b.example")
    expect(entries).to_have_value("ads.example\nb.example")
    asked: list[str] = []
    page.once("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
    page.goto("/ui/proxies")
    assert asked == ["beforeunload"]


def test_a_form_that_is_refused_leads_to_what_is_wrong(
    proxy: dict[str, Any], page: Page, product: Product, problems: Problems
) -> None:
    problems.allow(r"/api/v1/proxies.* 400 ")
    show(page, "/proxies/new")
    page.get_by_label("Name", exact=True).fill("a second one")
    port = page.get_by_label("Port", exact=True).first
    port.fill(str(proxy["port"]))
    port.press("Tab")
    expect(page.get_by_text("In use by the proxy in a form")).to_be_visible()
    page.get_by_role("button", name="Create proxy").click()
    expect(port).to_be_focused()
    expect(port).to_be_in_viewport()
    link = page.get_by_role("alert").get_by_role("link", name="Port")
    page.get_by_role("button", name="Create proxy").scroll_into_view_if_needed()
    link.click()
    expect(port).to_be_focused()
    page.get_by_role("radio", name="HTTPS").check()
    page.get_by_text("Files on the server").click()
    port.fill(str(product.free_port()))
    page.get_by_role("button", name="Create proxy").click()
    expect(page.get_by_role("textbox", name="Certificate")).to_be_focused()
    expect(page.get_by_role("alert")).to_contain_text("is required for https")


def test_an_edit_that_is_refused_leads_to_what_is_wrong(proxy: dict[str, Any], page: Page, problems: Problems) -> None:
    problems.allow(r"/api/v1/proxies.* 400 ")
    show(page, f"/proxies/{proxy['id']}/configuration")
    page.get_by_label("Denied targets").fill("not a destination")
    page.get_by_role("button", name="Review and save").click()
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_label("Denied targets")).to_be_focused()
    page.get_by_label("Description").focus()
    page.get_by_role("button", name="1 field has an error").click()
    expect(page.get_by_label("Denied targets")).to_be_focused()
    page.get_by_role("button", name="Discard").click()


def test_a_text_that_is_too_long_is_not_cut(proxy: dict[str, Any], page: Page) -> None:
    show(page, f"/proxies/{proxy['id']}/configuration")
    page.get_by_label("Description").fill("x" * 612)
    expect(page.get_by_label("Description")).to_have_value("x" * 612)
    expect(page.get_by_text("612 of at most 500 characters")).to_be_visible()
    page.get_by_role("button", name="Discard").click()


def chosen(page: Page, name: str, content: bytes) -> None:
    page.locator("input[type=file]").set_input_files({"name": name, "mimeType": "", "buffer": content})


def test_errors_of_a_file_are_a_table_that_names_objects_and_goes_with_the_next_file(
    page: Page, problems: Problems
) -> None:
    problems.allow(r"/config/import.* 400 ")
    show(page, "/settings/transfer")
    wrong = {"name": "office-1", "port": 0, "protocol": "http"}, {"name": "office-2", "port": 3128, "protocol": "ftp"}
    document = {"kind": "proxyfleet.config", "version": 1, "proxies": wrong}
    chosen(page, "wrong.json", json.dumps(document).encode())
    table = page.get_by_role("grid", name="wrong.json: 2 fields have errors")
    expect(table.get_by_role("row").filter(has_text="office-1")).to_contain_text("port")
    expect(table.get_by_role("row").filter(has_text="office-2")).to_contain_text("protocol")
    expect(page.get_by_role("status").filter(has_text="The import failed")).to_have_count(0)
    chosen(page, "broken.json", b"{")
    expect(page.get_by_text("This is not valid JSON")).to_be_visible()
    expect(table).to_have_count(0)


def test_a_text_that_would_turn_the_direction_of_writing_is_written_as_records_have_it(
    product: Product, page: Page
) -> None:
    made = product.data("POST", "/plans", {"name": "turned", "description": "\u202egnp.exe"})["plan"]
    show(page, "/accounts/plans")
    expect(page.get_by_text(r"\u202egnp.exe").first).to_be_visible()
    assert "\u202e" not in page.evaluate("document.body.textContent")
    leave(page)
    product.api("DELETE", f"/plans/{made['id']}")
