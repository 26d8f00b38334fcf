"""A fleet of two real products in the page: a node is added, changed and drained, named where things are its own or are
missing, and removed; what the page says while the database is away."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.kit.browser import Problems, SignIn, settle, show, wait_until_loaded
from tests.kit.cluster import Nodes, command, states
from tests.kit.curl import curl, needs_curl
from tests.kit.http_origins import Origin, serving
from tests.kit.picture_rules import broken
from tests.kit.postgresql import needs_postgresql
from tests.kit.wait import wait_until

pytestmark = [needs_postgresql, needs_curl]
REFUSED = r"/api/v1/nodes/.* (400|503) "


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    """What a client asks for."""
    with serving(server := Origin()):
        yield server.url("/hello")


def press(where: Page | Locator, name: str) -> None:
    where.get_by_role("button", name=name, exact=True).click()


def row(page: Page, name: str, table: str = "Nodes") -> Locator:
    return page.get_by_role("grid", name=table).get_by_role("row").filter(has_text=name)


def choose(page: Page, name: str, action: str) -> None:
    """An entry of the menu of a node."""
    row(page, name).get_by_role("button").click()
    page.get_by_role("menuitem", name=action, exact=True).click()


def is_accessible(page: Page, axe: Callable[..., None]) -> None:
    """In both themes, and where it fits at every width."""
    for theme in ("light", "dark"):
        page.evaluate("(theme) => { document.documentElement.dataset.theme = theme }", theme)
        settle(page)
        axe(page)
    page.evaluate("delete document.documentElement.dataset.theme")
    assert broken(page) == {}


class TwoNodes:
    """The first node of a fleet, and a product that joins it as `fra2` when a test needs it."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes, self.joined = nodes, False
        self.first, self.second = nodes.product(), nodes.product()
        nodes.init(self.first)

    def join(self, line: str = "") -> None:
        if self.joined:
            return
        line = line or self.first.data("POST", "/nodes/tokens", {"name": "fra2", "tags": ["eu"]})["line"]
        status, said = command(self.second, "join", line, "--address", self.nodes.addresses[self.second])
        assert status == 0, said
        self.joined = True
        wait_until(lambda: self.state() == "up", "it is up")
        self.second.forget_token()

    def state(self) -> str | None:
        """Of the second node."""
        return states(self.first).get("fra2")


@pytest.fixture(scope="module")
def fleet() -> Iterator[TwoNodes]:
    with Nodes() as nodes:
        yield TwoNodes(nodes)


@pytest.fixture
def page(fleet: TwoNodes, sign_in: SignIn, problems: Problems) -> Page:
    """The list of nodes, at the first one."""
    problems.allow(REFUSED)
    opened = sign_in(base_url=fleet.first.base_url)
    show(opened, "/nodes")
    return opened


def test_one_machine_says_how_it_becomes_a_fleet(sign_in: SignIn) -> None:
    page = sign_in()
    show(page, "/settings")
    expect(page.get_by_role("navigation").get_by_role("link", name="Nodes")).to_have_count(0)
    page.get_by_role("link", name="Several machines").click()
    expect(page.get_by_text("This is one machine")).to_be_visible()
    expect(page.get_by_role("main").locator("code")).to_contain_text("proxyfleet cluster init")


def test_a_machine_joins_by_the_line_of_a_token_that_was_made_in_the_page(
    fleet: TwoNodes, page: Page, axe: Callable[..., None]
) -> None:
    expect(page.get_by_role("navigation").get_by_role("link", name="Nodes")).to_be_visible()
    press(page, "Add node")
    dialog = page.get_by_role("dialog", name="Add node")
    dialog.get_by_label("Name").fill("fra2")
    dialog.get_by_label("Tags").fill("eu,")
    is_accessible(page, axe)
    press(dialog, "Create token")
    line = page.get_by_role("dialog", name="Join token").locator("code").inner_text()
    words = line.split(" ")
    assert words[:3] == ["proxyfleet", "cluster", "join"], line
    page.keyboard.press("Escape")
    expect(row(page, "fra2", "Tokens")).to_contain_text("not used")
    assert line not in page.content()
    fleet.join(words[3])
    expect(row(page, "fra2")).to_contain_text("up")
    expect(row(page, "fra2", "Tokens")).to_contain_text("used by fra2")
    is_accessible(page, axe)
    press(page, "Add node")
    dialog.get_by_label("Name").fill("spare")
    press(dialog, "Create token")
    expect(page.get_by_role("dialog", name="Join token")).to_be_visible()
    page.keyboard.press("Escape")
    row(page, "spare", "Tokens").get_by_role("button").click()
    page.get_by_role("menuitem", name="Revoke").click()
    press(page.get_by_role("dialog", name="Revoke"), "Revoke")
    expect(row(page, "spare", "Tokens")).to_have_count(0)


def test_a_node_is_changed_drained_and_looked_at_by_keyboard(fleet: TwoNodes, page: Page) -> None:
    fleet.join()
    choose(page, "fra2", "Edit")
    dialog = page.get_by_role("dialog", name="fra2")
    addresses = dialog.get_by_label("Addresses")
    before = addresses.input_value()
    assert before.startswith("internal=127.0.0.1:"), before
    addresses.fill("public=not a host")
    press(dialog, "Save")
    expect(dialog.get_by_text("must be an IP address or a host name").first).to_be_visible()
    addresses.fill(f"{before}\npublic=127.0.0.2")
    press(dialog, "Save")
    expect(page.get_by_text("fra2 saved")).to_be_visible()
    choose(page, "fra2", "Drain")
    expect(row(page, "fra2")).to_contain_text("drained")
    choose(page, "fra2", "Resume")
    expect(row(page, "fra2")).to_contain_text("up")
    row(page, "fra2").focus()
    page.keyboard.press("Enter")
    details = page.get_by_role("dialog", name="fra2")
    expect(details).to_contain_text("public=127.0.0.2")
    expect(details).to_contain_text("eu")
    page.keyboard.press("Escape")


def test_what_is_of_a_node_names_it(fleet: TwoNodes, page: Page, origin: str) -> None:
    fleet.join()
    port = fleet.first.free_port()
    show(page, "/proxies/new")
    page.get_by_label("Name", exact=True).fill("shop")
    page.get_by_label("Port", exact=True).fill(str(port))
    page.get_by_label("Runs on").select_option("some")
    page.get_by_label("Nodes with one of these tags").fill("eu,")
    page.get_by_role("main").get_by_role("button", name="Create proxy").click()
    states = page.get_by_role("list", name="Nodes")
    expect(states.get_by_role("listitem")).to_have_count(1)
    expect(states).to_contain_text("fra2")
    expect(states).to_contain_text("running")

    assert curl("-x", f"http://127.0.0.1:{port}", origin)[0] == 200
    show(page, "/logs")
    expect(row(page, origin, "Logs")).to_contain_text("fra2")
    page.get_by_label("Node").select_option("first")
    expect(page.get_by_text("No record matches")).to_be_visible()
    page.get_by_label("Node").select_option("fra2")
    expect(row(page, origin, "Logs")).to_be_visible()
    show(page, "/live")
    wait_until_loaded(page)
    expect(page.get_by_role("search").get_by_label("Node")).to_have_value("")
    show(page, "/changes")
    expect(row(page, "shop", "Changes").first).to_contain_text("first")


def test_a_proxy_that_a_node_cannot_run_is_made_with_a_warning(fleet: TwoNodes, page: Page) -> None:
    fleet.join()
    show(page, "/proxies/new")
    page.get_by_label("Name", exact=True).fill("taken")
    page.get_by_label("Runs on").select_option("some")
    page.get_by_label("Nodes by name").fill("fra2,")
    with socket.create_server(("127.0.0.1", 0)) as other:
        page.get_by_label("Port", exact=True).fill(str(other.getsockname()[1]))
        page.get_by_role("main").get_by_role("button", name="Create proxy").click()
        expect(page.get_by_text("the node 'fra2' can't run it").first).to_be_visible()


def test_it_names_who_is_missing_and_what_does_not_work_while_the_database_is_away_and_removes_who_is_gone(
    fleet: TwoNodes, page: Page, axe: Callable[..., None]
) -> None:
    fleet.join()
    fleet.second.kill_all()
    show(page, "/logs")
    expect(page.get_by_role("status").filter(has_text="Not included: fra2")).to_be_visible()
    show(page, "/nodes")
    expect(page.get_by_role("status").filter(has_text="Not included")).to_have_count(0)
    banner = page.get_by_role("status").filter(has_text="cut off from the database of the fleet since")
    with fleet.nodes.outage(signal.SIGKILL):
        expect(banner).to_be_visible()
        is_accessible(page, axe)
        choose(page, "fra2", "Drain")
        expect(page.get_by_text("fra2 could not be changed")).to_be_visible()
    expect(banner).to_have_count(0)

    expect(row(page, "fra2")).to_contain_text("no heartbeat")
    choose(page, "fra2", "Remove node")
    dialog = page.get_by_role("dialog", name="Remove node")
    expect(dialog).to_contain_text("its access records and metrics")
    expect(dialog).to_contain_text("usage it has not reported")
    is_accessible(page, axe)
    expect(dialog.get_by_role("button", name="Remove node")).to_be_disabled()
    dialog.get_by_label("Type fra2 to confirm").fill("fra2")
    press(dialog, "Remove node")
    expect(page.get_by_text("fra2 removed")).to_be_visible()
    expect(row(page, "fra2")).to_have_count(0)
