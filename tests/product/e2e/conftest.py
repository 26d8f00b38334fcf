"""One running product and one origin for all end-to-end tests of a worker; a new proxy for each test."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.http_origins import Origin, serving
from tests.kit.product import Product


@pytest.fixture(scope="session")
def product() -> Iterator[Product]:
    """Shared by all tests of a worker that break nothing of it."""
    with Product() as running:
        yield running


@pytest.fixture
def own_product() -> Iterator[Product]:
    """One that the test may break."""
    with Product() as running:
        yield running


@pytest.fixture(scope="session")
def origin() -> Iterator[Origin]:
    server = Origin()
    with serving(server):
        yield server


@pytest.fixture
def proxy(product: Product) -> Iterator[dict[str, Any]]:
    """A running http proxy, in detail form; deleted after the test if it is still there."""
    made = product.proxy()
    yield made
    product.api("DELETE", f"/proxies/{made['id']}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with room for little."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "none", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs root and the right to mount a small file system")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)
