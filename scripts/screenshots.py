"""Pictures of the dashboard from a product with made-up data: each screen in light, dark and on a phone.

A day of series is written while the product is stopped; then clients send over loopback to a stand-in for the internet,
while Debian's Chromium looks.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import math
import random
import shutil
import threading
import time
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from actors.histogram import bucket_of
from actors.metrics.increments import PLACE, RESIDENT_SAMPLES, Increments
from actors.metrics.series import TOTAL, Series
from actors.sqlite import open_database
from config.files.paths import open_data_dir
from tests.kit.browser import PATIENCE, chromium, log_in, open_row
from tests.kit.dashboard_areas import Screen, screens
from tests.kit.folders import ROOT
from tests.kit.product import PASSWORD, Product

WARM_UP = 100.0
"""Seconds of traffic before the first picture: the figures of a minute do not have the start any more."""
SETTLED = 2_500
"""Milliseconds that a screen has to draw its charts and figures."""
DOCUMENTS = ROOT / "docs" / "images"
FORMS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 800}, "color_scheme": "light", "has_touch": True},
}
PROXIES: dict[str, tuple[float, dict[str, Any]]] = {
    "office": (6.0, {"tags": ["berlin", "people"], "description": "Everybody in the office"}),
    "build-machines": (9.0, {"tags": ["ci"], "description": "Runners of the build farm"}),
    "crawler-eu": (14.0, {"tags": ["crawler", "eu"]}),
    "crawler-us": (8.0, {"tags": ["crawler", "us"]}),
    "partners": (3.0, {"tags": ["partner"], "description": "Two partners with quotas"}),
    "old-terminals": (0.0, {"tags": ["lab", "to-retire"]}),
}
"""Their requests each second."""
ACCOUNTS = ("build-linux", "price-watch", "catalogue-sync", "alice", "bob", "partner-north", "translation")
PLANS: tuple[dict[str, Any], ...] = (
    {"name": "machines", "limits": {"connections": 200}, "quota": {"bytes": 500_000_000_000, "period": "month"}},
    {"name": "people", "description": "fifty gigabytes a month", "quota": {"bytes": 50_000_000_000, "period": "month"}},
)
DENIED = "tracker.ads.example"
HOSTS = {
    "api.shop.example": 30,
    "static.cdn.example": 26,
    "pypi.packages.example": 16,
    "git.example.org": 11,
    DENIED: 4,
}
"""By how often they are asked for."""
PATHS = ("v1/items?page=7", "v1/orders", "img/4711.webp", "assets/app.js", "search?q=proxy", "feed.xml", "status")
STATUSES = ("200 OK",) * 180 + ("304 Not Modified",) * 10 + ("404 Not Found",) * 8 + ("503 Service Unavailable",) * 2


def main() -> None:
    """Make the pictures and print their names."""
    parser = argparse.ArgumentParser(prog="scripts/screenshots", description="Pictures of the dashboard.")
    parser.add_argument("screens", nargs="*", metavar="SCREEN", help="only these, by name; all by default")
    parser.add_argument("--out", type=Path, default=ROOT / ".cache" / "screenshots", metavar="FOLDER")
    parser.add_argument("--docs", action="store_true", help="also renew those of them that the documents have")
    given = parser.parse_args()
    known = {each.name: each for each in screens()}
    if unknown := set(given.screens) - known.keys():
        parser.error(f"no screen {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    wanted = [known[name] for name in given.screens or known]
    given.out.mkdir(parents=True, exist_ok=True)
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    internet = asyncio.run_coroutine_threadsafe(asyncio.start_server(_internet, "127.0.0.1", 0), loop).result()
    with Product({"PROXYFLEET_WEBHOOKS__ALLOW_PRIVATE": "true"}) as product:
        made = seed(product, internet.sockets[0].getsockname()[1])
        product.stop()
        write_series(product.data_dir, made)
        product.start()
        for name, proxy in made.items():
            asyncio.run_coroutine_threadsafe(_clients(proxy["port"], PROXIES[name][0]), loop)
        time.sleep(WARM_UP)
        with sync_playwright() as playwright, chromium(playwright) as browser:
            taken = [file for form in FORMS for file in take(browser, product, wanted, form, given.out)]
    for file in taken:
        if given.docs and (DOCUMENTS / file.name).exists():
            shutil.copy(file, DOCUMENTS)


def seed(product: Product, internet: int) -> dict[str, dict[str, Any]]:
    """Make the objects; the proxies that run, by name. All go through the port `internet`."""
    made = {}
    through = [{"protocol": "http", "host": "127.0.0.1", "port": internet, "name": "gateway"}]
    for name, (rate, fields) in PROXIES.items():
        settings = {"auth": {"enabled": True}, "accept_proxy_protocol": True, "upstreams": through}
        proxy = product.proxy(name=name, **fields, **settings, access={"deny_destinations": [DENIED]})
        if rate:
            made[name] = proxy
        else:
            product.data("POST", f"/proxies/{proxy['id']}/stop")
    ads = {"name": "no ads", "match": {"destinations": ["list:trackers"]}, "action": {"use": "deny"}}
    for collection, body in (
        *(("plans", plan) for plan in PLANS),
        ("pools", {"name": "gateways", "upstreams": through}),
        ("lists", {"name": "trackers", "kind": "domains", "entries": [DENIED, "ads.example"]}),
        ("policies", {"name": "browsing", "rules": [ads]}),
    ):
        product.data("POST", f"/{collection}", body)
    for number, name in enumerate(ACCOUNTS):
        body = {"username": name, "password": PASSWORD, "proxies": {"all": True}, "tags": [name.partition("-")[0]]}
        account = product.data("POST", "/accounts", {**body, "plan": PLANS[number % 2]["name"]})["account"]
        product.data("POST", f"/accounts/{account['id']}/credentials", {"name": f"job {8812 + number}", "ttl": 3600})
    for name, role in {"grace": "administrator", "linus": "operator", "ada": "auditor"}.items():
        product.data("POST", "/users", {"username": name, "password": PASSWORD, "role": role})
    product.data("POST", "/api-keys", {"name": "grafana", "permissions": ["metrics.read"]})
    hook = {"name": "chat", "url": f"http://127.0.0.1:{internet}/chat", "events": ["proxy.*", "account.*"]}
    product.data("POST", "/webhooks", hook)
    return made


def write_series(data: Path, proxies: dict[str, dict[str, Any]]) -> None:
    """Of a day up to now; half a day ago it was night."""
    now = time.time()
    database = open_database(open_data_dir(data).metrics / "totals.sqlite", "")
    series = Series(database)
    database.execute("BEGIN")
    for at in range(int(now // 60 - 1440) * 60, int(now), 60):
        busy = (0.7 + 0.3 * math.cos((now - at) / 86_400 * 2 * math.pi)) * random.uniform(0.94, 1.06)
        total = Increments()
        for name, proxy in proxies.items():
            counted = _minute(PROXIES[name][0] * 60 * busy)
            series.add(proxy["id"], counted, at)
            total.add(counted)
        series.add(TOTAL, total, at)
        series.add_machine(60, random.uniform(20, 35), random.uniform(40, 44), at)
    series.store()
    database.execute("COMMIT")
    series.stored(now)
    database.close()


def _minute(rate: float) -> Increments:
    requests, slow = int(rate * random.uniform(0.8, 1.2)), random.lognormvariate(0, 0.15)
    made = Increments(latency={})
    for _ in range(24):
        bucket = bucket_of(random.lognormvariate(-2.9, 0.75) * slow)
        made.latency[bucket] = made.latency.get(bucket, 0) + max(1, requests // 24)
    for field, value in {
        "requests": requests,
        "errors": int(requests * random.uniform(0.002, 0.012)),
        "denied": int(requests * random.uniform(0.01, 0.03)),
        "bytes_in": requests * random.randrange(500, 900),
        "bytes_out": requests * random.randrange(28_000, 40_000),
        "response_seconds": requests * 0.07 * slow,
        "answered": requests,
        "active": requests // 60,
        "resident": 30_000_000,
        RESIDENT_SAMPLES: 1,
    }.items():
        made.values[PLACE[field]] = value
    return made


# --- the traffic of now ---


async def _internet(reader: StreamReader, writer: StreamWriter) -> None:
    """Responds for every host, so that none is really asked; bytes in a tunnel are answered by more of them."""
    with suppress(asyncio.IncompleteReadError, OSError):  # the proxy has closed it
        while True:
            status = random.choice(STATUSES)
            if (await reader.readuntil(b"\r\n\r\n")).startswith(b"CONNECT"):
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                while await reader.read(65_536):
                    writer.write(b"x" * random.randrange(2_000, 60_000))
                break
            await asyncio.sleep(random.lognormvariate(-3.4, 0.6))
            body = b"" if status.startswith("304") else b"x" * min(400_000, int(random.lognormvariate(9.2, 1.3)))
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    writer.close()


async def _clients(port: int, rate: float) -> None:
    """Requests, and a tunnel for each that there is in a second."""
    async with asyncio.TaskGroup() as tasks:
        for _ in range(int(rate)):
            tasks.create_task(_tunnels(port))
        while True:
            await asyncio.sleep(random.expovariate(rate))
            tasks.create_task(_client(port, tunnel=False))


async def _tunnels(port: int) -> None:
    while True:
        await _client(port, tunnel=True)
        await asyncio.sleep(random.uniform(0.5, 3))


async def _client(port: int, tunnel: bool) -> None:
    """One, from a plausible address, as a balancer would pass it on."""
    host = random.choices(list(HOSTS), list(HOSTS.values()))[0]
    what = f"CONNECT {host}:443" if tunnel else f"GET http://{host}/{random.choice(PATHS)}"
    address = f"10.{random.choice((20, 20, 31, 47))}.{random.randrange(4)}.{random.randrange(2, 40)}"
    pair = base64.b64encode(f"{random.choice(ACCOUNTS)}:{PASSWORD}".encode()).decode()
    first = f"PROXY TCP4 {address} 127.0.0.1 {random.randrange(20_000, 60_000)} {port}\r\n{what} HTTP/1.1\r\n"
    with suppress(OSError):  # refused, as some are meant to be
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        closes = "" if tunnel else "Connection: close\r\n"
        writer.write(f"{first}Host: {host}\r\nProxy-Authorization: Basic {pair}\r\n{closes}\r\n".encode())
        while await reader.read(65_536) and random.random() > 0.02 * tunnel:
            if tunnel:
                await asyncio.sleep(random.uniform(0.2, 2))
                writer.write(b"x" * random.randrange(80, 2_000))
        writer.close()


# --- the pictures ---


def take(browser: Browser, product: Product, wanted: list[Screen], form: str, folder: Path) -> list[Path]:
    """A picture of each screen in this form; their files."""
    options = {"locale": "en-US", "reduced_motion": "reduce", **FORMS[form]}
    context = browser.new_context(base_url=product.base_url, **options)
    context.set_default_timeout(PATIENCE)
    log_in(context, "admin")
    page = context.new_page()
    files = [folder / f"{screen.name}-{form}.png" for screen in wanted]
    for screen, file in zip(wanted, files, strict=True):
        _open(page, screen)
        page.wait_for_timeout(SETTLED)
        page.screenshot(path=file, animations="disabled", caret="hide")
        print(f"{file}  {file.stat().st_size / 1000:.0f} kB", flush=True)
    context.close()
    return files


def _open(page: Page, screen: Screen) -> None:
    """Go there; to a screen about one object by the first row of the list."""
    page.goto(f"/ui{screen.path.partition('/:')[0] if screen.needs_object else screen.plain_path}")
    if screen.needs_object:
        open_row(page.get_by_role("main").locator("[data-index]").first)
        page.wait_for_url(screen.pattern)
        if screen.tab:
            page.goto(f"{page.url}/{screen.tab}")
    page.get_by_role("heading", level=1).wait_for()


if __name__ == "__main__":
    main()
