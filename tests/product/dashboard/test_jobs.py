"""What people come to the page for, from the overview to the result: in at most half the clicks that it once took, and
by keys alone. `-s` prints the table of what each job takes."""

from __future__ import annotations

import itertools
import json
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.kit.browser import Problems, leave, show
from tests.kit.curl import curl, needs_curl
from tests.kit.http_origins import Origin, scripted, serving
from tests.kit.name_servers import ScriptedNameServer, zone
from tests.kit.ports import free_ports
from tests.kit.product import PASSWORD, Product
from tests.kit.upstreams import closed_port
from tests.kit.wait import wait_until
from tests.kit.wire import Client
from tests.product.dashboard.hands import Hands, Keyboard, Mouse
from tests.product.dashboard.signing import is_at

pytestmark = needs_curl

CHIEF = "chief"
"""An administrator, whose page it is."""
NEXT = "another horse, another battery"
DENIED = "denied.example"
MANY = 50
KINDS = (Mouse, Keyboard)
BLOCKED = {Mouse: "casino.example", Keyboard: "poker.example"}
HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


class Fleet:
    """A product with what the jobs are about: proxies, accounts, and a refusal."""

    def __init__(self, product: Product, origin: Origin) -> None:
        self.product, self._origin = product, origin
        self._numbers = itertools.count(1)
        ports = free_ports(MANY + 3 * len(KINDS))  # the page offers the port behind the highest one
        many = [
            {"name": f"branch-{port}", "port": port, "protocol": "http", "sleep_after": 60} for port in [*ports][:MANY]
        ]
        product.data("POST", "/config/import", {"kind": "proxyfleet.config", "version": 1, "proxies": many})
        product.data("POST", "/users", {"username": CHIEF, "password": PASSWORD, "role": "administrator"})
        for name in ("alice", "build"):
            product.data("POST", "/accounts", {"username": name, "password": PASSWORD, "proxies": {"all": True}})
        self._people = product.proxy(name="people", auth={"enabled": True}, access={"deny_destinations": [DENIED]})
        self.exit = product.proxy(name="exit")
        assert self.status("alice", DENIED) == 403
        wait_until(lambda: product.data("GET", "/logs?user=alice")["total"], "the refusal is recorded")

    def name(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers)}"

    def status(self, user: str, host: str = "127.0.0.1") -> int:
        """What a client of `people` gets that signs in as this account."""
        proxy, url = f"http://127.0.0.1:{self._people['port']}", f"http://{host}:{self._origin.port}/hello"
        return curl("-x", proxy, "-U", f"{user}:{PASSWORD}", url)[0]

    def serves(self, name: str, scheme: str) -> None:
        """Wait until the proxy with this name does."""
        (proxy,) = self.product.data("GET", f"/proxies?q={name}")["proxies"]
        line = ("-x", f"{scheme}://127.0.0.1:{proxy['port']}", "--proxy-insecure", self._origin.url("/hello"))
        wait_until(lambda: curl(*line)[0] == 200, f"{name} serves")

    def printed(self, line: str) -> str:
        """What a line to copy prints, with a target of the tests in place of its own."""
        command = line.replace("https://example.com/", self._origin.url("/hello"))
        return subprocess.run(["bash", "-ec", command], capture_output=True, text=True, timeout=60).stdout

    @contextmanager
    def download(self, target: str) -> Iterator[subprocess.Popen[bytes]]:
        """One that goes on, beside a tunnel of which nothing is used."""
        line = ["curl", "-s", "--noproxy", "", "--limit-rate", "1M", "-o", "/dev/null"]
        with socket.create_server(("127.0.0.1", 0)) as quiet, Client(self.exit["port"]) as client:
            assert b" 200 " in client.connect(f"127.0.0.1:{quiet.getsockname()[1]}")
            with subprocess.Popen([*line, "-x", f"http://127.0.0.1:{self.exit['port']}", f"http://{target}/"]) as curl:
                try:
                    yield curl
                finally:
                    curl.kill()


def _endless(connection: socket.socket) -> None:
    """Sends until the other side ends."""
    connection.recv(65_536)
    connection.sendall(HEAD)
    while True:
        connection.sendall(b"x" * 65_536)


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with ExitStack() as open_ones:
        origin = Origin()
        open_ones.enter_context(serving(origin))
        names = open_ones.enter_context(ScriptedNameServer(zone(dict.fromkeys(BLOCKED.values(), ("127.0.0.1",)))))
        environment = {
            "PROXYFLEET_PROXY__DNS__SERVERS": json.dumps([names.address]),
            "PROXYFLEET_PROXY__DNS_ALLOW": '["127.0.0.0/8"]',
        }
        yield Fleet(open_ones.enter_context(Product(environment)), origin)


def sign_in_for_the_first_time(user: Hands, fleet: Fleet) -> None:
    file = fleet.product.data_dir / "initial-admin-password"
    file.write_text(f"{PASSWORD}\n")
    page = user.page
    page.goto("/ui/")
    expect(page.get_by_label("Password", exact=True)).to_be_focused()
    user.type(PASSWORD)
    user.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Choose your own password")).to_be_visible()
    expect(page.get_by_label("New password")).to_be_focused()
    user.type(NEXT)
    user.press("Enter")
    is_at(page, "Overview")
    assert not file.exists()
    _put_back(fleet.product)


def _put_back(product: Product) -> None:
    """The password of the tests, by which the product is asked."""
    url, signed = f"{product.base_url}/api/v1/users", {"auth": ("admin", NEXT), "timeout": 60}
    users = product.session.get(url, **signed).json()["data"]["users"]
    (admin,) = [each["id"] for each in users if each["username"] == "admin"]
    body = {"password": PASSWORD, "current_password": NEXT}
    assert product.session.patch(f"{url}/{admin}", json=body, **signed).ok
    product.forget_token()


def create_a_proxy(protocol: str, scheme: str) -> Callable[[Hands, Fleet], None]:
    def create(user: Hands, fleet: Fleet) -> None:
        name, page = fleet.name("proxy"), user.page
        user.find("new proxy", "New proxy")
        expect(page.get_by_label("Port", exact=True)).to_have_value(re.compile(r"^\d+$"))
        if protocol != "HTTP":
            user.pick(page.get_by_role("radio", name=protocol, exact=True))
        user.fill(page.get_by_label("Name", exact=True), name)
        user.press("Enter")
        expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()
        fleet.serves(name, scheme)

    return create


def add_an_account(user: Hands, fleet: Fleet) -> None:
    name, page = fleet.name("client"), user.page
    user.find("new account", "New account")
    user.fill(page.get_by_label("User name"), name)
    user.fill(page.get_by_label("Password"), PASSWORD)
    user.press("Enter")
    expect(page.get_by_role("group", name=f"Hand over {name}")).to_be_visible()
    assert fleet.status(name) == 200


def mint_a_credential_and_copy_its_line(user: Hands, fleet: Fleet) -> None:
    page = user.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    user.find("new credential for build", "New credential for build")
    user.fill(page.get_by_role("dialog").get_by_label("Name"), "one job")
    user.press("Enter")
    line = page.get_by_role("group", name="New credential").get_by_role("group", name="curl")
    expect(line).to_contain_text("pfc_")
    user.push(line.locator("..").get_by_role("button", name="Copy", exact=True))
    expect(line.locator("..").get_by_role("button", name="Copied")).to_be_visible()
    assert fleet.printed(page.evaluate("navigator.clipboard.readText()")) == "hello"


def see_why_alice_was_refused(user: Hands, fleet: Fleet) -> None:
    user.find("why alice", "Why was alice refused?")
    expect(user.rows("Logs").first).to_contain_text(DENIED)
    user.open_row("Logs")
    steps = user.page.get_by_role("dialog", name="Record").get_by_role("listitem")
    expect(steps.filter(has_text="refused here")).to_contain_text(f"access.deny_destinations[0] {DENIED}")


def end_what_uses_most_bandwidth(user: Hands, fleet: Fleet) -> None:
    with scripted(_endless) as port, fleet.download(f"127.0.0.1:{port}") as download:
        user.push(user.page.get_by_role("link", name="to and from clients"))
        expect(user.rows("Connections").first).to_contain_text(f"127.0.0.1:{port}")
        user.take_row("Connections")
        user.press("e")
        wait_until(lambda: download.poll() is not None, "the download has ended")


def block_a_domain_for_everybody(user: Hands, fleet: Fleet) -> None:
    host, page = BLOCKED[type(user)], user.page
    assert fleet.status("alice", host) == 200
    user.find(f"block {host}", f"Block {host}")
    user.push(page.get_by_role("dialog", name="Block a host").get_by_role("button", name="Block", exact=True))
    expect(page.get_by_text("Blocked by the policy")).to_be_visible()
    wait_until(lambda: fleet.status("alice", host) == 403, f"{host} is blocked")


def add_a_pool_and_see_which_of_it_is_dead(user: Hands, fleet: Fleet) -> None:
    name, page = fleet.name("pool"), user.page
    user.find("new pool", "New pool")
    user.push(page.get_by_role("button", name="Paste a list"))
    form = page.get_by_role("dialog", name="Paste a list")
    user.fill(form.get_by_label("One upstream per line"), f"127.0.0.1:{fleet.exit['port']}\n127.0.0.1:{closed_port()}")
    user.push(form.get_by_role("button", name="Add", exact=True))
    user.fill(page.get_by_label("Name", exact=True).first, name)
    user.press("Enter")
    expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()
    expect(user.rows("State").filter(has_text=re.compile("down|cooling"))).to_have_count(1)
    expect(page.get_by_text("1 of 2").first).to_be_visible()
    assert fleet.product.data("GET", f"/pools/{name}")["pool"]["status"]["usable"] == 1


def change_a_limit_of_fifty_proxies(user: Hands, fleet: Fleet) -> None:
    page, megabits = user.page, KINDS.index(type(user)) + 8
    user.go("Proxies", "g", "p")
    user.fill(page.get_by_role("searchbox"), "branch")
    expect(page.get_by_text(f"{MANY} proxies", exact=True)).to_be_visible()
    user.tick(page.get_by_role("checkbox", name="Select all"))
    user.push(page.get_by_role("region", name=f"{MANY} selected").get_by_role("button", name="Change…"))
    change = page.get_by_role("dialog", name=f"Change {MANY} proxies")
    user.fill(change.get_by_label("Bandwidth to clients"), str(megabits))
    user.press("Enter")
    expect(change.get_by_role("status")).to_have_text(f"{MANY} proxies will change.")
    user.press("Enter")
    expect(page.get_by_text(f"Done: {MANY} proxies").first).to_be_visible()

    def limits() -> list[int]:
        proxies = fleet.product.data("GET", "/config/export")["proxies"]
        return [each["limits"]["bandwidth_out"] for each in proxies if each["name"].startswith("branch-")]

    wait_until(lambda: limits() == [megabits * 125_000] * MANY, "all have the limit")


def take_back_a_change(user: Hands, fleet: Fleet) -> None:
    path, page = f"/proxies/{fleet.exit['id']}", user.page
    fleet.product.data("PATCH", path, {"description": "a mistake"})
    user.find("undo", "Undo the last change")
    plan = page.get_by_role("dialog", name="What will change")
    expect(plan).to_contain_text("a mistake")
    expect(plan.get_by_role("button", name="Undo")).to_be_focused()
    user.press("Enter")
    expect(page.get_by_text(re.compile("undone$")).first).to_be_visible()
    wait_until(lambda: fleet.product.data("GET", path)["proxy"]["description"] == "", "the change is taken back")


def import_a_file_with_errors(user: Hands, fleet: Fleet) -> None:
    page = user.page
    wrong = {"name": "office-1", "port": 0, "protocol": "http"}, {"name": "office-2", "port": 3128, "protocol": "ftp"}
    document = json.dumps({"kind": "proxyfleet.config", "version": 1, "proxies": wrong}).encode()
    user.find("import", "Import and export")
    with page.expect_file_chooser() as chooser:
        user.push(page.get_by_label("File", exact=True))
    chooser.value.set_files({"name": "fleet.json", "mimeType": "application/json", "buffer": document})
    table = page.get_by_role("grid", name="fleet.json: 2 fields have errors")
    expect(table.get_by_role("row").filter(has_text="office-1")).to_contain_text("port")
    expect(table.get_by_role("row").filter(has_text="office-2")).to_contain_text("protocol")


def save_last_month_as_a_bill(user: Hands, fleet: Fleet) -> None:
    page = user.page
    month = datetime.now(UTC).replace(day=1) - timedelta(days=1)
    user.find("usage", "Usage")
    user.pick(page.get_by_role("radio", name="Last month"))
    expect(page.get_by_text("No usage in this period")).to_be_visible()
    with page.expect_download() as saved:
        user.push(page.get_by_role("button", name="Download CSV"))
    assert saved.value.suggested_filename == f"usage-{month:%Y-%m}.csv"
    assert Path(saved.value.path()).read_text().startswith("from,")


def add_a_user_who_may_only_read(user: Hands, fleet: Fleet) -> None:
    name, page = fleet.name("reader"), user.page
    user.find("new user", "New user")
    user.fill(page.get_by_label("User name"), name)
    user.fill(page.get_by_label("Password"), PASSWORD)
    user.press("Enter")
    expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()
    url, session = f"{fleet.product.base_url}/api/v1/proxies", fleet.product.session
    assert session.get(url, auth=(name, PASSWORD), timeout=60).status_code == 200
    assert session.post(url, json={}, auth=(name, PASSWORD), timeout=60).status_code == 403


@dataclass(frozen=True)
class Job:
    """What it once took, of which `before` are clicks (None: it could not be done), and what it takes at most: clicks
    of one who has a mouse, keys of one who has none, letters in fields aside."""

    do: Callable[[Hands, Fleet], None]
    before: int | None
    clicks: int
    keys: int
    signed_in: bool = True


JOBS = {
    "first sign-in, another password": Job(sign_in_for_the_first_time, 7, 0, 2, signed_in=False),
    "create an HTTP proxy": Job(create_a_proxy("HTTP", "http"), 3, 1, 3),
    "create a SOCKS proxy": Job(create_a_proxy("SOCKS5", "socks5h"), 5, 2, 8),
    "create an HTTPS proxy": Job(create_a_proxy("HTTPS", "https"), 5, 2, 6),
    "add an account": Job(add_an_account, 3, 1, 6),
    "mint a credential, copy its line": Job(mint_a_credential_and_copy_its_line, 4, 2, 13),
    "why was alice refused": Job(see_why_alice_was_refused, 5, 2, 4),
    "end what uses most bandwidth": Job(end_what_uses_most_bandwidth, 4, 2, 6),
    "block a domain for everybody": Job(block_a_domain_for_everybody, 7, 2, 8),
    "add a pool, see which is dead": Job(add_a_pool_and_see_which_of_it_is_dead, 6, 3, 18),
    "change a limit of 50 proxies": Job(change_a_limit_of_fifty_proxies, None, 3, 24),
    "take back a change": Job(take_back_a_change, 3, 1, 3),
    "import a file with errors": Job(import_a_file_with_errors, 5, 2, 14),
    "last month as a bill": Job(save_last_month_as_a_bill, 6, 3, 11),
    "add a user who may only read": Job(add_a_user_who_may_only_read, 3, 1, 6),
}


@pytest.fixture
def open_page(
    shared_pages: Callable[[str, str], Page],
    new_context: Callable[..., BrowserContext],
    fleet: Fleet,
    problems: Problems,
) -> Iterator[Callable[[Job], Page]]:
    """Shows the overview of a user who is signed in, with the focus on it; or opens a browser that is not."""
    problems.allow("/config/import.* 400 |/api/v1/.* 401 ")
    page = shared_pages(fleet.product.base_url, CHIEF)

    def opened(job: Job) -> Page:
        if not job.signed_in:
            return new_context(base_url=fleet.product.base_url).new_page()
        show(page, "/")
        return page

    yield opened
    leave(page)


@pytest.mark.parametrize("name", JOBS)
def test_a_job_takes_half_the_clicks_of_before_and_none_by_keys(
    name: str, open_page: Callable[[Job], Page], fleet: Fleet
) -> None:
    job = JOBS[name]
    counts = []
    for kind in KINDS:
        user = kind(open_page(job))
        job.do(user, fleet)
        counts.append(user.count)
    by_mouse, by_keys = counts
    clicks = f"{by_mouse.clicks} · {by_mouse.fields} · {by_mouse.seconds:.0f}"
    print(f"\n| {name} | {job.before or '-'} | {clicks} | {by_keys.keys} · {by_keys.seconds:.0f} |")
    assert job.before is None or 2 * job.clicks <= job.before
    assert by_mouse.clicks <= job.clicks
    assert by_keys.clicks == 0
    assert by_keys.keys <= job.keys
