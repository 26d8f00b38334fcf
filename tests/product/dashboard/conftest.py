"""One Chromium for all tests of the dashboard in a worker, and one page for each user of them.

A page is signed in once; tests take it one after the other, and find it blank, or loaded and at no screen: so Chromium
reads the dashboard once, and seldom compiles it anew. It ends with the last of these tests: the synchronous interface
of playwright keeps an event loop running in the thread, beside which `asyncio.run` of other tests fails.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit import browser as kit
from tests.kit.folders import ROOT
from tests.kit.product import PASSWORD, Product

if find_spec("playwright") is None:
    collect_ignore_glob = ["test_*.py"]
    warnings.warn("tests of the dashboard are left out: pip install --editable .[dev,dashboard]", stacklevel=1)
else:
    from playwright.sync_api import expect

    expect.set_options(timeout=kit.PATIENCE)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Playwright

MakeProxy = Callable[..., dict[str, Any]]
MakeContext = Callable[..., "BrowserContext"]
Axe = Callable[..., None]
AXE = ROOT / "api" / "ui" / "source" / "node_modules" / "axe-core" / "axe.min.js"
RUN_AXE = """async (rules) => {
  if (!('axe' in window)) return null;
  const options = { resultTypes: ['violations'], preload: false, ...(rules.length ? { runOnly: rules } : {}) };
  return (await axe.run(document, options)).violations;
}"""
OPTIONS: dict[str, Any] = {
    "locale": "en-US",
    "reduced_motion": "reduce",
    "viewport": kit.VIEWPORT,
}
"""Of every context, unless a test has others."""


@pytest.fixture(scope="package")
def playwright() -> Iterator[Playwright]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="package")
def browser(playwright: Playwright) -> Iterator[Browser]:
    """Debian's Chromium; tests that need it are skipped where it is missing."""
    if kit.program() is None:
        pytest.skip(f"needs {' or '.join(kit.PROGRAMS)}")
    with kit.chromium(playwright, "--process-per-site") as started:  # a new page then needs no process of its own
        yield started


@pytest.fixture(scope="package")
def dashboard(product: Product) -> str:
    """The address of the page."""
    return f"{product.base_url}/ui/"


@pytest.fixture(scope="package")
def watched() -> kit.Problems:
    """Errors of all pages."""
    return kit.Problems()


@pytest.fixture
def problems(watched: kit.Problems) -> Iterator[kit.Problems]:
    """Errors of the pages of this test, which may have none; `problems.allow` names those that belong to it."""
    watched.begin()
    yield watched
    assert watched.unexpected == []


@pytest.fixture(scope="package")
def make_context(browser: Browser, product: Product, watched: kit.Problems) -> MakeContext:
    """Makes contexts, which last as long as the browser. In those that are `idle` at times, pages load all screens."""

    def make(*, idle: bool = False, **options: Any) -> BrowserContext:
        context = browser.new_context(**{**OPTIONS, "base_url": product.base_url, **options})
        context.set_default_timeout(kit.PATIENCE)
        if not idle:
            context.add_init_script(kit.NEVER_IDLE)
        watched.watch(context)
        return context

    return make


@pytest.fixture
def new_context(make_context: MakeContext, problems: kit.Problems) -> Iterator[MakeContext]:
    """Makes contexts that last as long as the test."""
    made = []

    def make(**options: Any) -> BrowserContext:
        made.append(make_context(**options))
        return made[-1]

    yield make
    for context in made:
        context.close()


@pytest.fixture(scope="package")
def shared_pages(make_context: MakeContext) -> Callable[[str, str], Page]:
    """The page of a user of a product, signed in, or one without a session for an empty name, which is blank."""
    pages: dict[tuple[str, str], Page] = {}

    def page(base_url: str, username: str) -> Page:
        key = base_url, username
        if key not in pages:
            context = make_context(base_url=base_url)
            if username:
                kit.log_in(context, username)
            pages[key] = context.new_page()
        elif pages[key].is_closed():
            pages[key] = pages[key].context.new_page()
        return pages[key]

    return page


@pytest.fixture(scope="package")
def people(product: Product) -> Callable[[str], str]:
    """The name of a user with a role, who has `PASSWORD`."""
    names = {"administrator": "admin"}

    def name(role: str) -> str:
        if role not in names:
            body = {"username": f"one-{role}", "password": PASSWORD, "role": role}
            names[role] = product.data("POST", "/users", body)["user"]["username"]
        return names[role]

    return name


@pytest.fixture
def make_proxy(product: Product) -> Iterator[MakeProxy]:
    """Makes proxies that are gone after the test. It stands before `page`, which is closed before they are deleted."""
    made = []

    def make(**fields: Any) -> dict[str, Any]:
        made.append(product.proxy(**fields))
        return made[-1]

    yield make
    for each in made:
        product.api("DELETE", f"/proxies/{each['id']}")


@pytest.fixture
def sign_in(
    shared_pages: Callable[[str, str], Page],
    new_context: MakeContext,
    people: Callable[[str], str],
    product: Product,
    problems: kit.Problems,
) -> Iterator[kit.SignIn]:
    """Opens pages that show nothing yet and have the cookie of a session already. A test that ends the session takes
    one of its own."""
    used = []

    def open_page(role: str = "administrator", base_url: str = product.base_url, **options: Any) -> Page:
        if options:
            context = new_context(base_url=base_url, **options)
            kit.log_in(context, people(role))
            return context.new_page()
        used.append(shared_pages(base_url, people(role)))
        return used[-1]

    yield open_page
    for page in used:
        kit.leave(page)


@pytest.fixture
def page(sign_in: kit.SignIn) -> Page:
    """Signed in as the administrator; it shows nothing yet: `show(page, "/proxies")`."""
    return sign_in()


@pytest.fixture
def fresh_page(new_context: MakeContext) -> Page:
    """As `page`, in a browser that has read nothing yet, whose clock a test may set."""
    context = new_context()
    kit.log_in(context, "admin")
    return context.new_page()


@pytest.fixture
def stranger(shared_pages: Callable[[str, str], Page], product: Product, problems: kit.Problems) -> Iterator[Page]:
    """Not signed in, and blank; nothing of it is stored afterwards."""
    page = shared_pages(product.base_url, "")
    yield page
    kit.leave(page, blank=True)
    session = page.context.new_cdp_session(page)
    kinds = "cookies,local_storage"
    session.send("Storage.clearDataForOrigin", {"origin": product.base_url, "storageTypes": kinds})
    session.detach()


@pytest.fixture
def own_page(stranger: Page) -> Page:
    """As `page`, in a session of its own, which a test may end."""
    kit.log_in(stranger.context, "admin")
    return stranger


@pytest.fixture(scope="package")
def axe_source() -> str:
    """The program of axe-core."""
    if not AXE.exists():
        pytest.skip(f"needs {AXE.relative_to(ROOT)}: npm ci in api/ui/source")
    return AXE.read_text()


@pytest.fixture
def axe(axe_source: str) -> Axe:
    """Checks what a page shows now, by these rules or all; fails with each violation and the elements that have it."""

    def check(page: Page, *rules: str) -> None:
        kit.settle(page)
        found = page.evaluate(RUN_AXE, list(rules))
        if found is None:
            # by the debugger, for which the content security policy of the page does not hold
            session = page.context.new_cdp_session(page)
            session.send("Runtime.evaluate", {"expression": axe_source})
            session.detach()
            found = page.evaluate(RUN_AXE, list(rules))
        if found:
            pytest.fail("\n".join(map(_line, found)))

    return check


def _line(violation: dict[str, Any]) -> str:
    """What is wrong, and where; what axe says about the first element."""
    nodes = violation["nodes"]
    where = "; ".join(" ".join(map(str, node["target"])) for node in nodes[:5])
    return f"{violation['id']}: {violation['help']} ({len(nodes)}): {where}: {nodes[0]['failureSummary']}"
