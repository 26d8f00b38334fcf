"""`scripts/screenshots [--out FOLDER] [--docs] [SCREEN …]`: see the package."""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from screens import past
from screens.pictures import take
from screens.seed import seed
from screens.traffic import traffic
from tests.kit.browser import chromium
from tests.kit.dashboard_areas import screens
from tests.kit.folders import ROOT
from tests.kit.product import Product

WARM_UP = 100.0
"""Seconds of traffic before the first picture: the figures of a minute do not have the start any more."""
DOCUMENTS = ROOT / "docs" / "images"
IN_DOCUMENTS = ("overview-light", "overview-dark", "overview-phone", "proxies-light", "logs-light", "connections-dark")
ENVIRONMENT = {"PROXYFLEET_WEBHOOKS__ALLOW_PRIVATE": "true"}


def main() -> None:
    """Make the pictures and print their names."""
    arguments = _parser().parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    wanted = [each for each in screens() if not arguments.screens or each.name in arguments.screens]
    with traffic() as running, Product(ENVIRONMENT) as product:
        seeded = seed(product, running.internet)
        product.stop()
        past.write(product.data_dir, seeded)
        product.start()
        running.begin(seeded)
        time.sleep(WARM_UP)
        with sync_playwright() as playwright, chromium(playwright) as browser:
            for picture in take(browser, product, wanted, arguments.out):
                print(f"{picture}  {picture.stat().st_size / 1000:.0f} kB", flush=True)
    if arguments.docs:
        DOCUMENTS.mkdir(exist_ok=True)
        for name in IN_DOCUMENTS:
            shutil.copy(arguments.out / f"{name}.png", DOCUMENTS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/screenshots", description="Pictures of the dashboard.")
    parser.add_argument("screens", nargs="*", metavar="SCREEN", help="only these, by name; all by default")
    parser.add_argument("--out", type=Path, default=ROOT / ".cache" / "screenshots", metavar="FOLDER")
    parser.add_argument("--docs", action="store_true", help="also renew those that the documents have")
    return parser


if __name__ == "__main__":
    main()
