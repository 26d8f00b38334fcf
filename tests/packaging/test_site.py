"""The documentation as a site: whole, and without anything from elsewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import build_docs
import pytest

from tests.kit.docs_blocks import DOCUMENTS
from tests.kit.folders import ROOT

pytest.importorskip("zensical", reason="scripts/build-docs installs it")

LARGEST = 8_000_000
"""Bytes."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made as documents say. It is strict: a link to nothing would have ended the build."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    subprocess.run([str(ROOT / "scripts" / "build-docs"), str(folder)], check=True, timeout=600)
    return folder


def test_the_site_has_each_document_and_the_printed_reference(site: Path) -> None:
    names = [each.relative_to(ROOT / "docs").with_suffix(".html") for each in DOCUMENTS[1:]]
    printed = [Path("reference", name).with_suffix(".html") for name in build_docs.REFERENCE]
    assert [name for name in [*names, *printed, Path("changelog.html")] if not (site / name).is_file()] == []
    assert "Create a proxy" in (site / "reference" / "operations.html").read_text()


def test_nothing_in_the_site_comes_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"<(?:script|img|iframe)[^>]* src=\"?(https?:[^\" >]+)|<link[^>]* href=\"?(https?:[^\" >]+)")
    assert {each for page in site.rglob("*.html") for each in loaded.findall(page.read_text())} == set()


def test_the_site_is_searched_without_a_server_and_has_a_dark_form(site: Path) -> None:
    page = (site / "index.html").read_text()
    assert 'data-md-color-scheme="slate"' in page or "slate" in page
    assert list(site.rglob("search*.js"))
    assert sum(each.stat().st_size for each in site.rglob("*") if each.is_file()) < LARGEST
