"""Measures of the page: how smoothly a long list scrolls on a slow machine, and what many open tabs ask of the API."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from benchmarks.management import OurApi
from benchmarks.ours import OURS
from benchmarks.processes import BenchError, Missing, cpu_seconds
from benchmarks.rounds import Bench, Results
from tests.kit.browser import chromium, log_in, wait_until_loaded

if TYPE_CHECKING:
    from playwright.sync_api import Page

SLOWER, STEP = 4, 120
"""By how much Chromium slows down the page, and by how many pixels each frame scrolls."""
TABS, CLIENTS = 200, 8
SCROLL = """async ([step, seconds]) => {
  let direction = 1, frames = 0, awaited = 0;
  const began = performance.now(), end = document.documentElement.scrollHeight - innerHeight - 2;
  await new Promise((done) => {
    const next = (now) => {
      frames += 1;
      awaited += document.querySelector('[role=row][aria-busy]') !== null;
      scrollBy(0, direction * step);
      direction = scrollY >= end ? -1 : scrollY <= 0 ? 1 : direction;
      if (now < began + 1000 * seconds) requestAnimationFrame(next); else done();
    };
    requestAnimationFrame(next);
  });
  return [1000 * frames / (performance.now() - began), 100 * awaited / frames];
}"""


@contextmanager
def _opened(product: OurApi, path: str) -> Iterator[Page]:
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        raise Missing(f"{error.name} is not installed") from error
    try:
        with sync_playwright() as playwright, chromium(playwright) as browser:
            context = browser.new_context(viewport={"width": 1440, "height": 900}, base_url=product.base_url)
            log_in(context, "admin")
            page = context.new_page()
            page.goto(path)
            wait_until_loaded(page)
            yield page
    except FileNotFoundError as error:
        raise Missing(str(error)) from error
    except Error as error:
        raise BenchError(f"{path} in the browser: {error.message}") from error


def scrolling(bench: Bench) -> Results:
    """The list of all proxies; the first second, in which the page is still compiled, doesn't count."""
    product = OurApi(bench.effort.stored)
    try:
        with _opened(product, "/ui/proxies") as page:
            page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
            page.evaluate(SCROLL, [STEP, 1])
            frames, awaited = page.evaluate(SCROLL, [STEP, 5 * bench.effort.seconds])
            resting, _ = page.evaluate(SCROLL, [0, bench.effort.seconds])
    finally:
        product.end()
    return {OURS: {"frames": frames, "awaited": awaited, "resting": resting}}


def tabs(bench: Bench) -> Results:
    """What one tab of the overview asks, by as many as stay open, at even distances."""
    product = OurApi(bench.effort.stored)
    try:
        seconds = bench.effort.quiet
        asked = list[str]()
        with _opened(product, "/ui/") as page:
            page.on("request", lambda request: asked.append(request.url) if "/api/v1/" in request.url else None)
            page.wait_for_timeout(1000 * seconds)
        if not asked:
            raise BenchError("the overview asks for nothing")
        paths = [url.removeprefix(product.base_url) for url in asked]
        tokens = [_sign_in(product) for _ in range(CLIENTS)]
        began, before = time.monotonic(), cpu_seconds(product.everything())
        with ThreadPoolExecutor(CLIENTS) as clients:
            for each in [clients.submit(_replay, product, token, paths, seconds, n) for n, token in enumerate(tokens)]:
                each.result()
        used = cpu_seconds(product.everything()) - before
    finally:
        product.end()
    return {OURS: {"cpu": 100 * used / (time.monotonic() - began), "asked": 60 * len(paths) / seconds}}


def _sign_in(product: OurApi) -> str:
    """The access token of a session as the page's."""
    user = {"username": "admin", "password": product.password, "session": "interactive"}
    response = product.session.post(f"{product.base_url}/api/v1/auth/login", json=user)
    return str(response.json()["data"]["access_token"])


def _replay(product: OurApi, token: str, paths: Sequence[str], seconds: float, client: int) -> None:
    """The requests of a share of the tabs, as the page makes them: each knows the responses that it has seen."""
    pause = seconds / len(paths)
    due = [
        (pause * (place + tab / TABS), tab, path)
        for tab in range(client, TABS, CLIENTS)
        for place, path in enumerate(paths)
    ]
    known = dict[tuple[int, str], str]()
    began = time.monotonic()
    with ExitStack() as stack:
        connections = {tab: stack.enter_context(_connected(product)) for tab in range(client, TABS, CLIENTS)}
        for at, tab, path in sorted(due):
            time.sleep(max(0.0, began + at - time.monotonic()))
            headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "gzip"}
            if tag := known.get((tab, path)):
                headers["If-None-Match"] = tag
            connections[tab].request("GET", path, headers=headers)
            response = connections[tab].getresponse()
            response.read()
            if response.status not in (200, 304):
                raise BenchError(f"GET {path}: {response.status}")
            known[tab, path] = response.headers.get("ETag", tag or "")


def _connected(product: OurApi) -> closing[http.client.HTTPConnection]:
    return closing(http.client.HTTPConnection("127.0.0.1", product.port, timeout=30))
