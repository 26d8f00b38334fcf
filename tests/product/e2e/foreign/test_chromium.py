"""Headless Chromium loads a page with fifty resources, half of them by https, through each protocol that it speaks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.product.e2e.foreign.browser import FLAGS, NAMES
from tests.product.e2e.foreign.entrances import MakeEntrance, Record
from tests.product.e2e.foreign.programs import Site, find, needs, run

pytestmark = [pytest.mark.product, needs("chromium"), needs("nginx"), needs("openssl")]

RESOURCES = 50
EXPECTED = {"destination_denied", "tls_handshake_failed", "connection_terminated"}
"""Of the browser's own requests, which its end may cut off, and of connections that it opens to a TLS proxy in advance
and drops half-way."""


@pytest.fixture(scope="module")
def page(site: Site) -> str:
    """The path of a page of images, styles and scripts that counts those that arrived as they should be."""
    folder = site.files / "page"
    folder.mkdir()
    parts = [resource(site, folder, number) for number in range(RESOURCES)]
    counting = "<script>let arrived = 0</script>"
    telling = "<script>addEventListener('load', () => { document.title = `${arrived} arrived` })</script>"
    (folder / "index.html").write_text(f"<!DOCTYPE html><body>{counting}{''.join(parts)}{telling}</body>")
    return "/page/index.html"


def resource(site: Site, folder: Path, number: int) -> str:
    """One file, padded so that some are large, and the element that loads it."""
    kind = ("svg", "js", "css")[number % 3]
    url = (site.url if number % 2 else site.tls_url)(f"/page/{number}.{kind}")
    padding = "x" * (number * 1000)
    content, element = {
        "svg": (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{number + 1}" height="1"><!--{padding}--></svg>',
            f'<img src="{url}" onload="arrived += this.naturalWidth == {number + 1}">',
        ),
        "js": (f"/*{padding}*/ arrived += 1", f'<script src="{url}"></script>'),
        "css": (f"/*{padding}*/", f'<link rel="stylesheet" href="{url}" onload="arrived += 1">'),
    }[kind]
    (folder / f"{number}.{kind}").write_text(content)
    return element


@pytest.mark.parametrize("scheme", ["http", "https", "socks4", "socks5"])
def test_all_fifty_resources_arrive_and_the_records_show_them(
    entrance: MakeEntrance, site: Site, page: str, trust: str, scheme: str, tmp_path: Path
) -> None:
    proxy = entrance(scheme, access={"deny_destinations": NAMES})
    asked_before = len(site.asked())
    where = (f"--proxy-server={proxy.url}", f"--user-data-dir={tmp_path / 'profile'}")
    printed = run(find("chromium"), *FLAGS, trust, *where, "--dump-dom", site.url(page), seconds=120)
    title = re.search(r"<title>(.*)</title>", printed.stdout)
    assert title is not None, f"{printed.stdout}\n{printed.stderr}"
    assert title.group(1) == f"{RESOURCES} arrived"
    files = {f"/page/{file.name}" for file in (site.files / "page").iterdir()}
    assert files <= {line.split()[1] for line in site.asked()[asked_before:]}
    plain = {name for name in files if is_plain(name)}

    def in_all(records: list[Record]) -> bool:
        if in_tunnels(records, site.tls_port) < size(site, files - plain):
            return False
        if scheme.startswith("socks"):
            return in_tunnels(records, site.port) >= size(site, plain)
        fetched = {record["target_url"] for record in records if record["method"] == "GET"}
        return {site.url(name) for name in plain} <= fetched

    records = proxy.records_when(in_all, "all resources in the records")
    others = {record["reason"] for record in records if "127.0.0.1" not in record["target_url"]}
    assert others <= EXPECTED


def is_plain(name: str) -> bool:
    """Whether the page asks for this file by http."""
    number = re.search(r"\d+", name)
    return number is None or int(number.group()) % 2 == 1


def size(site: Site, names: set[str]) -> int:
    """Of these files, in bytes."""
    return sum((site.files / name[1:]).stat().st_size for name in names)


def in_tunnels(records: list[Record], port: int) -> int:
    """Bytes from this port of the site to the browser."""
    tunnels = [record for record in records if record["method"] == "CONNECT"]
    return sum(record["bytes_out"] for record in tunnels if record["target_url"] == f"127.0.0.1:{port}")
