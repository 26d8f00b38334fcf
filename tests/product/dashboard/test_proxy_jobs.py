"""What people do with proxies in the page, each job from its begin to its end, with curl as the client."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.kit.browser import Problems, SignIn, leave, show
from tests.kit.certificates import make_pair
from tests.kit.http_origins import Origin, scripted, serving
from tests.kit.product import Product
from tests.kit.wait import wait_until

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")

CURL = ["curl", "--silent", "--show-error", "--max-time", "60", "--noproxy", ""]
COULD_NOT_CONNECT = 7
"""Exit statuses of curl(1)."""
ENDED_EARLY = (52, 56)
SOME_RATE = re.compile(r"[1-9][\d.]* [kM]B.s")

MakeProxy = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    """What the clients ask for."""
    with serving(server := Origin()):
        yield server


def fetch(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run curl without proxies of the environment; it prints the status of the response alone."""
    command = [*CURL, "--output", os.devnull, "--write-out", "%{http_code}", *arguments]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=90, check=False)


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


def through(proxy: dict[str, Any], url: str, user: str = "") -> subprocess.CompletedProcess[str]:
    """Fetch a URL through a proxy, as `user:password`."""
    credentials = ["--proxy-user", user] if user else []
    return fetch("--proxy", f"http://127.0.0.1:{proxy['port']}", *credentials, url)


def open_tab(page: Page, title: str) -> None:
    page.get_by_role("main").get_by_role("link", name=title, exact=True).first.click()


def press(page: Page | Locator, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def choose(page: Page, of: str, item: str) -> None:
    """An item of the menu of a row, or of the page."""
    page.get_by_role("button", name=of, exact=True).click()
    page.get_by_role("menuitem", name=item, exact=True).click()


def wait_for_polls(page: Page, path: str) -> None:
    """Two of them: what the first one sets off is there at the second."""
    for _ in range(2):
        with page.expect_response(re.compile(f"/api/v1{path}$")):
            pass


def save_changes(page: Page) -> Locator:
    """Review the changes, save, and return the dialog of the review."""
    press(page, "Review and save")
    review = page.get_by_role("dialog", name="Review changes")
    expect(review).to_be_visible()
    return review


def test_a_proxy_is_created_used_by_its_line_to_copy_and_seen_in_its_log_and_chart(
    page: Page, product: Product, origin: Origin
) -> None:
    name = "made in the page"
    show(page, "/proxies")
    page.get_by_role("link", name="Create proxy").first.click()
    page.get_by_label("Name", exact=True).fill(name)
    port = page.get_by_label("Port", exact=True)
    expect(port).not_to_have_value("")  # the next free one
    port.fill(str(product.free_port()))
    press(page, "Create proxy")
    expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()
    made = page.url.rpartition("/")[2]
    expect(page.get_by_role("main").get_by_text("running", exact=True)).to_be_visible()

    *line, _example = shlex.split(page.get_by_role("group", name="curl").inner_text())
    assert line[0] == "curl"
    assert fetch(*line[1:], origin.url("/megabyte?of=the+page")).stdout == "200"

    searches: list[str] = []
    page.on("request", lambda request: searches.append(request.url) if "/api/v1/logs?" in request.url else None)
    open_tab(page, "Log")
    row = page.get_by_role("grid", name="Logs").locator("[data-index]").filter(has_text="/megabyte?of=the+page")
    expect(row).to_have_count(1)
    wait_for_polls(page, f"/proxies/{made}")
    assert len(searches) == 1  # what is polled meanwhile does not search anew
    row.click(position={"x": 2, "y": 2})
    expect(page.get_by_role("dialog", name="Record")).to_be_visible()
    page.get_by_role("link", name="Find this request ID in the logs").click()
    expect(page.get_by_text("1 record", exact=True)).to_be_visible()

    show(page, f"/proxies/{made}/charts")  # where they were: they are in Now since
    expect(page).to_have_url(re.compile(f"/ui/proxies/{made}$"))
    press(page, "Show as table: Bandwidth")
    expect(page.get_by_role("region", name="Bandwidth").get_by_role("cell", name=SOME_RATE).first).to_be_visible()
    leave(page)
    product.data("DELETE", f"/proxies/{made}")


def test_an_https_proxy_is_created_with_a_certificate_that_signs_itself_and_gets_one_that_is_uploaded(
    page: Page, product: Product, origin: Origin, tmp_path: Path
) -> None:
    show(page, "/proxies/new")
    port = page.get_by_label("Port", exact=True)
    expect(port).to_have_value(re.compile("^[0-9]+$"))  # one is offered
    port.fill(str(product.free_port()))
    page.get_by_label("Name", exact=True).fill("with tls")
    page.get_by_role("radio", name="HTTPS").check()
    page.get_by_role("radio", name="One password").check()
    page.get_by_label("Address", exact=True).fill("127.0.0.1")
    page.get_by_label("User name", exact=True).fill("all")
    page.get_by_label("Password", exact=True).fill("a password of all")
    press(page, "Create proxy")
    expect(page.get_by_role("heading", level=1, name="with tls")).to_be_visible()
    path = f"/proxies/{page.url.rpartition('/')[2]}"

    def serves(cert_file: str) -> bool:
        proxy = product.data("GET", path)["proxy"]
        trusting = ("--proxy-cacert", cert_file, "--proxy-user", "all:a password of all")
        return fetch("--proxy", f"https://127.0.0.1:{proxy['port']}", *trusting, origin.url("/hello")).stdout == "200"

    first = product.data("GET", path)["proxy"]["tls"]["cert_file"]
    assert not serves(make_pair(tmp_path)[0])
    assert serves_after_a_while(serves, first)

    show(page, f"{path}/configuration")
    page.get_by_role("navigation", name="Contents").get_by_role("link", name="TLS").click()
    page.get_by_text("Upload", exact=True).click()
    page.get_by_label("Certificate and key").set_input_files(list(make_pair(tmp_path, hosts=["uploaded.example"])))
    press(page, "Upload")
    expect(page.get_by_text("For uploaded.example, 127.0.0.1, until")).to_be_visible()
    expect(page.get_by_role("navigation", name="Contents").get_by_role("link", name="TLS")).to_contain_text("2 changed")
    press(save_changes(page), "Save")
    expect(page.get_by_text("with tls saved")).to_be_visible()
    second = product.data("GET", path)["proxy"]["tls"]["cert_file"]
    assert second != first
    assert serves_after_a_while(serves, second)
    leave(page)
    product.data("DELETE", path)


def serves_after_a_while(serves: Callable[[str], bool], cert_file: str) -> bool:
    return bool(wait_until(lambda: serves(cert_file), f"the proxy serves {cert_file}"))


def test_a_new_proxy_is_as_was_chosen_and_names_what_is_missing(page: Page, product: Product) -> None:
    show(page, "/proxies/new")
    port = product.free_port()
    page.get_by_label("Name", exact=True).fill("for some networks")
    page.get_by_label("Port", exact=True).fill(str(port))
    page.get_by_role("radio", name="Networks").check()
    page.get_by_role("radio", name="Through an upstream").check()
    press(page, "Create proxy")
    networks = page.get_by_label("Client networks")
    expect(networks).to_be_focused()
    expect(page.get_by_role("alert")).to_contain_text("2 fields have errors")
    networks.fill("10.0.0.0/8\n127.0.0.0/8")
    page.get_by_label("Upstream", exact=True).fill("socks5://someone:secret@127.0.0.1:9")
    press(page, "Create proxy")
    expect(page.get_by_role("heading", level=1, name="for some networks")).to_be_visible()
    made = product.data("GET", f"/proxies/{page.url.rpartition('/')[2]}")["proxy"]
    assert (made["host"], made["port"], made["auth"]["enabled"]) == ("0.0.0.0", port, False)
    assert made["access"]["allow_clients"] == ["10.0.0.0/8", "127.0.0.0/8"]
    assert [(each["protocol"], each["auth"]["username"]) for each in made["upstreams"]] == [("socks5", "someone")]
    leave(page)
    product.data("DELETE", f"/proxies/{made['id']}")


def test_what_is_refused_is_counted_at_its_step_of_the_way_and_leads_to_its_records(
    make_proxy: MakeProxy, page: Page, origin: Origin
) -> None:
    made = make_proxy(access={"deny_destinations": ["denied.example"]})
    assert [through(made, url).stdout for url in ("http://denied.example/", origin.url("/hello"))] == ["403", "200"]
    show(page, f"/proxies/{made['id']}")
    steps = page.get_by_role("list", name="Route of a request").get_by_role("listitem")
    expect(steps).to_have_text([re.compile(each) for each in ("Listener", "Sign-in", "Limits", "Rules", "Exit", "Tar")])
    expect(steps.nth(3)).to_contain_text("1 refused")
    expect(steps.filter(has_text="refused")).to_have_count(1)
    steps.nth(3).get_by_role("link", name=re.compile("denied")).click()
    expect(page.get_by_role("grid", name="Logs").locator("[data-index]")).to_contain_text("denied.example")


def test_a_proxy_is_tested_restarted_and_deleted_by_its_typed_name(
    make_proxy: MakeProxy, page: Page, product: Product, origin: Origin, problems: Problems
) -> None:
    problems.allow(r"/api/v1/proxies/\w+: .* 404 ")
    made = make_proxy()
    show(page, f"/proxies/{made['id']}")
    page.get_by_label("URL to request").fill(origin.url("/ip"))
    press(page, "Test")
    result = page.get_by_role("status", name="Test result")
    expect(result).to_contain_text("It works")
    expect(result).to_contain_text("192.0.2.7")
    result.get_by_role("link", name="Open its record in the log").click()
    expect(page.get_by_role("grid", name="Logs")).to_contain_text(origin.url("/ip"))
    page.go_back()

    press(page, "Restart")
    expect(page.get_by_text(f"{made['name']} restarted")).to_be_visible()
    after = product.data("GET", f"/proxies/{made['id']}")["proxy"]["runtime"]["pid"]
    assert after != made["runtime"]["pid"]
    expect(page.get_by_role("main").get_by_text(str(after), exact=True)).to_be_visible()
    assert through(made, origin.url("/hello")).stdout == "200"
    press(page, "Stop")
    page.get_by_role("button", name="Start again").press("z")
    expect(page.get_by_text(f"{made['name']} started")).to_be_visible()

    choose(page, "More", "Delete")
    dialog = page.get_by_role("dialog", name="Delete proxy")
    dialog.get_by_label(f"Type {made['name']} to confirm").fill("another name")
    expect(dialog.get_by_role("button", name="Delete", exact=True)).to_be_disabled()
    dialog.get_by_label(f"Type {made['name']} to confirm").fill(made["name"])
    press(dialog, "Delete")
    expect(page.get_by_role("heading", level=1, name="Proxies")).to_be_visible()
    assert through(made, origin.url("/hello")).returncode == COULD_NOT_CONNECT


def test_two_people_who_edit_a_proxy_see_what_they_change_and_both_changes_stay(
    make_proxy: MakeProxy, sign_in: SignIn, product: Product, problems: Problems
) -> None:
    problems.allow(r"/api/v1/proxies/\w+: .* 412 ")
    made = make_proxy()
    path = f"/proxies/{made['id']}"
    first, second = sign_in(), sign_in("operator")
    for page in (first, second):
        show(page, f"{path}/configuration")
        expect(page.get_by_label("Name", exact=True)).to_have_value(made["name"])

    second.get_by_label("Description").fill("by the second")
    wait_for_polls(second, path)  # which leave the form as it is
    expect(second.get_by_label("Description")).to_have_value("by the second")

    first.get_by_label("Timeout", exact=True).fill("31")
    review = save_changes(first)
    expect(review.locator("dl")).to_contain_text(re.compile("settings.timeout.*30.*31"))
    press(review, "Save")
    expect(first.get_by_text(f"{made['name']} saved")).to_be_visible()

    press(save_changes(second), "Save")
    conflict = second.get_by_role("dialog", name="This has changed in the meantime")
    expect(conflict.locator("dl").first).to_contain_text(re.compile("settings.timeout.*30.*31"))
    expect(conflict.locator("dl").last).to_contain_text("by the second")
    press(conflict, "Keep mine")
    press(save_changes(second), "Save")
    expect(second.get_by_text(f"{made['name']} saved")).to_be_visible()
    stored = product.data("GET", path)["proxy"]
    assert (stored["description"], stored["settings"]["timeout"]) == ("by the second", 31)


def test_a_live_connection_is_seen_and_ended_and_its_client_sees_the_end(make_proxy: MakeProxy, page: Page) -> None:
    made = make_proxy()
    with scripted(_silent) as port:
        target = f"127.0.0.1:{port}"
        command = [*CURL, "--proxytunnel", "--proxy", f"http://127.0.0.1:{made['port']}", f"http://{target}/"]
        client = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            show(page, f"/live?proxy={made['id']}")
            row = page.get_by_role("grid", name="Connections").locator("[data-index]").filter(has_text=target)
            expect(row).to_be_visible()
            assert client.poll() is None
            row.get_by_role("button", name="Actions: 127.0.0.1").click()
            page.get_by_role("menuitem", name="End", exact=True).click()
            expect(page.get_by_text("Connection of 127.0.0.1 ended")).to_be_visible()
            expect(row).to_have_count(0)
            assert client.wait(60) in ENDED_EARLY
        finally:
            client.kill()
            client.wait()


def _silent(connection: socket.socket) -> None:
    """Reads until the other side ends, and sends nothing."""
    while connection.recv(65_536):
        continue


def test_the_rule_that_denies_a_request_is_explained_step_by_step(
    make_proxy: MakeProxy, page: Page, problems: Problems
) -> None:
    problems.allow("/explain: .* 400 ")
    made = make_proxy(access={"deny_destinations": ["other.example", "ads.example"]})
    show(page, f"/proxies/{made['id']}")
    open_tab(page, "Rules")
    ask(page, "http://ads.example/banner")
    decision = page.get_by_role("status", name="Decision")
    expect(decision).to_contain_text("Denied target denied")
    expect(decision).to_contain_text("access.deny_destinations[1] ads.example")
    expect(decision.get_by_role("listitem").filter(has_text="Exit")).to_contain_text("not reached")
    expect(page.get_by_role("listitem").filter(has_text="decides")).to_contain_text("ads.example")
    ask(page, "http://127.0.0.1/")
    expect(decision).to_contain_text("Allowed")
    ask(page, "http://")
    expect(page.get_by_label("Target", exact=True)).to_have_attribute("aria-invalid", "true")
    expect(decision).to_have_count(0)


def ask(page: Page, target: str) -> None:
    page.get_by_label("Target", exact=True).fill(target)
    press(page, "Explain")


def test_an_account_of_a_proxy_is_created_used_disabled_and_deleted(
    make_proxy: MakeProxy, page: Page, product: Product, origin: Origin
) -> None:
    made, user = make_proxy(), "alice:a password of hers"
    show(page, f"/proxies/{made['id']}/accounts")
    page.get_by_role("link", name="Account for this proxy").first.click()
    page.get_by_label("User name", exact=True).fill("alice")
    page.get_by_label("Password", exact=True).fill(user.partition(":")[2])
    press(page, "Create account")
    row = page.get_by_role("grid", name="Accounts").locator("[data-index]").filter(has_text="alice")
    expect(row).to_contain_text("active")
    assert through(made, origin.url("/hello")).stdout == "407"
    assert through(made, origin.url("/hello"), user).stdout == "200"

    choose(page, "Actions: alice", "Edit")
    page.get_by_role("switch", name="Enabled").uncheck()
    press(save_changes(page), "Save")
    expect(page.get_by_text("alice saved")).to_be_visible()
    assert through(made, origin.url("/hello"), user).stdout == "403"

    page.get_by_role("link", name="All accounts of this proxy").click()
    expect(row).to_contain_text("disabled")
    choose(page, "Actions: alice", "Reset usage")
    expect(page.get_by_text("Usage of alice reset")).to_be_visible()
    choose(page, "Actions: alice", "Delete")
    page.get_by_label("Type alice to confirm").fill("alice")
    press(page.get_by_role("dialog"), "Delete")
    expect(page.get_by_text("alice deleted")).to_be_visible()
    expect(row).to_have_count(0)
    assert product.data("GET", f"/proxies/{made['id']}/accounts")["accounts"] == []


def test_several_proxies_are_stopped_and_started_at_once(make_proxy: MakeProxy, page: Page, origin: Origin) -> None:
    both = [make_proxy(name=f"one of two {number}") for number in (1, 2)]
    show(page, "/proxies?q=one+of+two")
    rows = page.get_by_role("grid", name="Proxies").locator("[data-index]")
    page.set_viewport_size({"width": 390, "height": 844})  # rows are cards, and the list has no head
    for action, state in (("Stop", "stopped"), ("Start", "running")):
        expect(rows).to_have_count(len(both))
        page.get_by_role("checkbox", name="Select all").check()
        press(page.get_by_role("region", name="2 selected"), action)
        if action == "Stop":
            press(page.get_by_role("dialog", name="Stop 2 proxies"), action)
        expect(rows.filter(has_text=state)).to_have_count(len(both))
        if state == "stopped":
            assert {through(each, origin.url("/hello")).returncode for each in both} == {COULD_NOT_CONNECT}
    assert wait_until(lambda: {through(each, origin.url("/hello")).stdout for each in both} == {"200"}, "both serve")
