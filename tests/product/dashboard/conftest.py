"""One product and one Chromium for all tests of the dashboard in a worker; a new browser context for each test.

They end with the last of these tests: the synchronous interface of playwright keeps an event loop running in the
thread, beside which `asyncio.run` of other tests fails.
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

if find_spec("pytest_playwright") is None:
    collect_ignore_glob = ["test_*.py"]
    warnings.warn("tests of the dashboard are left out: pip install --editable .[dev,dashboard]", stacklevel=1)
else:
    from playwright.sync_api import expect

    expect.set_options(timeout=kit.PATIENCE)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Playwright

AXE = ROOT / "api" / "ui" / "source" / "node_modules" / "axe-core" / "axe.min.js"
STANDS_STILL = """() => Promise.allSettled(document.getAnimations()
  .filter((each) => each.effect.getComputedTiming().endTime !== Infinity).map((each) => each.finished))"""
OPTIONS: dict[str, Any] = {
    "locale": "en-US",
    "reduced_motion": "reduce",
    "viewport": {"width": 1280, "height": 800},
}
"""Of every context, unless a test has others."""
ENVIRONMENT = {"PROXYFLEET_ACCOUNTS__SELF_SERVICE": "true", "PROXYFLEET_WEBHOOKS__ALLOW_PRIVATE": "true"}
"""Of the shared product: targets of webhooks are on loopback."""


@pytest.fixture(scope="package")
def product() -> Iterator[Product]:
    """Shared by all tests of a worker that break nothing of it. Holders of accounts may sign in."""
    with Product(ENVIRONMENT) as running:
        yield running


@pytest.fixture
def own_product() -> Iterator[Product]:
    """One that the test may break."""
    with Product() as running:
        yield running


@pytest.fixture(scope="package")
def playwright() -> Iterator[Playwright]:
    """In place of the plugin's, which lasts as long as the worker."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="package")
def browser(playwright: Playwright) -> Iterator[Browser]:
    """Debian's Chromium; tests that need it are skipped where it is missing."""
    if kit.program() is None:
        pytest.skip(f"needs {kit.PROGRAMS[0]}")
    with kit.chromium(playwright) as started:
        yield started


@pytest.fixture(scope="package")
def browser_context_args() -> dict[str, Any]:
    """None: `new_context` has them, where a test can replace each."""
    return {}


@pytest.fixture(scope="package")
def dashboard(product: Product) -> str:
    """The address of the page."""
    return f"{product.base_url}/ui/"


@pytest.fixture
def problems() -> kit.Problems:
    """Errors of the pages of this test; `problems.allow` names those that belong to it."""
    return kit.Problems()


@pytest.fixture
def new_context(
    new_context: Callable[..., BrowserContext], product: Product, problems: kit.Problems
) -> Iterator[Callable[..., BrowserContext]]:
    """Makes contexts whose pages may have no errors."""
    made = []

    def make(**options: Any) -> BrowserContext:
        context = new_context(**{**OPTIONS, "base_url": product.base_url, **options})
        context.set_default_timeout(kit.PATIENCE)
        problems.watch(context)
        made.append(context)
        return context

    yield make
    for context in made:
        context.close()
    assert problems.unexpected == []


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
def sign_in(new_context: Callable[..., BrowserContext], people: Callable[[str], str]) -> kit.SignIn:
    """Opens a blank page in a new context that has the cookie of a session already."""

    def open_page(role: str = "administrator", **options: Any) -> Page:
        context = new_context(**options)
        body = {"username": people(role), "password": PASSWORD, "session": "cookie"}
        response = context.request.post("/api/v1/auth/login", data=body)
        assert response.ok, response.text()
        return context.new_page()

    return open_page


@pytest.fixture
def page(sign_in: kit.SignIn) -> Page:
    """Signed in as the administrator, and blank yet: `page.goto("/ui/proxies")`."""
    return sign_in()


@pytest.fixture
def stranger(new_context: Callable[..., BrowserContext]) -> Page:
    """Not signed in, and blank."""
    return new_context().new_page()


@pytest.fixture(scope="package")
def axe_source() -> str:
    """The program of axe-core."""
    if not AXE.exists():
        pytest.skip(f"needs {AXE.relative_to(ROOT)}: npm ci in api/ui/source")
    return AXE.read_text()


@pytest.fixture
def axe(axe_source: str) -> Callable[[Page], None]:
    """Checks what a page shows now; fails with each violation and the elements that have it."""

    def check(page: Page) -> None:
        page.evaluate(STANDS_STILL)  # else colours are between two themes
        # by the debugger, for which the content security policy of the page does not hold
        session = page.context.new_cdp_session(page)
        session.send("Runtime.evaluate", {"expression": axe_source})
        session.detach()
        found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
        if found["violations"]:
            pytest.fail("\n".join(map(_line, found["violations"])))

    return check


def _line(violation: dict[str, Any]) -> str:
    """What is wrong, and where; what axe says about the first element."""
    nodes = violation["nodes"]
    where = "; ".join(" ".join(map(str, node["target"])) for node in nodes[:5])
    return f"{violation['id']}: {violation['help']} ({len(nodes)}): {where}: {nodes[0]['failureSummary']}"
